"""Real Redis servers for tests, each in a directory of its own, killed when closed."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedRWPair

    from typing_extensions import Self

#: How long a server may take to start, and to answer a command, in seconds.
PATIENCE = 10.0
MISSING = "redis-server is not installed: run make test, or apt-get install redis-server"
#: Test processes that run side by side begin far from each other.
_PORTS = itertools.count(os.getpid() * 389)


class RedisError(Exception):
    """The server answered with an error."""


def free_port() -> int:
    """Find a port of the loopback on which nobody listens now; somebody may be faster than us.

    It lies below those that the system gives to outgoing connections: nothing takes the port of a
    killed server before it restarts.
    """
    while True:
        port = 12_000 + next(_PORTS) % 10_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


class RedisServer:
    """One redis-server process: ``with RedisServer() as server``, or ``start`` and ``close``.

    Keeps nothing on disk, or every answered write when it is ``persistent``. A ``password`` is
    letters and digits, for it stands in ``url`` as it is. ``args`` are redis-server's own.
    """

    def __init__(self, *args: str, password: str = "", persistent: bool = False) -> None:
        self._password = password
        self._args = ["--appendonly", "yes", "--appendfsync", "always"] if persistent else []
        self._args += ["--requirepass", password, *args] if password else args
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="paceline-")
        self._path = Path(self._directory.name)
        try:
            for _ in range(20):
                self.port = free_port()
                if self._launch():
                    return self
        except BaseException:
            self.close()
            raise
        self.close()
        raise TimeoutError("20 ports were free, and were taken before redis-server took them")

    def _launch(self) -> bool:
        """Whether it runs now; not when somebody else has its port."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--unixsocket", "redis.sock", "--save", "", "--appendonly", "no"]
        command += ["--loglevel", "warning", "--enable-debug-command", "yes", *self._args]
        log = self._path / "log"
        try:
            with log.open("wb") as out:
                self._process = process = subprocess.Popen(
                    command, cwd=self._path, stdin=subprocess.DEVNULL, stdout=out, stderr=out
                )
        except FileNotFoundError:
            raise FileNotFoundError(MISSING) from None
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            # An error while it loads its data.
            with contextlib.suppress(OSError, RedisError):
                self.command("PING")
                return True
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.003)
                break
        if "Address already in use" in log.read_text():
            return False
        raise TimeoutError(f"redis-server did not start:\n{log.read_text()}")

    @property
    def url(self) -> str:
        user = f":{self._password}@" if self._password else ""
        return f"redis://{user}127.0.0.1:{self.port}"

    def command(self, *command: str) -> str:
        """Run one command over the server's Unix socket, so that it reaches no other server.

        The elements of an array stand on lines of their own, and nothing is ``(nil)``.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(self._path / "redis.sock"))
            with connection.makefile("rwb") as stream:
                if self._password:
                    _ask(stream, "AUTH", self._password)
                return _ask(stream, *command)

    def kill(self) -> None:
        """As a crash does it: nothing is saved, nobody is told."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """On the same port and directory; kill it first when it still runs."""
        self.kill()
        end = time.monotonic() + PATIENCE
        while not self._launch():
            if time.monotonic() > end:
                raise TimeoutError(f"somebody else has port {self.port}")

    def pause(self) -> None:
        """Take connections but answer nothing, until ``resume``."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process, "the server was killed"
        self._process.send_signal(number)

    def close(self) -> None:
        self.kill()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _ask(stream: BufferedRWPair, *command: str) -> str:
    parts = [part.encode() for part in command]
    stream.write(b"*%d\r\n" % len(parts))
    stream.writelines(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    stream.flush()
    return _read(stream)


def _read(stream: BufferedRWPair) -> str:
    line = stream.readline().decode()
    if not line.endswith("\r\n"):
        raise ConnectionError("the connection was closed")
    kind, rest = line[0], line[1:-2]
    if kind == "-":
        raise RedisError(rest)
    if kind in "+:":
        return rest
    if rest == "-1":
        return "(nil)"
    if kind == "$":
        return stream.read(int(rest) + 2)[:-2].decode(errors="replace")
    return "\n".join(_read(stream) for _ in range(int(rest)))
