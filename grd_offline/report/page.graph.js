// The causal graph as a drawing, which opens with what drives the reward, and as a heat map.
/** The strengths of all edges from 0 to 1, by mask; null where there is no edge. */
function readStrengths({ states, reward, masks }) {
  const found = { state_to_reward: reward.state, action_to_reward: reward.action };
  for (const [name, text] of Object.entries(masks)) {
    // Levels from 1 to 255 are roots of strengths.
    const levels = [...toBytes(text)].map((level) => (level ? ((level - 1) / 254) ** 2 : null));
    found[name] = chunk(levels, states.length);
  }
  return found;
}

const drawing = { edges: [], parents: [], hover: "" };
const chosenNode = () => find("#node").value;

/** All edges between nodes that are shown: those to the reward first, then the strongest. */
function listEdges(graph) {
  const masks = readStrengths(graph);
  const edges = [{ from: "t", to: "r", strength: graph.reward.terminated }];
  for (const kind of ["state", "action"])
    for (const i of graph[`shown_${kind}s`]) {
      const from = `${kind[0]}${i}`;
      edges.push({ from, to: "r", strength: masks[`${kind}_to_reward`][i] });
      const strengths = masks[`${kind}_to_state`][i];
      for (const j of graph.shown_states)
        edges.push({ from, to: `n${j}`, strength: strengths[j], strong: graph.compact[j] });
    }
  const known = edges.filter((edge) => edge.strength !== null);
  return known.sort((a, b) => isToReward(b) - isToReward(a) || b.strength - a.strength);
}
const isToReward = (edge) => edge.to === "r";

