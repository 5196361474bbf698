// How good a decomposition is.
function drawReturns(element) {
  const { observed, found, episodes, held_out: held } = payload.returns;
  const x = unpack(observed),
    y = unpack(found),
    traces = [];
  const every = held
    ? [...x, ...y, ...unpack(held.observed), ...unpack(held.predicted)]
    : [...x, ...y];
  const low = Math.min(...every),
    high = Math.max(...every),
    pad = 0.04 * (high - low || 1),
    ends = [low - pad, high + pad];
  traces.push(
    line(ends, ends, colour("faint"), {
      hoverinfo: "skip",
      showlegend: false,
      line: { color: colour("faint"), width: 1, dash: "dash" },
    }),
  );
  traces.push({
    x,
    y,
    type: "scatter",
    mode: "markers",
    name: "used in the fit",
    customdata: episodes,
    marker: { size: 5, color: fade(colour("muted"), 0.4) },
    hovertemplate: "episode %{customdata}: observed %{x:.5g}, found %{y:.5g}<extra></extra>",
  });
  if (held) {
    const std = unpack(held.std).map((s) => Z90 * s);
    traces.push({
      x: unpack(held.observed),
      y: unpack(held.predicted),
      type: "scatter",
      mode: "markers",
      name: "held out",
      marker: { size: 6, color: colour("accent") },
      error_y: { type: "data", array: std, color: colour("accent"), thickness: 1, width: 0 },
      customdata: std,
      hovertemplate:
        "held out: observed %{x:.5g}, predicted %{y:.5g} ± %{customdata:.2g}<extra></extra>",
    });
  }
  show(element, traces, {
    xaxis: axis({ title: `observed ${payload.outcome.singular}`, range: ends, zeroline: false }),
    yaxis: axis({ title: `predicted ${payload.outcome.singular}`, range: ends, zeroline: false }),
    margin: { l: 60, r: 10, t: 30, b: 44 },
    showlegend: Boolean(held),
    legend: topLegend(),
  });
}

function drawCalibration(element) {
  const { levels, held_out_returns: returns, true_rewards: rewards } = payload.calibration;
  const x = [0, ...levels.map((level) => 100 * level)],
    traces = [
      line([0, 100], [0, 100], colour("faint"), {
        hoverinfo: "skip",
        showlegend: false,
        line: { color: colour("faint"), width: 1, dash: "dash" },
      }),
    ];
  const add = (values, name, tint, symbol) =>
    values &&
    traces.push({
      ...line(x, [0, ...values.map((value) => 100 * value)], tint),
      mode: "lines+markers",
      name,
      marker: { symbol, size: 7, color: tint },
      hovertemplate: `${name}: intervals of %{x} % hold %{y:.1f} %<extra></extra>`,
    });
  add(returns, `held-out ${payload.outcome.plural}`, colour("accent"), "circle");
  add(rewards, "true step rewards", colour("second"), "square");
  show(element, traces, {
    xaxis: axis({ title: "level of the interval, %", range: [0, 101] }),
    yaxis: axis({ title: "values inside the interval, %", range: [0, 104] }),
    margin: { l: 52, r: 10, t: 30, b: 44 },
    showlegend: true,
    legend: topLegend(),
  });
}

function drawPinned(element) {
  const entries = Object.entries(payload.pinned)
    .sort((a, b) => b[1] - a[1])
    .slice(0, 30)
    .reverse();
  const letters = element.clientWidth < 560 ? 18 : 40;
  element.style.height = `${entries.length * 26 + 54}px`;
  show(
    element,
    [
      {
        type: "bar",
        orientation: "h",
        x: entries.map((e) => 100 * e[1]),
        y: entries.map((_, i) => i),
        text: entries.map((e) => plain(e[0])),
        textposition: "none",
        marker: { color: entries.map((e) => (e[1] < 0.5 ? colour("second") : colour("accent"))) },
        hovertemplate: "%{text}: %{x:.2f} %<extra></extra>",
      },
    ],
    {
      xaxis: axis({ title: "part of the effect that is known, %", range: [0, 101] }),
      margin: { l: 40, r: 14, t: 4, b: 40 },
      bargap: 0.45,
      yaxis: axis({
        tickvals: entries.map((_, i) => i),
        ticktext: entries.map((e) => plain(clip(e[0], letters))),
        showgrid: false,
        ticks: "",
      }),
    },
  );
}
