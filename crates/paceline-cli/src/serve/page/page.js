// The settings are those of `paceline simulate`, with the names that its options have. What they come to is asked of
// the engine behind this page; nothing is worked out here.
"use strict";

const counts = (most) => {
  const steps = [];
  for (let ten = 1; ten <= most; ten *= 10) {
    for (const digit of [1, 2, 3, 4, 5, 6, 8]) {
      if (digit * ten <= most) steps.push(digit * ten);
    }
  }
  return steps;
};
const orNone = (steps) => [null, ...steps];

// Where `none` is said, the option can be left out, and that is what it then means.
const GROUPS = {
  Limits: [
    { name: "rpm", label: "Requests per minute", steps: orNone(counts(100000)), none: "none", first: 60 },
    { name: "burst", label: "Burst", steps: orNone(counts(100000)), none: "the limit" },
    { name: "tpm", label: "Tokens per minute", steps: orNone(counts(10000000)), none: "none" },
    { name: "keys", label: "Keys that take turns", steps: counts(20), usual: 1 },
  ],
  Requests: [
    { name: "requests", label: "Requests", steps: counts(20000), usual: 100, first: 200 },
    { name: "avg-tokens", label: "Tokens of a request", steps: orNone(counts(100000)), none: "none" },
    { name: "arrivals", label: "Arrivals (at-once, 10/1s, poisson:10/1s, burst:100/1m)", text: true, usual: "at-once" },
  ],
  Callers: [
    { name: "workers", label: "Workers", steps: counts(2000), usual: 16 },
    { name: "latency", label: "Latency in ms", unit: "ms", steps: [0, ...counts(60000)], usual: 0, first: 500 },
    { name: "on-rate-limit", label: "on_rate_limit", choices: ["wait", "raise"], usual: "wait" },
    { name: "max-wait", label: "Longest wait in seconds", unit: "s", steps: orNone(counts(3600)), none: "any" },
  ],
  Server: [
    {
      name: "server",
      label: "The server counts by",
      choices: ["", "fixed", "fixed-first", "fixed-clock", "sliding", "bucket", "gcra"],
      none: "nothing: it rejects nothing",
      usual: "",
    },
    { name: "tells", label: "and tells", choices: ["retry-after", "nothing", "github", "ietf", "openai"], usual: "retry-after" },
    { name: "strangers", label: "Strangers take, in percent", unit: "%", steps: [0, 5, 10, 20, 25, 30, 40, 50, 60, 75, 90], usual: 0 },
  ],
};
// These say nothing where there is no server.
const OF_SERVER = ["tells", "strangers"];
// What became of so many requests is drawn.
const MARKS = 2000;

const settings = {};
// Options that have no control here are kept as they are.
let others = [];
let asking = null;
let soon = 0;

const element = (kind, attributes = {}, ...children) => {
  const made = Object.assign(document.createElement(kind), attributes);
  made.append(...children);
  return made;
};
const at = (id) => document.getElementById(id);
const all = () => Object.values(GROUPS).flat();

function control(spec) {
  const id = spec.name;
  const label = element("label", { htmlFor: id, textContent: spec.label });
  const changed = (value) => {
    settings[id] = value;
    show(spec);
    ask();
  };
  if (spec.choices) {
    const options = spec.choices.map((value) => element("option", { value, textContent: value || spec.none }));
    const select = element("select", { id, className: "wide" }, ...options);
    select.addEventListener("input", () => changed(select.value));
    return element("div", { className: "control" }, label, select);
  }
  if (spec.text) {
    const input = element("input", { id, type: "text", className: "wide", spellcheck: false });
    input.addEventListener("input", () => changed(input.value.trim()));
    return element("div", { className: "control" }, label, input);
  }
  const number = element("input", { id, type: "number", min: 0, placeholder: spec.none ?? "" });
  const range = element("input", { id: `${id}-slider`, type: "range", min: 0, max: spec.steps.length - 1 });
  range.setAttribute("aria-label", spec.label);
  number.addEventListener("input", () => changed(number.value === "" ? null : Number(number.value)));
  range.addEventListener("input", () => changed(spec.steps[range.value]));
  return element("div", { className: "control" }, label, range, number);
}

