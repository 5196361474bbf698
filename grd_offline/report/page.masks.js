// The four masks of a graph as heat maps.
/** The four masks in one picture: causes are rows, effects are columns, the reward stands apart. */
function drawMaps(element, graph, masks, strengths) {
  const states = graph.states.length,
    actions = graph.actions.length;
  const names = [...graph.states, ...graph.actions].map((name) => name.length),
    left = Math.min(170, 26 + 6.2 * Math.max(...names));
  const room = (element.closest(".scroll") ?? element).clientWidth || 700;
  const units = states + 2.6,
    cell = Math.max(states > 60 ? 4 : 13, Math.min(30, (room - left - 16) / units));
  const bottom = Math.min(
      150,
      22 + 6.2 * Math.max(...graph.states.map((name) => name.length), 6),
    ),
    top = 26;
  const width = left + units * cell + 16,
    down = states + actions + 1,
    height = down * cell + bottom + top;
  const colours = [
    [0, fade(colour("accent"), 0.12)],
    [1, colour("accent")],
  ];
  const block = (rows, causes, effects, x, y) => ({
    type: "heatmap",
    x: effects.map((_, i) => i),
    y: causes.map((_, i) => i),
    xaxis: x,
    yaxis: y,
    xgap: cell > 8 ? 1 : 0,
    ygap: cell > 8 ? 1 : 0,
    z: rows,
    zmin: 0,
    zmax: 1,
    colorscale: strengths
      ? colours
      : [
          [0, colour("accent")],
          [1, colour("accent")],
        ],
    showscale: false,
    hoverongaps: false,
    text: rows.map((row, i) =>
      row.map(
        (strength, j) =>
          `${plain(causes[i])} → ${plain(effects[j])}${strengths ? `: ${share(strength)}` : ""}`,
      ),
    ),
    hovertemplate: "%{text}<extra></extra>",
  });
  const every = Math.ceil(14 / cell),
    ticks = (list, more) => ({
      tickmode: "array",
      tickvals: list.map((_, i) => i).filter((i) => i % every === 0),
      ticktext: list.map((name) => plain(clip(name, 24))).filter((_, i) => i % every === 0),
      showgrid: false,
      zeroline: false,
      ticks: "",
      automargin: false,
      fixedrange: true,
      ...more,
    });
  const split = (down - states) / down,
    edge = states / units;
  element.style.width = `${width}px`;
  element.style.height = `${height}px`;
  const reward = ["reward"],
    frame = {
      type: "rect",
      xref: "paper",
      yref: "paper",
      line: { width: 0 },
      fillcolor: colour("soft"),
      layer: "below",
    };
  const across = [
      [0, edge],
      [1 - 1.6 / units, 1],
    ],
    downs = [
      [split, 1],
      [0, actions / down],
    ];
  Plotly.react(
    element,
    [
      block(masks.stateState, graph.states, graph.states, "x", "y"),
      block(
        masks.stateReward.map((one) => [one]),
        graph.states,
        reward,
        "x2",
        "y",
      ),
      block(masks.actionState, graph.actions, graph.states, "x", "y2"),
      block(
        masks.actionReward.map((one) => [one]),
        graph.actions,
        reward,
        "x2",
        "y2",
      ),
    ],
    layout({
      width,
      height,
      margin: { l: left, r: 16, t: top, b: bottom },
      dragmode: false,
      annotations: [
        ["→ next state", across[0][0], "left"],
        ["→ reward", across[1][1], "right"],
      ].map(([text, x, xanchor]) => ({
        text,
        x,
        xanchor,
        y: 1,
        yanchor: "bottom",
        yshift: 4,
        xref: "paper",
        yref: "paper",
        showarrow: false,
        font: { size: 12, color: colour("muted") },
      })),
      shapes: across.flatMap(([x0, x1]) =>
        downs.map(([y0, y1]) => ({ ...frame, x0, x1, y0, y1 })),
      ),
      xaxis: axis(
        ticks(graph.states, {
          domain: across[0],
          anchor: "y2",
          range: [-0.5, states - 0.5],
          tickangle: -90,
        }),
      ),
      xaxis2: axis(
        ticks(reward, { domain: across[1], anchor: "y2", range: [-0.5, 0.5], tickangle: -90 }),
      ),
      yaxis: axis(ticks(graph.states, { domain: downs[0], range: [states - 0.5, -0.5] })),
      yaxis2: axis(ticks(graph.actions, { domain: downs[1], range: [actions - 0.5, -0.5] })),
    }),
    { ...config, responsive: false, displayModeBar: false },
  );
}
