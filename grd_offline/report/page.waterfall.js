// What each effect adds to the reward of the chosen step.
/** The values of the inputs of one effect, as they follow its name. */
function readInputs(track, inputs, at) {
  const { series } = payload.viewer;
  const read = (name) => {
    const value = track[`input${series.inputs.indexOf(name)}`].y[at];
    const isFlag = series.labels.includes(name) && Math.abs(value - Math.round(value)) < 1e-4;
    return isFlag ? (Math.round(value) === 1 ? "yes" : "no") : tell(value);
  };
  if (!inputs.length) return "";
  if (inputs.length === 1 && !series.labels.includes(inputs[0])) return ` = ${read(inputs[0])}`;
  return `: ${inputs.map(read).join(", ")}`;
}

/** The step whose terms are nearest to the cursor, and its parts from the mean to the reward. */
function splitReward() {
  const { track, step, episode } = viewer;
  const { constant, series } = payload.viewer;
  const at = nearest(track.term0.x, step);
  const bare = { given: "", from: 0 };
  const parts = [{ ...bare, name: "mean reward", to: constant, told: tell(constant) }];
  let sum = constant;
  series.terms.forEach((name, i) => {
    const value = track[`term${i}`].y[at];
    // Where steps were left out, those of inputs may be others than those of terms.
    const given = episode.width === 1 ? readInputs(track, series.termInputs[i], at) : "";
    const told = value < 0 ? tell(value) : `+${tell(value)}`;
    const tint = value < 0 ? "accent" : "second";
    parts.push({ name, given, from: sum, to: (sum += value), told, tint });
  });
  parts.push({ ...bare, name: "reward", to: sum, told: tell(sum) });
  return { step: track.term0.x[at], parts };
}

drawers.waterfall = (element) => {
  const { step, parts } = splitReward();
  const rows = [...parts].reverse();
  const narrow = element.clientWidth < 560;
  const { episode, track } = viewer;
  find("#waterfall-title").textContent =
    `Episode ${episode.label ?? episode.index}, step ${step}: what each effect adds`;
  const ends = [0, ...parts.flatMap((part) => [part.from, part.to])];
  const pad = 0.16 * (Math.max(...ends) - Math.min(...ends) || 1);
  // From the end of each bar down to the next one.
  const shapes = rows.slice(1).map((part, row) => ({
    ...level(part.to, "dot", { yref: "y", y0: row + 1.3, y1: row - 0.3, layer: "above" }),
    line: { color: colour("muted"), width: 1, dash: "dot" },
  }));
  const annotations = rows.map((part, y) => {
    const at = { x: Math.max(part.from, part.to), y, xanchor: "left", xshift: 5 };
    return mark(part.told, at, font(12, "ink"));
  });
  if (track.true && episode.width === 1) {
    const x = track.true.y[step];
    shapes.push(level(x, "dash"));
    annotations.push(mark("true reward", { x, y: 1, yref: "paper", yanchor: "bottom" }));
    ends.push(x);
  }
  const range = [Math.min(...ends) - 0.3 * pad, Math.max(...ends) + pad];
  const lengths = rows.map((part) => part.to - part.from);
  const names = rows.map((part) => part.name);
  const tints = rows.map((part) => colour(part.tint ?? "faint"));
  const trace = bars(lengths, names, tints, "%{text}%{customdata}", {
    base: rows.map((part) => part.from),
    customdata: rows.map((part) => `${part.given}: ${part.told}`),
  });
  const ticktext = rows.map(({ name, given }) =>
    narrow ? brief(name, 16) : brief(name, 40) + plain(given),
  );
  show(element, [trace], {
    height: rows.length * 28 + 76,
    shapes,
    annotations,
    bargap: 0.35,
    margin: { l: 40, r: 52, t: 24, b: 44 },
    xaxis: axis(payload.reward, { range }),
    yaxis: nameAxis(names, 12, 40, { ticktext }),
  });
  const told = parts.slice(0, -1).map((part) => `${part.name} ${part.told}`);
  describe(element, `Reward ${rows[0].told} of step ${step}: ${told.join(", ")}`);
};
