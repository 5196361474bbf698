// What each effect adds to the reward.
const bottom = { l: 54, r: 6, t: 6, b: 38 };
const atPlace = "at %{x:.3g}: %{y:.3g} ± %{customdata:.2g}";
const addsTo = `adds to the ${payload.reward}`;
/** The axis of an input. Its values have names if they are few. */
const inputAxis = (name, letters, ticks, more) =>
  axis(brief(name, letters), { ...more, ...(ticks && nameTicks(ticks, 14)) });

drawers.effect = (element) => {
  const effect = payload.effects[element.dataset.index];
  const grids = effect.grids.map(unpack);
  const [mean, std] = [effect.mean, effect.std].map(unpack);
  const few = effect.ticks.filter((ticks) => ticks).length;
  if (grids.length === 1) drawCurve(element, effect, grids[0], mean, halve(std));
  else if (grids.length === 2 && few === 1) drawCurves(element, effect, grids, mean, std);
  else drawSurface(element, effect, grids, mean, std, few > 0);
};

/** One input: a curve above the density of the data, or a bar for each of a few values. */
function drawCurve(element, effect, grid, mean, half) {
  const [ticks] = effect.ticks;
  const tint = colour("accent");
  const density = [...toBytes(effect.density)];
  const size = ticks ? 1 : (grid.at(-1) - grid[0]) / density.length;
  const data = {
    type: "bar",
    x: density.map((_, i) => (ticks ? i : grid[0] + (i + 0.5) * size)),
    y: density,
    width: ticks ? 0.5 : size,
    yaxis: "y2",
    marker: { color: fade(colour("muted"), 0.3), line: { width: 0 } },
    hoverinfo: "skip",
  };
  const told = "%{text}: %{y:.3g} ± %{customdata:.2g}";
  const columns = () => ({
    ...bars(mean, ticks, fade(tint, 0.75), told, { orientation: "v", customdata: half }),
    x: mean.map((_, place) => place),
    y: mean,
    width: 0.5,
    error_y: { type: "data", array: half, color: colour("ink"), thickness: 1.2 },
  });
  const curve = () => banded(grid, mean, half, tint, 2, atPlace, { name: "" });
  const few = ticks && { range: [-0.6, ticks.length - 0.4], showgrid: false };
  const across = { anchor: "y2", ...(few ?? { nticks: 6, zeroline: false }) };
  show(element, [data, ...(ticks ? [columns()] : curve())], {
    xaxis: inputAxis(effect.inputs[0], 36, ticks, across),
    yaxis: axis(addsTo, { nticks: 5, domain: [0.16, 1] }),
    yaxis2: { domain: [0, 0.13], range: [0, 255], visible: false, fixedrange: true },
    margin: bottom,
  });
}

/** Two inputs of which one has few values: a curve over the other one for each of them. */
function drawCurves(element, effect, grids, mean, std) {
  const across = effect.ticks[0] ? 1 : 0;
  const other = 1 - across;
  const cut = (rows, place) => (across ? rows[place] : rows.map((row) => row[place]));
  const traces = effect.ticks[other].flatMap((tick, place) => {
    // A label of a category says by itself what it is.
    const isLabel = Number.isNaN(Number(tick));
    const name = isLabel ? clip(tick, 24) : `${clip(effect.inputs[other], 18)} ${tick}`;
    const half = halve(cut(std, place));
    const tint = colour(`group${place}`);
    const around = { showlegend: false };
    const more = { name: plain(name) };
    return banded(grids[across], cut(mean, place), half, tint, 2, atPlace, more, around);
  });
  show(element, traces, {
    showlegend: true,
    legend: { ...layout().legend, font: font(11) },
    xaxis: axis(brief(effect.inputs[across], 36), { nticks: 6, zeroline: false }),
    yaxis: axis(addsTo, { nticks: 5 }),
    margin: bottom,
  });
}

/** Two inputs, or three of which a slider chooses one. */
function drawSurface(element, effect, grids, mean, std, few) {
  const slider = find(".slice", element.parentElement);
  const depth = slider && Number(slider.value);
  // Rows of a heat map go up: the first input runs across.
  const turn = (rows) => rows[0].map((_, j) => rows.map((row) => row[j]));
  const cut = (values) => turn(slider ? values.map((plane) => turn(plane)[depth]) : values);
  const most = Math.max(...mean.flat(2).map(Math.abs)) || 1;
  const [x, y] = grids.map((grid) => (few ? grid.map((_, place) => place) : grid));
  const isNear = (point) => Math.abs(point[2] - grids[2][depth]) <= (grids[2][1] - grids[2][0]) / 2;
  const near = unpack(effect.points).filter((point) => !slider || isNear(point));
  const [acrossData, upData] = [0, 1].map((part) => near.map((point) => point[part]));
  const data = dots(acrossData, upData, { size: 2.5, color: fade(colour("ink"), 0.35) }, "");
  const surface = {
    type: "heatmap",
    x,
    y,
    z: cut(mean),
    ...(few ? { xgap: 3, ygap: 3 } : {}),
    customdata: cut(std).map(halve),
    zmin: -most,
    zmax: most,
    zsmooth: few ? false : "best",
    // From blue through the page's own colour to vermillion.
    colorscale: ["accent", "soft", "second"].map((name, place) => [place / 2, colour(name)]),
    colorbar: {
      thickness: 8,
      outlinewidth: 0,
      tickfont: font(10),
      nticks: 5,
      title: { text: addsTo, side: "right", font: font(11) },
    },
    ...hover("%{x:.3g}, %{y:.3g}: %{z:.3g} ± %{customdata:.2g}"),
  };
  show(element, [surface, ...(few ? [] : [data])], {
    xaxis: inputAxis(effect.inputs[0], 30, effect.ticks[0], { nticks: 5 }),
    yaxis: inputAxis(effect.inputs[1], 20, effect.ticks[1], { nticks: 5 }),
    margin: { l: 46, r: 4, t: 6, b: 38 },
  });
  if (slider) slider.oninput = () => draw(element);
}
