// The causal graph as a drawing. It opens with what drives the reward.

/** The strengths of all edges from 0 to 1, by mask; null where there is no edge. */
function readStrengths(graph) {
  const states = graph.states.length,
    // Levels from 1 to 255 are roots of strengths.
    read = (text) =>
      [...toBytes(text)].map((level) => (level ? ((level - 1) / 254) ** 2 : null));
  return {
    stateReward: graph.reward.state,
    actionReward: graph.reward.action,
    stateState: chunk(read(graph.masks.state_to_state), states),
    actionState: chunk(read(graph.masks.action_to_state), states),
  };
}

const drawing = { node: "r", edges: null, hover: "" };

function listEdges(graph) {
  const masks = readStrengths(graph),
    edges = [];
  const add = (from, to, strength, strong) =>
    strength !== null && edges.push({ from, to, strength, toReward: to === "r", strong });
  for (const i of graph.shown_states) {
    add(`s${i}`, "r", masks.stateReward[i], true);
    for (const j of graph.shown_states)
      add(`s${i}`, `n${j}`, masks.stateState[i][j], graph.compact[j]);
  }
  for (const i of graph.shown_actions) {
    add(`a${i}`, "r", masks.actionReward[i], true);
    for (const j of graph.shown_states)
      add(`a${i}`, `n${j}`, masks.actionState[i][j], graph.compact[j]);
  }
  add("t", "r", graph.reward.terminated, true);
  // Those to the reward first, then the strongest.
  return edges.sort((a, b) => b.toReward - a.toReward || b.strength - a.strength);
}

