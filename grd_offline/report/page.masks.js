// The four masks of a graph as heat maps.
/** The four masks in one picture: causes are rows, effects are columns, the reward stands apart. */
function drawMaps(element, graph, masks, hasStrengths) {
  const { states, actions } = graph;
  const longest = (names, least = 0) => 6.2 * Math.max(least, ...names.map((name) => name.length));
  const left = Math.min(170, 26 + longest([...states, ...actions]));
  const room = (element.closest(".scroll") ?? element).clientWidth || 700;
  const units = states.length + 2.6;
  const cell = clamp((room - left - 16) / units, states.length > 60 ? 4 : 13, 30);
  const [top, bottom] = [26, Math.min(150, 22 + longest(states, 6))];
  const width = left + units * cell + 16;
  const down = states.length + actions.length + 1;
  const every = Math.ceil(14 / cell);
  const gap = cell > 8 ? 1 : 0;
  const block = (rows, causes, effects, x, y) => ({
    type: "heatmap",
    x: effects.map((_, i) => i),
    y: causes.map((_, i) => i),
    xaxis: x,
    yaxis: y,
    xgap: gap,
    ygap: gap,
    z: rows,
    zmin: 0,
    zmax: 1,
    colorscale: [
      [0, hasStrengths ? fade(colour("accent"), 0.12) : colour("accent")],
      [1, colour("accent")],
    ],
    showscale: false,
    hoverongaps: false,
    text: rows.map((row, i) =>
      row.map((strength, j) => {
        const edge = `${plain(causes[i])} → ${plain(effects[j])}`;
        return hasStrengths ? `${edge}: ${share(strength)}` : edge;
      }),
    ),
    ...hover("%{text}"),
  });
  const places = (names, domain, more) => {
    const shown = names.map((name, place) => [name, place]).filter(([, i]) => i % every === 0);
    return nameAxis([], 11, {
      tickvals: shown.map(([, place]) => place),
      ticktext: shown.map(([name]) => brief(name, 24)),
      tickfont: font(11),
      ticklabelstandoff: 0,
      automargin: false,
      fixedrange: true,
      domain,
      ...more,
    });
  };
  const across = (names, domain) =>
    places(names, domain, { anchor: "y2", range: [-0.5, names.length - 0.5], tickangle: -90 });
  const along = (names, domain) => places(names, domain, { range: [names.length - 0.5, -0.5] });
  const reward = ["reward"];
  const columns = [
    [0, states.length / units],
    [1 - 1.6 / units, 1],
  ];
  const rows = [
    [1 - states.length / down, 1],
    [0, actions.length / down],
  ];
  const paper = { xref: "paper", yref: "paper" };
  const ground = {
    type: "rect",
    ...paper,
    line: { width: 0 },
    fillcolor: colour("soft"),
    layer: "below",
  };
  const head = (text, x, xanchor) =>
    mark(text, { x, xanchor, y: 1, yanchor: "bottom", yshift: 4, ...paper });
  element.style.width = `${width}px`;
  const traces = [
    block(masks.stateState, states, states, "x", "y"),
    block(chunk(masks.stateReward, 1), states, reward, "x2", "y"),
    block(masks.actionState, actions, states, "x", "y2"),
    block(chunk(masks.actionReward, 1), actions, reward, "x2", "y2"),
  ];
  const more = {
    width,
    height: down * cell + bottom + top,
    margin: { l: left, r: 16, t: top, b: bottom },
    dragmode: false,
    annotations: [head("→ next state", 0, "left"), head("→ reward", 1, "right")],
    shapes: columns.flatMap(([x0, x1]) => rows.map(([y0, y1]) => ({ ...ground, x0, x1, y0, y1 }))),
    xaxis: across(states, columns[0]),
    xaxis2: across(reward, columns[1]),
    yaxis: along(states, rows[0]),
    yaxis2: along(actions, rows[1]),
  };
  show(element, traces, more, { ...config, responsive: false, displayModeBar: false });
}
