# Every target does all of its own set-up: Rust, Python 3.11+ and a C compiler are enough. Where there is
# no apt-get, redis-server, nginx, node and npm are needed too.

VENV := .venv
PYTHON := $(VENV)/bin/python
# The engine's bindings are an extension module: they leave Python's symbols to the interpreter.
export PYO3_BUILD_EXTENSION_MODULE := 1

.PHONY: help demo redis servers test test-rust test-loom test-python lint docs examples fuzz bench goodput clean

help:
	@echo "make demo      the main job: a file of requests, naively and paced, side by side"
	@echo "make test      every test, Rust and Python"
	@echo "make lint      formatting, lints, types, directions"
	@echo "make docs      the documentation: a site, and the API of Rust; warnings as errors"
	@echo "make examples  every example, run"
	@echo "make fuzz      ten minutes of hostile responses (nightly, cargo-fuzz)"
	@echo "make bench     every figure, side by side with the peers"
	@echo "make goodput   what gets through to servers of every kind, and what they refuse"

demo:
	cargo build --release --bin paceline --example demo
	target/release/examples/demo

test: test-rust test-loom test-python

# The Redis store is tested against real servers, which the tests start themselves: RUNLEVEL=1 asks the
# package not to start one more as a service.
redis:
	@command -v redis-server >/dev/null && exit; \
	command -v apt-get >/dev/null || { \
		echo "the tests need redis-server 7 or newer in PATH, and there is no apt-get: install it" >&2; \
		exit 1; \
	}; \
	[ "$$(id -u)" = 0 ] || ! command -v sudo >/dev/null || sudo="sudo -n"; \
	apt="$$sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get"; \
	$$apt update -qq && $$apt install -y -qq redis-server

# And against limiting servers that others wrote: nginx, and what runs on Node 20 or newer. The page is
# driven in a real browser, the live view in a real terminal.
servers: target/servers_node/installed
	@command -v nginx >/dev/null && command -v chromium >/dev/null && command -v tmux >/dev/null && exit; \
	command -v apt-get >/dev/null || { \
		echo "the tests need nginx, chromium and tmux in PATH, and there is no apt-get: install them" >&2; \
		exit 1; \
	}; \
	[ "$$(id -u)" = 0 ] || ! command -v sudo >/dev/null || sudo="sudo -n"; \
	apt="$$sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get"; \
	$$apt update -qq && $$apt install -y -qq --no-install-recommends nginx-light chromium fonts-dejavu-core tmux

target/servers_node/installed: $(wildcard python/tests/servers_node/package*.json)
	@command -v npm >/dev/null && exit; \
	command -v apt-get >/dev/null || { \
		echo "the tests need node 20 or newer and npm in PATH, and there is no apt-get: install them" >&2; \
		exit 1; \
	}; \
	[ "$$(id -u)" = 0 ] || ! command -v sudo >/dev/null || sudo="sudo -n"; \
	apt="$$sudo env DEBIAN_FRONTEND=noninteractive apt-get"; \
	$$apt update -qq && $$apt install -y -qq --no-install-recommends nodejs npm
	mkdir -p $(@D) && cp $^ $(@D)
	npm ci --prefix $(@D) --no-audit --no-fund --silent
	touch $@

# The majors of LLM SDKs before those that the other tests use.
target/previous_sdks/installed: python/tests/previous_sdks.txt
	python3 -m venv $(@D) || (python3 -m pip install virtualenv && python3 -m virtualenv $(@D))
	$(@D)/bin/python -m pip install --quiet --requirement $<
	touch $@

# Frameworks that do not take the versions of SDKs that the other tests use.
target/frameworks/installed: python/tests/frameworks.txt
	python3 -m venv $(@D) || (python3 -m pip install virtualenv && python3 -m virtualenv $(@D))
	$(@D)/bin/python -m pip install --quiet --requirement $<
	touch $@

# The bindings are tested from Python.
test-rust: redis
	cargo test --locked
	cargo test --locked -p paceline-core --features tiktoken llm

# Every interleaving of those who wait, those who leave and those who make room.
test-loom:
	RUSTFLAGS="--cfg loom" cargo test --locked -p paceline --no-default-features --test loom --target-dir target/loom

test-python: redis servers target/previous_sdks/installed target/frameworks/installed $(VENV)/built
	$(PYTHON) -m pytest
	$(PYTHON) -m pytest --doctest-modules python/paceline --ignore=python/paceline/__main__.py
	$(PYTHON) -m mypy
	$(PYTHON) -m mypy.stubtest paceline._native

lint: $(VENV)/built
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(PYTHON) scripts/check_directions.py
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .

# The site is built in target/site, and opens from there.
docs: $(VENV)/docs
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --features paceline/metrics,paceline/reqwest,paceline/tower
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict

# What an example serves or imports stands in examples/apps, so each file beside it is one to run.
examples: $(VENV)/built
	for example in demo with_hyper with_octocrab with_reqwest; do cargo run --locked --example $$example || exit 1; done
	for example in examples/*.py; do echo "$$example" && $(PYTHON) "$$example" || exit 1; done

# What is found is kept in the first folder; the second is committed, and small.
fuzz:
	mkdir -p target/fuzz/headers
	cargo +nightly fuzz run headers target/fuzz/headers fuzz/corpus/headers -- -max_total_time=600 -timeout=2

bench: $(VENV)/tools
	$(PYTHON) benches/run.py

goodput: redis $(VENV)/tools
	$(PYTHON) benches/goodput.py

$(VENV)/tools: pyproject.toml
	test -x $(PYTHON) || python3 -m venv $(VENV) || (python3 -m pip install virtualenv && python3 -m virtualenv $(VENV))
	$(PYTHON) -m pip install --quiet --upgrade "pip>=25.1"
	$(PYTHON) -m pip install --quiet --group test
	touch $@

$(VENV)/docs: $(VENV)/tools
	$(PYTHON) -m pip install --quiet --group docs
	touch $@

# The package is rebuilt when anything that it is made of has changed.
$(VENV)/built: $(VENV)/tools Cargo.lock $(shell find crates python/paceline -name '*.rs' -o -name '*.toml' -o -name '*.py*' | grep -v __pycache__)
	VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/maturin develop --quiet --locked
	touch $@

clean:
	cargo clean
	rm -rf $(VENV)
