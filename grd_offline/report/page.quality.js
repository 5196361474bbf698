// How good a decomposition is, and how much of the variation comes from each input.
/** The line on which both axes agree. */
const diagonal = (ends) =>
  line(ends, ends, colour("faint"), { width: 1, dash: "dash" }, "", { showlegend: false });

drawers.returns = (element) => {
  const { observed, found, episodes, held_out: held } = payload.returns;
  const { singular } = payload.outcome;
  const all = [observed, found, ...(held ? [held.observed, held.predicted] : [])].flatMap(unpack);
  const range = frame(all, 0.04);
  const told = "episode %{customdata}: observed %{x:.5g}, found %{y:.5g}";
  const grey = { size: 5, color: fade(colour("muted"), 0.4) };
  const used = { name: "used in the fit", customdata: episodes };
  const traces = [diagonal(range), dots(unpack(observed), unpack(found), grey, told, used)];
  if (held) {
    const look = { size: 6, color: colour("accent") };
    const told = "held out: observed %{x:.5g}, predicted %{y:.5g} ± %{customdata:.2g}";
    const array = halve(unpack(held.std));
    const error_y = { type: "data", array, color: look.color, thickness: 1, width: 0 };
    const more = { name: "held out", error_y, customdata: array };
    traces.push(dots(unpack(held.observed), unpack(held.predicted), look, told, more));
  }
  show(element, traces, {
    xaxis: axis(`observed ${singular}`, { range, zeroline: false }),
    yaxis: axis(`predicted ${singular}`, { range, zeroline: false }),
    margin: { l: 60, r: 10, t: 30, b: 44 },
    showlegend: Boolean(held),
  });
};

drawers.calibration = (element) => {
  const { levels, held_out_returns: returns, true_rewards: rewards } = payload.calibration;
  const percent = (values) => [0, ...values.map((value) => 100 * value)];
  const curve = (values, name, tint, symbol) => {
    const told = `${name}: intervals of %{x} % hold %{y:.1f} %`;
    const more = { mode: "lines+markers", name, marker: { symbol, size: 7, color: tint } };
    return line(percent(levels), percent(values), tint, 1.6, told, more);
  };
  const traces = [diagonal([0, 100])];
  if (returns)
    traces.push(curve(returns, `held-out ${payload.outcome.plural}`, colour("accent"), "circle"));
  if (rewards) traces.push(curve(rewards, "true step rewards", colour("second"), "square"));
  show(element, traces, {
    xaxis: axis("level of the interval, %", { range: [0, 101] }),
    yaxis: axis("values inside the interval, %", { range: [0, 104] }),
    margin: { l: 52, r: 10, t: 30, b: 44 },
    showlegend: true,
  });
};

drawers.pinned = (element) => {
  const entries = Object.entries(payload.pinned)
    .sort((a, b) => b[1] - a[1])
    .slice(0, 30)
    .reverse();
  const [names, known] = [0, 1].map((part) => entries.map((entry) => entry[part]));
  const tints = known.map((part) => colour(part < 0.5 ? "second" : "accent"));
  const parts = known.map((part) => 100 * part);
  show(element, [bars(parts, names, tints, "%{text}: %{x:.2f} %")], {
    height: entries.length * 26 + 54,
    xaxis: axis("part of the effect that is known, %", { range: [0, 101] }),
    yaxis: nameAxis(names, 11, element.clientWidth < 560 ? 18 : 40),
    margin: { l: 40, r: 14, t: 4, b: 40 },
    bargap: 0.45,
  });
};

drawers.importance = (element) => {
  const found = [...payload.importance].reverse();
  const narrow = element.clientWidth < 560;
  const names = found.map((one) => one.name);
  const joint = found.some((one) => one.joint > 0);
  const part = (key, name, tint) => {
    const shares = found.map((one) => 100 * one[key]);
    const more = { name, hoverlabel: { bordercolor: colour("accent") } };
    return bars(shares, names, tint, `%{text}, ${name}: %{x:.2f} %`, more);
  };
  const together = part("joint", "together with others", fade(colour("accent"), 0.4));
  show(element, [part("alone", "alone", colour("accent")), ...(joint ? [together] : [])], {
    height: found.length * 30 + (joint ? 86 : 58),
    barmode: "stack",
    bargap: 0.35,
    margin: { l: 40, r: 64, t: joint ? 30 : 6, b: 44 },
    showlegend: joint,
    xaxis: axis("share of the reward's variation, %", { range: [0, 100] }),
    yaxis: nameAxis(names, narrow ? 12 : 14, narrow ? 16 : 34),
    annotations: found.map(({ alone, joint }, y) => {
      const total = alone + joint;
      return beside(share(total), 100 * Math.min(1, total), y, 6, narrow ? 12 : 14);
    }),
  });
};