function show(spec) {
  const value = settings[spec.name];
  const input = at(spec.name);
  if (document.activeElement !== input || input.type !== "text") input.value = value ?? "";
  const range = at(`${spec.name}-slider`);
  if (range) {
    const above = spec.steps.findIndex((step) => (step ?? -1) >= (value ?? -1));
    range.value = above < 0 ? spec.steps.length - 1 : above;
    range.setAttribute("aria-valuetext", value === null ? spec.none : `${value}${spec.unit ?? ""}`);
  }
}

// The options of the command, as names and values.
function pairs() {
  const said = all().filter(({ name }) => settings.server || !OF_SERVER.includes(name));
  const options = said
    .filter(({ name, usual }) => settings[name] !== null && settings[name] !== "" && settings[name] !== usual)
    .map(({ name, unit }) => [name, `${settings[name]}${unit ?? ""}`]);
  return [...options, ...others];
}

function read(query) {
  const given = new URLSearchParams(query);
  const isBare = [...given].length === 0;
  for (const spec of all()) {
    const text = given.get(spec.name);
    given.delete(spec.name);
    const fallback = (isBare ? spec.first : undefined) ?? spec.usual ?? null;
    if (text === null) settings[spec.name] = fallback;
    else if (!spec.steps) settings[spec.name] = text;
    else settings[spec.name] = inUnit(text, spec.unit);
  }
  others = [...given];
}

// A time may be said in other units than those of its slider.
function inUnit(text, unit) {
  const found = /^([\d.]+)(ms|s|m|h|%)?$/.exec(text.replaceAll("_", ""));
  if (!found) return text;
  const seconds = { ms: 0.001, s: 1, m: 60, h: 3600 };
  const from = seconds[found[2] ?? "s"];
  return unit in seconds ? (Number(found[1]) * from) / seconds[unit] : Number(found[1]);
}

const quoted = (text) => (/^[\w./:=%,+-]*$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

function ask() {
  at("outcome").ariaBusy = "true";
  cancelAnimationFrame(soon);
  soon = requestAnimationFrame(answer);
}

async function answer() {
  const options = pairs();
  history.replaceState(null, "", `?${new URLSearchParams(options)}`);
  const words = options.map(([name, value]) => (value === "" ? `--${name}` : `--${name} ${quoted(value)}`));
  at("command").textContent = ["paceline simulate", ...words].join(" ");
  asking?.abort();
  const mine = (asking = new AbortController());
  const width = Math.max(280, Math.round(at("picture").clientWidth));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches ? 1 : 0;
  const query = new URLSearchParams([...options, ["marks", MARKS], ["width", width], ["height", width < 500 ? 300 : 520], ["dark", dark]]);
  try {
    const response = await fetch(`simulate?${query}`, { signal: mine.signal });
    const told = await response.json();
    at("error").hidden = !told.error;
    at("error").textContent = told.error ?? "";
    if (!told.error) draw(told);
  } catch (error) {
    // Something newer is asked for.
    if (error.name === "AbortError") return;
    at("error").hidden = false;
    at("error").textContent = "the page's server does not answer: was it stopped?";
  }
  if (mine === asking) at("outcome").ariaBusy = "false";
}

function draw(told) {
  const svg = new DOMParser().parseFromString(told.picture, "image/svg+xml").documentElement;
  const [width, height] = [svg.getAttribute("width"), svg.getAttribute("height")];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  at("picture").replaceChildren(svg);
  const rows = told.figures.flatMap(([name, text]) => [
    element("dt", { textContent: name }),
    element("dd", { textContent: text }),
  ]);
  at("figures").replaceChildren(...rows);
  // For whoever drives this page.
  document.body.dataset.report = JSON.stringify(told.report);
}

function begin() {
  read(location.search);
  for (const [title, specs] of Object.entries(GROUPS)) {
    at("settings").append(element("fieldset", {}, element("legend", { textContent: title }), ...specs.map(control)));
  }
  all().forEach(show);
  at("settings").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("popstate", () => {
    read(location.search);
    all().forEach(show);
    ask();
  });
  addEventListener("resize", ask);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ask);
  ask();
}

begin();
