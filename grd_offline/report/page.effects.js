// What each effect adds to the reward.
function drawEffect(element) {
  const effect = payload.effects[element.dataset.index];
  const grids = effect.grids.map(unpack),
    mean = unpack(effect.mean),
    std = unpack(effect.std),
    few = effect.ticks.filter((ticks) => ticks).length;
  if (grids.length === 1 && few) return drawBars(element, effect, mean, std);
  if (grids.length === 2 && few === 1) return drawCurves(element, effect, grids, mean, std);
  if (grids.length === 1) {
    const tint = colour("accent"),
      low = mean.map((m, i) => m - Z90 * std[i]),
      high = mean.map((m, i) => m + Z90 * std[i]);
    const bars = [...toBytes(effect.density)],
      size = (grids[0][grids[0].length - 1] - grids[0][0]) / bars.length;
    show(
      element,
      [
        {
          type: "bar",
          x: bars.map((_, i) => grids[0][0] + (i + 0.5) * size),
          y: bars,
          width: size,
          yaxis: "y2",
          marker: { color: fade(colour("muted"), 0.3), line: { width: 0 } },
          hoverinfo: "skip",
        },
        ...band(grids[0], low, high, tint),
        line(grids[0], mean, tint, {
          name: "",
          line: { color: tint, width: 2 },
          customdata: std.map((s) => Z90 * s),
          hovertemplate: "at %{x:.3g}: %{y:.3g} ± %{customdata:.2g}<extra></extra>",
        }),
      ],
      {
        xaxis: axis({ title: plain(clip(effect.inputs[0], 36)), nticks: 6, zeroline: false, anchor: "y2" }),
        yaxis: axis({ title: `adds to the ${payload.reward}`, nticks: 5, domain: [0.16, 1] }),
        yaxis2: { domain: [0, 0.13], range: [0, 255], visible: false, fixedrange: true },
        margin: { l: 54, r: 6, t: 6, b: 38 },
      },
    );
    return;
  }
  const slider = find(".slice", element.parentElement),
    depth = slider ? Number(slider.value) : null;
  const cut = (values) =>
    depth === null ? values : values.map((plane) => plane.map((row) => row[depth]));
  const surface = cut(mean),
    spread = cut(std),
    most = Math.max(...mean.flat(2).map(Math.abs)) || 1;
  const points = unpack(effect.points),
    third = slider ? grids[2][depth] : 0,
    near = slider ? (grids[2][1] - grids[2][0]) / 2 : Infinity,
    dots = points.filter((point) => !slider || Math.abs(point[2] - third) <= near);
  // Rows of a heat map go up: the first input runs across.
  const turn = (rows) => rows[0].map((_, j) => rows.map((row) => row[j]));
  show(
    element,
    [
      {
        type: "heatmap",
        x: few ? grids[0].map((_, place) => place) : grids[0],
        y: few ? grids[1].map((_, place) => place) : grids[1],
        z: turn(surface),
        ...(few ? { xgap: 3, ygap: 3 } : {}),
        customdata: turn(spread.map((row) => row.map((s) => Z90 * s))),
        zmin: -most,
        zmax: most,
        zsmooth: few ? false : "best",
        colorscale: diverging(),
        colorbar: {
          thickness: 8,
          outlinewidth: 0,
          tickfont: { size: 10, color: colour("muted") },
          nticks: 5,
          title: {
            text: `adds to the ${payload.reward}`,
            side: "right",
            font: { size: 11, color: colour("muted") },
          },
        },
        hovertemplate: "%{x:.3g}, %{y:.3g}: %{z:.3g} ± %{customdata:.2g}<extra></extra>",
      },
      ...(few
        ? []
        : [
            {
              type: "scatter",
              mode: "markers",
              x: dots.map((point) => point[0]),
              y: dots.map((point) => point[1]),
              marker: { size: 2.5, color: fade(colour("ink"), 0.35) },
              hoverinfo: "skip",
            },
          ]),
    ],
    {
      xaxis: axis({ title: plain(clip(effect.inputs[0], 30)), nticks: 5, ...name(effect.ticks[0]) }),
      yaxis: axis({ title: plain(clip(effect.inputs[1], 20)), nticks: 5, ...name(effect.ticks[1]) }),
      margin: { l: 46, r: 4, t: 6, b: 38 },
    },
  );
  if (slider && !slider.dataset.listens) {
    slider.dataset.listens = "yes";
    slider.addEventListener("input", () => drawEffect(element));
  }
}

