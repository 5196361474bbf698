// Numbers, names and looks that every drawing uses.
// Draws what Python prepared: the payload holds numbers, the page's elements say what goes where.
// Names come from data: they reach the page through textContent, and Plotly through plain().
const payload = JSON.parse(document.getElementById("payload").textContent);
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const touch = matchMedia("(pointer: coarse)");
const Z90 = 1.6448536269514722;
const find = (selector, within = document) => within.querySelector(selector);
const findAll = (selector, within = document) => [...within.querySelectorAll(selector)];

const toBytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** Numbers of a packed array, in rows where it has two dimensions, in planes where three. */
function unpack({ shape, low, high, data }) {
  const levels = new Uint16Array(toBytes(data).buffer);
  const flat = Array.from(levels, (level) => low + (level * (high - low)) / 65535);
  return shape.slice(1).reduceRight((items, size) => chunk(items, size), flat);
}

const chunk = (items, size) =>
  Array.from({ length: items.length / size }, (_, i) => items.slice(i * size, (i + 1) * size));

/** Text as Plotly shows it letter by letter: it reads a little HTML. */
const plain = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** Long text without its middle: names often differ at their ends. */
function clip(text, most) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}`;
}

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

/** Position of the last entry that is not above the value, in a rising list. */
function locate(list, value) {
  let low = 0,
    high = list.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (list[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

function nearest(list, value) {
  const at = locate(list, value);
  return at + 1 < list.length && list[at + 1] - value < value - list[at] ? at + 1 : at;
}

const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

function fade(hex, share) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${red},${green},${blue},${share})`;
}

const axis = (more = {}) => ({
  gridcolor: colour("line"),
  zerolinecolor: colour("faint"),
  zerolinewidth: 1,
  linecolor: colour("line"),
  tickcolor: colour("line"),
  automargin: true,
  fixedrange: touch.matches,
  tickfont: { size: 11, color: colour("muted") },
  ...more,
  title: { text: more.title ?? "", font: { size: 12, color: colour("muted") }, standoff: 8 },
});

const layout = (more) => ({
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  showlegend: false,
  font: { family: colour("sans"), size: 12, color: colour("ink") },
  modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("faint"), activecolor: colour("muted") },
  margin: { l: 46, r: 12, t: 10, b: 38 },
  dragmode: touch.matches ? false : "zoom",
  hoverlabel: {
    bgcolor: colour("card"),
    bordercolor: colour("line"),
    font: { color: colour("ink"), size: 12 },
  },
  ...more,
});

const config = {
  responsive: true,
  displaylogo: false,
  scrollZoom: false,
  doubleClick: "reset",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
};

const show = (element, traces, more) => Plotly.react(element, traces, layout(more), config);

const line = (x, y, tint, more = {}) => ({
  x,
  y,
  type: "scatter",
  mode: "lines",
  line: { color: tint, width: 1.6 },
  hoverlabel: { bordercolor: tint },
  ...more,
});

/** Two edges with the room between them filled. */
const band = (x, low, high, tint, more = {}) => [
  { x, y: low, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", ...more },
  {
    x,
    y: high,
    type: "scatter",
    mode: "lines",
    line: { width: 0 },
    hoverinfo: "skip",
    fill: "tonexty",
    fillcolor: fade(tint, 0.22),
    ...more,
  },
];

/** A straight line to measure others by, and words beside it. */
const level = (at, dash = "dot") => ({
  type: "line",
  layer: "below",
  line: { color: colour("muted"), width: 1.5, dash },
  ...at,
});

const mark = (text, at) => ({
  text,
  showarrow: false,
  font: { size: 12, color: colour("muted") },
  ...at,
});

/** A legend above the drawing. */
const topLegend = () => ({
  orientation: "h",
  x: 0,
  y: 1.02,
  yanchor: "bottom",
  font: { size: 12, color: colour("muted") },
});
