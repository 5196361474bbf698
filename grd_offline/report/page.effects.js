// What each effect adds to the reward.
function drawEffect(element) {
  const effect = payload.effects[element.dataset.index];
  const grids = effect.grids.map(unpack),
    mean = unpack(effect.mean),
    std = unpack(effect.std);
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
        x: grids[0],
        y: grids[1],
        z: turn(surface),
        customdata: turn(spread.map((row) => row.map((s) => Z90 * s))),
        zmin: -most,
        zmax: most,
        zsmooth: "best",
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
      {
        type: "scatter",
        mode: "markers",
        x: dots.map((point) => point[0]),
        y: dots.map((point) => point[1]),
        marker: { size: 2.5, color: fade(colour("ink"), 0.35) },
        hoverinfo: "skip",
      },
    ],
    {
      xaxis: axis({ title: plain(clip(effect.inputs[0], 30)), nticks: 5 }),
      yaxis: axis({ title: plain(clip(effect.inputs[1], 20)), nticks: 5 }),
      margin: { l: 46, r: 4, t: 6, b: 38 },
    },
  );
  if (slider && !slider.dataset.listens) {
    slider.dataset.listens = "yes";
    slider.addEventListener("input", () => drawEffect(element));
  }
}

/** From blue through the page's own colour to vermillion. */
const diverging = () => [
  [0, colour("accent")],
  [0.5, colour("soft")],
  [1, colour("second")],
];