/** An axis whose places have names: those of an input with few values. */
const name = (ticks) =>
  ticks
    ? { tickvals: ticks.map((_, place) => place), ticktext: ticks.map((tick) => plain(clip(tick, 14))), zeroline: false }
    : {};

/** An input with few values: one bar for each of them. */
function drawBars(element, effect, mean, std) {
  const ticks = effect.ticks[0],
    places = ticks.map((_, place) => place),
    tint = colour("accent");
  show(
    element,
    [
      {
        type: "bar",
        x: places,
        y: [...toBytes(effect.density)],
        width: 0.5,
        yaxis: "y2",
        marker: { color: fade(colour("muted"), 0.3), line: { width: 0 } },
        hoverinfo: "skip",
      },
      {
        type: "bar",
        x: places,
        y: mean,
        width: 0.5,
        marker: { color: fade(tint, 0.75) },
        error_y: { type: "data", array: std.map((s) => Z90 * s), color: colour("ink"), thickness: 1.2 },
        text: ticks.map(plain),
        textposition: "none",
        customdata: std.map((s) => Z90 * s),
        hovertemplate: "%{text}: %{y:.3g} ± %{customdata:.2g}<extra></extra>",
      },
    ],
    {
      xaxis: axis({
        title: plain(clip(effect.inputs[0], 36)),
        anchor: "y2",
        range: [-0.6, ticks.length - 0.4],
        showgrid: false,
        ...name(ticks),
      }),
      yaxis: axis({ title: `adds to the ${payload.reward}`, nticks: 5, domain: [0.16, 1] }),
      yaxis2: { domain: [0, 0.13], range: [0, 255], visible: false, fixedrange: true },
      margin: { l: 54, r: 6, t: 6, b: 38 },
    },
  );
}

/** Two inputs of which one has few values: a curve over the other one for each of them. */
function drawCurves(element, effect, grids, mean, std) {
  const across = effect.ticks[0] ? 1 : 0,
    other = 1 - across,
    cut = (rows, place) => (across ? rows[place] : rows.map((row) => row[place]));
  const traces = effect.ticks[other].flatMap((tick, place) => {
    const tint = colour(`group${place}`),
      at = cut(mean, place),
      half = cut(std, place).map((s) => Z90 * s);
    return [
      ...band(grids[across], at.map((m, i) => m - half[i]), at.map((m, i) => m + half[i]), tint, {
        showlegend: false,
      }),
      line(grids[across], at, tint, {
        // A label of a category says by itself what it is.
        name: plain(Number.isNaN(Number(tick)) ? clip(tick, 24) : `${clip(effect.inputs[other], 18)} ${tick}`),
        line: { color: tint, width: 2 },
        customdata: half,
        hovertemplate: "at %{x:.3g}: %{y:.3g} ± %{customdata:.2g}<extra></extra>",
      }),
    ];
  });
  show(element, traces, {
    showlegend: true,
    legend: { ...topLegend(), font: { size: 11, color: colour("muted") } },
    xaxis: axis({ title: plain(clip(effect.inputs[across], 36)), nticks: 6, zeroline: false }),
    yaxis: axis({ title: `adds to the ${payload.reward}`, nticks: 5 }),
    margin: { l: 54, r: 6, t: 6, b: 38 },
  });
}

/** From blue through the page's own colour to vermillion. */
const diverging = () => [
  [0, colour("accent")],
  [0.5, colour("soft")],
  [1, colour("second")],
];
