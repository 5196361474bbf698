// Numbers, names and looks that every drawing uses.
// Draws what Python prepared: the payload holds numbers, the page's elements say what goes where.
// Names come from data: they reach the page through textContent, and Plotly through plain().
const drawers = {}; // What draws each kind of element that asks for a drawing.
const payload = JSON.parse(document.getElementById("payload").textContent);
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const touch = matchMedia("(pointer: coarse)");
const Z90 = 1.6448536269514722;
const find = (selector, within = document) => within.querySelector(selector);
const findAll = (selector, within = document) => [...within.querySelectorAll(selector)];
const listen = (selector, event, act) =>
  findAll(selector).forEach((one) => one.addEventListener(event, (told) => act(one, told)));
const describe = (element, text) => element.setAttribute("aria-label", text);

const toBytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const toNumbers = (levels, low, high) =>
  Array.from(levels, (level) => low + (level * (high - low)) / 65535);
const chunk = (items, size) =>
  Array.from({ length: items.length / size }, (_, i) => items.slice(i * size, (i + 1) * size));

/** Numbers of a packed array, in rows where it has two dimensions, in planes where three. */
function unpack({ shape, low, high, data }) {
  const flat = toNumbers(new Uint16Array(toBytes(data).buffer), low, high);
  return shape.slice(1).reduceRight((items, size) => chunk(items, size), flat);
}

/** Text as Plotly shows it letter by letter: it reads a little HTML. */
const plain = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** Long text without its middle: names often differ at their ends. */
function clip(text, most) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}`;
}
const brief = (text, most) => plain(clip(text, most));

function tell(value) {
  if (value === null || !Number.isFinite(value)) return "nothing";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

/** A part of a whole in per cent, as the text of the page has it. */
function share(part) {
  if (part === null) return "no edge";
  const digits = part >= 0.995 && part < 1 ? 2 : part >= 0.9 || part < 0.1 ? 1 : 0;
  return `${Number((100 * part).toFixed(digits)) || (part > 0 ? "under\u00a00.1" : 0)}\u00a0%`;
}

/** Position of the entry that is nearest to a value, in a rising list. */
function nearest(list, value) {
  const next = list.findIndex((entry) => entry > value);
  if (next < 1) return next === 0 ? 0 : list.length - 1;
  return list[next] - value < value - list[next - 1] ? next : next - 1;
}

const clamp = (value, low, high) => Math.max(low, Math.min(value, high));

/** The ends of an axis that holds all values, with room on either side. */
function frame(values, room, least = 1) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const pad = room * (high - low || least);
  return [low - pad, high + pad];
}

const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

function fade(hex, share) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${red},${green},${blue},${share})`;
}

const font = (size, name = "muted") => ({ size, color: colour(name) });

const axis = (title, more = {}) => ({
  gridcolor: colour("line"),
  zerolinecolor: colour("faint"),
  zerolinewidth: 1,
  linecolor: colour("line"),
  tickcolor: colour("line"),
  automargin: true,
  fixedrange: touch.matches,
  tickfont: font(11),
  title: { text: title, font: font(12), standoff: 8 },
  ...more,
});

/** Names of at most so many letters as the ticks of an axis, by default at whole numbers. */
const nameTicks = (names, letters, places = names.map((_, place) => place)) => ({
  tickvals: places,
  ticktext: names.map((name) => brief(name, letters)),
  zeroline: false,
});

/** An axis whose whole numbers have names. */
const nameAxis = (names, size, letters, more) =>
  axis("", {
    ...nameTicks(names, letters),
    tickfont: font(size, "ink"),
    ticklabelstandoff: 6,
    showgrid: false,
    ticks: "",
    ...more,
  });

const layout = (more) => ({
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  showlegend: false,
  legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: font(12) },
  font: { family: colour("sans"), ...font(12, "ink") },
  modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("faint"), activecolor: colour("muted") },
  dragmode: touch.matches ? false : "zoom",
  hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: font(12, "ink") },
  ...more,
});

const config = {
  responsive: true,
  displaylogo: false,
  doubleClick: "reset",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
};

/** Draw; `height` is in pixels where the contents decide it. */
function show(element, traces, more, options = config) {
  if (more.height) element.style.height = `${more.height}px`;
  return Plotly.react(element, traces, layout(more), options);
}

/** What is told where the pointer is: nothing for an empty text, the name too for an object. */
function hover(told) {
  if (typeof told === "object") return told;
  return told ? { hovertemplate: `${told}<extra></extra>` } : { hoverinfo: "skip" };
}
const plainValue = "%{y:.5g}";

/** A line; `look` is its width, or more of its look. */
const line = (x, y, tint, look, told = plainValue, more = {}) => ({
  x,
  y,
  type: "scatter",
  mode: "lines",
  line: { color: tint, ...(typeof look === "object" ? look : { width: look }) },
  hoverlabel: { bordercolor: tint },
  ...hover(told),
  ...more,
});

function dots(x, y, marker, told, more) {
  return { x, y, type: "scatter", mode: "markers", marker, ...hover(told), ...more };
}

/** Half the width of a 90 % band. */
const halve = (std) => std.map((one) => Z90 * one);

/** A line with a band. */
const banded = (x, y, half, tint, look, told, more, around = {}) => [
  ...band(x, y, half, tint, around),
  line(x, y, tint, look, told, { customdata: half, ...more }),
];

/** The room between two edges. */
function band(x, y, half, tint, more = {}) {
  const [low, high] = [-1, 1].map((sign) => y.map((one, i) => one + sign * half[i]));
  const filled = { fill: "tonexty", fillcolor: fade(tint, 0.22), ...more };
  return [line(x, low, tint, 0, "", more), line(x, high, tint, 0, "", filled)];
}

/** Horizontal bars, a row for each name. */
const bars = (x, names, tints, told, more) => ({
  type: "bar",
  orientation: "h",
  x,
  y: x.map((_, row) => row),
  text: names.map(plain),
  textposition: "none",
  marker: { color: tints },
  ...hover(told),
  ...more,
});

/** A straight line to measure others by. */
function level(x, dash, more = {}) {
  const place = { x0: x, x1: x, yref: "paper", y0: 0, y1: 1, layer: "below" };
  return { type: "line", ...place, line: { color: colour("muted"), width: 1.5, dash }, ...more };
}

const mark = (text, at, look = font(12)) => ({ text, showarrow: false, font: look, ...at });
/** What stands on the right of a bar, this many pixels away. */
const beside = (text, x, y, xshift, size) =>
  mark(text, { x, y, xanchor: "left", xshift }, font(size, "ink"));