function make(tag, attributes = {}, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

function startGraph(graph) {
  const select = find("#node"),
    slider = find("#edges"),
    edges = listEdges(graph);
  if (!edges.some((edge) => edge.toReward)) drawing.node = "";
  const nodes = [
    ["r", "what drives the reward"],
    ["", "everything"],
    ...graph.shown_states.map((i) => [`s${i}`, graph.states[i]]),
    ...graph.shown_actions.map((i) => [`a${i}`, graph.actions[i]]),
  ];
  select.replaceChildren(...nodes.map(([key, name]) => new Option(name, key)));
  select.value = drawing.node;
  slider.max = Math.max(1, edges.length);
  drawing.edges = Math.min(edges.length, edges.filter((edge) => edge.toReward).length + 36);
  slider.value = drawing.edges;
  const again = () => {
    find("#strongest").hidden = drawing.node !== "";
    if (drawn.has(find(".graph"))) drawGraph(find(".graph"));
  };
  select.addEventListener("change", () => {
    drawing.node = select.value;
    again();
  });
  slider.addEventListener("input", () => {
    drawing.edges = Number(slider.value);
    again();
  });
  again();
}

/** Signs of nodes, drawn around a place. */
const signs = {
  circle: (compact) => (x, y) =>
    make("circle", {
      cx: x,
      cy: y,
      r: 5.5,
      fill: compact ? colour("accent") : colour("paper"),
      stroke: compact ? colour("accent") : colour("muted"),
      "stroke-width": 1.5,
    }),
  square: (x, y) =>
    make("rect", {
      x: x - 5,
      y: y - 5,
      width: 10,
      height: 10,
      fill: colour("paper"),
      stroke: colour("ink"),
      "stroke-width": 1.5,
    }),
  diamond: (x, y) =>
    make("path", {
      d: `M${x},${y - 7}L${x + 7},${y}L${x},${y + 7}L${x - 7},${y}Z`,
      style: `fill:${colour("paper")};stroke:${colour("ink")};stroke-width:1.5`,
      class: "sign",
    }),
  reward: (x, y) =>
    make("circle", { cx: x, cy: y, r: 10, fill: colour("second"), stroke: "none" }),
};

/** Where each node stands: causes on the left, the next state and the reward on the right. */
function placeNodes(graph, edges, wide) {
  const row = wide < 560 ? 23 : 26,
    side = Math.min(wide * 0.4, 250),
    parents = edges.filter((edge) => edge.toReward).map((edge) => edge.from),
    only = drawing.node === "r" && parents.length > 0,
    place = {};
  let y = 34,
    first = y;
  const put = (key) => {
    place[key] = [side, y];
    y += row;
  };
  if (only) parents.forEach(put);
  else {
    for (const i of graph.shown_states) {
      place[`n${i}`] = [wide - side, y];
      put(`s${i}`);
    }
    first = y += row;
    for (const i of graph.shown_actions) put(`a${i}`);
    if (graph.reward.terminated !== null) put("t");
  }
  place.r = [wide - (only ? Math.min(side, 110) : side), (first + Math.max(first, y - row)) / 2];
  return { place, only, side, height: Math.max(y, place.r[1] + row) + 4 };
}

function drawGraph(element) {
  const graph = payload.graph,
    wide = element.clientWidth || 800,
    all = listEdges(graph),
    { place, only, side, height } = placeNodes(graph, all, wide),
    letters = Math.floor((side - 18) / (wide < 560 ? 6.2 : 7.1));
  const svg = make("svg", { viewBox: `0 0 ${wide} ${height}`, "aria-hidden": "true" });
  const focus = drawing.hover || drawing.node;
  // A dimension's own focus covers it both now and next.
  const same = focus.startsWith("s") ? [focus, `n${focus.slice(1)}`] : [focus];
  const seen = focus
    ? all.filter(
        (edge) => (same.includes(edge.from) || same.includes(edge.to)) && (!only || edge.toReward),
      )
    : all.slice(0, drawing.edges);
  const lit = new Set(seen.flatMap((edge) => [edge.from, edge.to]));
  for (const edge of [...seen].reverse()) svg.append(drawEdge(edge, place, focus));
  const strengths = new Map(
    all.filter((edge) => edge.toReward).map((edge) => [edge.from, edge.strength]),
  );
  const node = (key, name, shape, anchor) => {
    const [x, y] = place[key],
      away = focus && !lit.has(key) && !same.includes(key),
      told = only && strengths.has(key) ? `  ${share(strengths.get(key))}` : "";
    const group = make("g", { class: `node${away ? " away" : ""}` });
    group.append(
      shape(x, y),
      make(
        "text",
        {
          x: anchor === "end" ? x - 13 : x + (key === "r" ? 18 : 13),
          y: y + 4,
          "text-anchor": anchor === "end" ? "end" : "start",
        },
        clip(name, letters - told.length) + told,
      ),
      make("title", {}, name),
    );
    listenNode(group, key.startsWith("n") ? `s${key.slice(1)}` : key, element);
    svg.append(group);
  };
  svg.append(make("text", { class: "head", x: side, y: 14, "text-anchor": "end" }, "this step"));
  if (!only) svg.append(make("text", { class: "head", x: wide - side, y: 14 }, "next step"));
  for (const key of Object.keys(place)) {
    const i = Number(key.slice(1));
    if (key === "r") node(key, "reward", signs.reward, "start");
    else if (key === "t") node(key, "terminated", signs.diamond, "end");
    else if (key.startsWith("a")) node(key, graph.actions[i], signs.square, "end");
    else
      node(
        key,
        graph.states[i],
        signs.circle(graph.compact[i]),
        key.startsWith("s") ? "end" : "start",
      );
  }
  svg.addEventListener("pointerleave", () => {
    if (drawing.hover) {
      drawing.hover = "";
      drawGraph(element);
    }
  });
  element.replaceChildren(svg, listSigns(graph, `${seen.length} of ${all.length} lines shown`));
}

function drawEdge(edge, place, focus) {
  const [x0, y0] = place[edge.from],
    [x1, y1] = place[edge.to],
    bend = (x1 - x0) * 0.45,
    gap = edge.toReward ? 15 : 9,
    tint = edge.toReward ? colour("second") : edge.strong ? colour("accent") : colour("faint");
  const path = make("path", {
    d: `M${x0 + 9},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1 - gap},${y1}`,
    stroke: tint,
    // One scale for all lines: the thickness grows with the strength.
    "stroke-width": (0.6 + 9.4 * edge.strength).toFixed(2),
    "stroke-opacity": edge.toReward ? 0.85 : focus ? 0.7 : 0.3 + 0.4 * edge.strength,
  });
  path.append(make("title", {}, share(edge.strength)));
  return path;
}

function listenNode(group, key, element) {
  group.addEventListener("pointerenter", (event) => {
    if (event.pointerType === "mouse" && drawing.hover !== key) {
      drawing.hover = key;
      drawGraph(element);
    }
  });
  group.addEventListener("click", () => {
    const select = find("#node");
    drawing.hover = "";
    select.value = drawing.node === key ? "" : key;
    select.dispatchEvent(new Event("change"));
  });
}

function listSigns(graph, count) {
  const key = document.createElement("ul");
  key.className = "key";
  const entry = (shape, text) => {
    const item = document.createElement("li"),
      sign = make("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
    sign.append(shape);
    item.append(sign, text);
    return item;
  };
  key.append(
    entry(signs.circle(1)(8, 8), "state in the compact state"),
    entry(signs.circle(0)(8, 8), "other state"),
    ...(graph.actions.length ? [entry(signs.square(8, 8), "action")] : []),
    ...(graph.reward.terminated !== null ? [entry(signs.diamond(8, 8), "the episode terminated")] : []),
    entry(signs.reward(8, 8), "reward"),
  );
  const hidden =
    graph.states.length -
    graph.shown_states.length +
    graph.actions.length -
    graph.shown_actions.length;
  key.append(
    Object.assign(document.createElement("li"), {
      textContent: hidden
        ? `${count}; ${hidden} weaker dimensions are in the heat maps only`
        : count,
    }),
  );
  return key;
}
