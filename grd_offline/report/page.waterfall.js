// What each effect adds to the reward of the chosen step.

/** The values of the inputs of one effect, as they follow its name. */
function readInputs(track, inputs, at) {
  const { series } = payload.viewer;
  const read = (name) => {
    const value = track[`input${series.inputs.indexOf(name)}`].y[at];
    const isLabel = series.labels.includes(name);
    if (isLabel && Math.abs(value - Math.round(value)) < 1e-4)
      return Math.round(value) === 1 ? "yes" : "no";
    return tell(value);
  };
  if (!inputs.length) return "";
  if (inputs.length === 1 && !series.labels.includes(inputs[0])) return ` = ${read(inputs[0])}`;
  return `: ${inputs.map(read).join(", ")}`;
}

/** The step whose terms are nearest to the cursor, and its parts from the mean to the reward. */
function splitReward() {
  const { track, step } = viewer,
    { constant, series } = payload.viewer,
    at = nearest(track.term0.x, step);
  const parts = [{ name: "mean reward", from: 0, to: constant, whole: true }];
  let sum = constant;
  series.terms.forEach((name, i) => {
    const value = track[`term${i}`].y[at],
      inputs = series.termInputs[i];
    // Where steps were left out, those of inputs may be others than those of terms.
    const given = viewer.episode.width === 1 ? readInputs(track, inputs, at) : "";
    parts.push({ name, given, from: sum, to: sum + value, value });
    sum += value;
  });
  parts.push({ name: "reward", from: 0, to: sum, whole: true });
  return { step: track.term0.x[at], parts, reward: sum };
}

function drawWaterfall(element) {
  const { step, parts, reward } = splitReward(),
    rows = [...parts].reverse(),
    narrow = element.clientWidth < 560,
    truth = viewer.track.true;
  find("#waterfall-title").textContent =
    `Episode ${viewer.episode.label ?? viewer.episode.index}, step ${step}: what each effect adds`;
  const signed = (value) => (value < 0 ? tell(value) : `+${tell(value)}`),
    words = rows.map((part) => (part.whole ? tell(part.to) : signed(part.value)));
  const tint = (part) =>
    part.whole ? colour("faint") : colour(part.value < 0 ? "accent" : "second");
  const ends = [0, ...parts.flatMap((part) => [part.from, part.to])],
    pad = 0.16 * (Math.max(...ends) - Math.min(...ends) || 1);
  const shapes = rows.slice(1).map((part, row) => ({
    // From the end of each bar down to the next one.
    type: "line",
    x0: part.to,
    x1: part.to,
    y0: row + 1.3,
    y1: row - 0.3,
    line: { color: colour("muted"), width: 1, dash: "dot" },
  }));
  const annotations = rows.map((part, row) => ({
    text: words[row],
    x: Math.max(part.from, part.to),
    y: row,
    xanchor: "left",
    xshift: 5,
    showarrow: false,
    font: { size: 12, color: colour("ink") },
  }));
  if (truth && viewer.episode.width === 1) {
    const x = truth.y[step];
    shapes.push({ ...level({ x0: x, x1: x, yref: "paper", y0: 0, y1: 1 }, "dash") });
    annotations.push(mark("true reward", { x, y: 1, yref: "paper", yanchor: "bottom" }));
    ends.push(x);
  }
  element.style.height = `${rows.length * 28 + 76}px`;
  show(
    element,
    [
      {
        type: "bar",
        orientation: "h",
        base: rows.map((part) => part.from),
        x: rows.map((part) => part.to - part.from),
        y: rows.map((_, row) => row),
        marker: { color: rows.map(tint) },
        text: rows.map((part) => plain(part.name)),
        textposition: "none",
        customdata: rows.map((part, row) => `${part.given ?? ""}: ${words[row]}`),
        hovertemplate: "%{text}%{customdata}<extra></extra>",
      },
    ],
    {
      shapes,
      annotations,
      bargap: 0.35,
      margin: { l: 40, r: 52, t: 24, b: 44 },
      xaxis: axis({
        title: payload.reward,
        range: [Math.min(...ends) - 0.3 * pad, Math.max(...ends) + pad],
      }),
      yaxis: axis({
        tickvals: rows.map((_, row) => row),
        ticktext: rows.map((part) =>
          plain(narrow ? clip(part.name, 16) : clip(part.name, 40) + (part.given ?? "")),
        ),
        tickfont: { size: 12, color: colour("ink") },
        ticklabelstandoff: 6,
        showgrid: false,
        zeroline: false,
        ticks: "",
      }),
    },
  );
  element.setAttribute(
    "aria-label",
    `Reward ${tell(reward)} of step ${step}: mean reward ${tell(parts[0].to)}, ` +
      parts
        .filter((part) => !part.whole)
        .map((part) => `${part.name} ${signed(part.value)}`)
        .join(", "),
  );
}