function make(tag, attributes = {}, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

function startGraph(graph) {
  drawing.edges = listEdges(graph);
  drawing.parents = drawing.edges.filter(isToReward).map((edge) => edge.from);
  const [select, slider] = ["#node", "#edges"].map((name) => find(name));
  select.append(
    new Option("what drives the reward", "r"),
    new Option("everything", ""),
    ...graph.shown_states.map((i) => new Option(graph.states[i], `s${i}`)),
    ...graph.shown_actions.map((i) => new Option(graph.actions[i], `a${i}`)),
  );
  select.value = drawing.parents.length ? "r" : "";
  slider.max = Math.max(1, drawing.edges.length);
  slider.value = drawing.parents.length + 36;
  const again = () => {
    find("#strongest").hidden = select.value !== "";
    redraw("graph");
  };
  listen("#node", "change", again);
  listen("#edges", "input", again);
  again();
}

/** Signs of nodes, drawn around a place. */
const sign = (tag, fill, stroke, place) => (x, y) => {
  const look = { fill: colour(fill), stroke: colour(stroke), "stroke-width": 1.5 };
  return make(tag, { ...place, ...look, transform: `translate(${x},${y})` });
};
const signs = {
  compact: sign("circle", "accent", "accent", { r: 5.5 }),
  state: sign("circle", "paper", "muted", { r: 5.5 }),
  action: sign("rect", "paper", "ink", { x: -5, y: -5, width: 10, height: 10 }),
  terminated: sign("polygon", "paper", "ink", { points: "0,-7 7,0 0,7 -7,0" }),
  reward: sign("circle", "second", "second", { r: 9.25 }),
};

/** Where each node stands: causes on the left, the next state and the reward on the right. */
function placeNodes(graph, wide) {
  const row = wide < 560 ? 23 : 26;
  const side = Math.min(wide * 0.4, 250);
  const only = chosenNode() === "r" && drawing.parents.length > 0;
  const place = {};
  let y = 34;
  let first = y;
  const put = (key) => {
    place[key] = [side, y];
    y += row;
  };
  if (only) drawing.parents.forEach(put);
  else {
    for (const i of graph.shown_states) {
      place[`n${i}`] = [wide - side, y];
      put(`s${i}`);
    }
    first = y += row;
    graph.shown_actions.forEach((i) => put(`a${i}`));
    if (graph.reward.terminated !== null) put("t");
  }
  place.r = [wide - (only ? Math.min(side, 110) : side), (first + Math.max(first, y - row)) / 2];
  return { place, only, side, height: Math.max(y, place.r[1] + row) + 4 };
}

/** The name of a node and its sign. */
function nameNode(graph, key) {
  const i = Number(key.slice(1));
  if (key === "r") return ["reward", signs.reward];
  if (key === "t") return ["terminated", signs.terminated];
  if (key.startsWith("a")) return [graph.actions[i], signs.action];
  return [graph.states[i], graph.compact[i] ? signs.compact : signs.state];
}

drawers.graph = (element) => {
  const { graph } = payload;
  const wide = element.clientWidth || 800;
  const { place, only, side, height } = placeNodes(graph, wide);
  const letters = Math.floor((side - 18) / (wide < 560 ? 6.2 : 7.1));
  const svg = make("svg", { viewBox: `0 0 ${wide} ${height}`, "aria-hidden": "true" });
  const focus = drawing.hover || chosenNode();
  const most = Number(find("#edges").value);
  // A dimension's own focus covers it both now and next.
  const same = focus.startsWith("s") ? [focus, `n${focus.slice(1)}`] : [focus];
  const touches = ({ from, to }) => same.includes(from) || same.includes(to);
  const seen = drawing.edges.filter((edge, rank) =>
    focus ? touches(edge) && (!only || isToReward(edge)) : rank < most,
  );
  const lit = new Set([...same, ...seen.flatMap((edge) => [edge.from, edge.to])]);
  for (const edge of [...seen].reverse()) svg.append(drawEdge(edge, place, focus));
  svg.append(make("text", { class: "head", x: side, y: 14, "text-anchor": "end" }, "this step"));
  if (!only) svg.append(make("text", { class: "head", x: wide - side, y: 14 }, "next step"));
  for (const [key, [x, y]] of Object.entries(place)) {
    const [name, sign] = nameNode(graph, key);
    const edge = only && drawing.edges.find((edge) => edge.from === key && isToReward(edge));
    const told = edge ? `  ${share(edge.strength)}` : "";
    const isCause = !"rn".includes(key[0]);
    const away = isCause ? -13 : key === "r" ? 18 : 13;
    const at = { x: x + away, y: y + 4, "text-anchor": isCause ? "end" : "start" };
    const group = make("g", { class: focus && !lit.has(key) ? "node away" : "node" });
    const text = make("text", at, clip(name, letters - told.length) + told);
    group.append(sign(x, y), text, make("title", {}, name));
    listenNode(group, key.replace("n", "s"));
    svg.append(group);
  }
  svg.addEventListener("pointerleave", () => lightUp(""));
  const count = `${seen.length} of ${drawing.edges.length} lines shown`;
  element.replaceChildren(svg, listSigns(graph, count));
};

function drawEdge({ from, to, strength, strong }, place, focus) {
  const [x0, y0] = place[from];
  const [x1, y1] = place[to];
  const toReward = to === "r";
  const bend = (x1 - x0) * 0.45;
  const end = x1 - (toReward ? 15 : 9);
  const path = make("path", {
    d: `M${x0 + 9},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${end},${y1}`,
    stroke: colour(toReward ? "second" : strong ? "accent" : "faint"),
    // One scale for all lines: the thickness grows with the strength.
    "stroke-width": (0.6 + 9.4 * strength).toFixed(2),
    "stroke-opacity": toReward ? 0.85 : focus ? 0.7 : 0.3 + 0.4 * strength,
  });
  path.append(make("title", {}, share(strength)));
  return path;
}

function lightUp(key) {
  if (drawing.hover === key) return;
  drawing.hover = key;
  redraw("graph");
}

function listenNode(group, key) {
  group.addEventListener("pointerenter", ({ pointerType }) => {
    if (pointerType === "mouse") lightUp(key);
  });
  group.addEventListener("click", () => {
    drawing.hover = "";
    find("#node").value = chosenNode() === key ? "" : key;
    find("#node").dispatchEvent(new Event("change"));
  });
}

function listSigns(graph, count) {
  const key = document.createElement("ul");
  key.className = "key";
  const add = (text, ...sign) => {
    const item = document.createElement("li");
    const picture = make("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
    picture.append(...sign.map((draw) => draw(8, 8)));
    item.append(...(sign.length ? [picture] : []), text);
    key.append(item);
  };
  add("state in the compact state", signs.compact);
  add("other state", signs.state);
  if (graph.actions.length) add("action", signs.action);
  if (graph.reward.terminated !== null) add("the episode terminated", signs.terminated);
  add("reward", signs.reward);
  const known = graph.states.length + graph.actions.length;
  const hidden = known - graph.shown_states.length - graph.shown_actions.length;
  const more = `; ${hidden} weaker dimensions are in the heat maps only`;
  add(hidden ? count + more : count);
  return key;
}

/** Causes are rows, effects are columns; the reward and the actions stand apart from the states. */
function drawMaps(element, { states, actions }, masks, hasStrengths) {
  const longest = (names, least = 0) => 6.2 * Math.max(least, ...names.map((name) => name.length));
  const left = Math.min(170, 26 + longest([...states, ...actions]));
  const room = (element.closest(".scroll") ?? element).clientWidth || 700;
  const count = states.length;
  const [across, down] = [count + 2.6, count + 1 + actions.length];
  const cell = clamp((room - left - 16) / across, count > 60 ? 4 : 13, 30);
  const [top, bottom] = [26, Math.min(150, 22 + longest(states, 6))];
  const width = left + across * cell + 16;
  const [causes, effects] = [actions, ["reward"]].map((others) => [...states, "", ...others]);
  const join = (rows, last) => rows.map((row, i) => [...row, null, last[i]]);
  const strengths = [
    ...join(masks.state_to_state, masks.state_to_reward),
    effects.map(() => null),
    ...join(masks.action_to_state, masks.action_to_reward),
  ];
  const name = (strength, i, j) => {
    const edge = `${plain(causes[i])} → ${plain(effects[j])}`;
    return hasStrengths ? `${edge}: ${share(strength)}` : edge;
  };
  const ends = Array.from({ length: down + 1 }, (_, i) => i);
  const gap = cell > 8 ? 1 : 0;
  const accent = colour("accent");
  const map = {
    type: "heatmap",
    x: [...ends.slice(0, count + 2), across],
    y: ends,
    z: strengths,
    zmin: 0,
    zmax: 1,
    xgap: gap,
    ygap: gap,
    colorscale: [hasStrengths ? fade(accent, 0.12) : accent, accent].map((tint, i) => [i, tint]),
    showscale: false,
    hoverongaps: false,
    text: strengths.map((row, i) => row.map((strength, j) => name(strength, i, j))),
    ...hover("%{text}"),
  };
  const every = Math.ceil(14 / cell);
  const list = (names, from, half = 0.5) =>
    names.map((name, i) => [name, from + i + half]).filter((_, i) => i % every === 0);
  const places = (ticks, range, tickangle) => {
    const [named, at] = [0, 1].map((part) => ticks.map((tick) => tick[part]));
    const plainly = { showgrid: false, showline: false, automargin: false, fixedrange: true };
    const look = { tickangle, range, ticklabelstandoff: 1, ticks: "", ...plainly };
    return axis("", { ...nameTicks(named, 24, at), ...look });
  };
  const ground = { type: "rect", line: { width: 0 }, fillcolor: colour("soft"), layer: "below" };
  const [columns, rows] = [across, down].map((end) => [[0, count], [count + 1, end]]);
  const head = (text, x, xanchor) =>
    mark(text, { x, xanchor, y: 1, yanchor: "bottom", yshift: 4, xref: "paper", yref: "paper" });
  element.style.width = `${width}px`;
  const more = {
    width,
    height: down * cell + bottom + top,
    margin: { l: left, r: 16, t: top, b: bottom },
    dragmode: false,
    annotations: [head("→ next state", 0, "left"), head("→ reward", 1, "right")],
    shapes: columns.flatMap(([x0, x1]) => rows.map(([y0, y1]) => ({ ...ground, x0, x1, y0, y1 }))),
    xaxis: places([...list(states, 0), ...list(["reward"], count + 1, 0.8)], [0, across], -90),
    yaxis: places([...list(states, 0), ...list(actions, count + 1)], [down, 0]),
  };
  show(element, [map], more, { ...config, responsive: false, displayModeBar: false });
}

drawers.maps = (element) =>
  drawMaps(element, payload.graph, readStrengths(payload.graph), true);
