// The four masks of a graph as one heat map.
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
    ...join(masks.stateState, masks.stateReward),
    effects.map(() => null),
    ...join(masks.actionState, masks.actionReward),
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
    names.map((name, i) => [brief(name, 24), from + i + half]).filter((_, i) => i % every === 0);
  const places = (ticks, range, tickangle) =>
    axis("", {
      tickvals: ticks.map(([, place]) => place),
      ticktext: ticks.map(([name]) => name),
      tickangle,
      range,
      showgrid: false,
      showline: false,
      ticks: "",
      zeroline: false,
      automargin: false,
      fixedrange: true,
    });
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
