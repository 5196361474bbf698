// Learning curves, masks and rewards of training runs.
const dashes = ["solid", "dash", "dashdot", "dot"];
const styleOf = (index) => ({
  color: colour(`group${index % 7}`),
  dash: dashes[Math.floor(index / 7) % dashes.length],
});
const styleOfSource = (source) =>
  source.oracle ? { color: colour("muted"), dash: "dash" } : styleOf(source.look);

drawers.learning = (element) => {
  const key = find("#metric")?.value ?? "return";
  const seeds = find("#seeds")?.checked;
  const { label, curves } = payload.metrics.find((metric) => metric.key === key);
  const below = [];
  const traces = [];
  for (const curve of curves) {
    const style = styleOfSource(curve);
    const group = { legendgroup: curve.label, showlegend: false };
    const many = curve.seeds > 1;
    const thin = ({ steps, values, seed }) => {
      const told = `${plain(curve.label)}, seed ${plain(seed)}: %{y:.4g}`;
      return line(steps, values, fade(style.color, 0.5), 1, told, group);
    };
    if (seeds || (curve.few && many)) below.push(...curve.lines.map(thin));
    else if (many) below.push(...band(curve.steps, curve.means, curve.spreads, style.color, group));
    const look = { width: 2.2, dash: style.dash };
    const more = {
      legendgroup: curve.label,
      name: brief(curve.label, 40) + (many ? ` (${curve.seeds} seeds)` : ""),
      customdata: curve.spreads,
      mode: curve.steps.length > 1 ? "lines" : "markers",
    };
    const told = { hovertemplate: many ? "%{y:.4g} ± %{customdata:.2g}" : "%{y:.4g}" };
    traces.push(line(curve.steps, curve.means, style.color, look, told, more));
  }
  const { data, unit } = payload;
  if (key === "return" && Number.isFinite(data)) {
    const steps = curves.flatMap((curve) => curve.steps);
    const ends = [Math.min(...steps), Math.max(...steps)];
    const look = { width: 1.5, dash: "dot" };
    traces.push(line(ends, [data, data], colour("muted"), look, "", { name: "mean of the data" }));
  }
  const rows = Math.ceil(traces.length / Math.max(1, Math.floor(element.clientWidth / 240)));
  show(element, [...below, ...traces], {
    height: 400 + 22 * rows,
    hovermode: "x unified",
    showlegend: true,
    margin: { l: 56, r: 12, t: 10, b: 60 + 22 * rows },
    xaxis: axis(unit, { zeroline: false }),
    yaxis: axis(label),
    legend: { orientation: "h", x: 0, y: -0.16, yanchor: "top", font: font(12, "ink") },
  });
  const told = curves.map((curve) => `${curve.label} ends at ${tell(curve.means.at(-1))}`);
  describe(element, `${label} over ${unit}: ${told.join(", ")}`);
};

/** The chosen member and its chosen moment. */
function findMoment(name, members) {
  const member = members[find(`#${name}-member`).value];
  const slider = find(`#${name}-moment`);
  slider.max = member.moments.length - 1;
  const moment = member.moments[Math.min(Number(slider.value), member.moments.length - 1)];
  slider.setAttribute("aria-valuetext", `step ${moment.step}`);
  return { member, moment };
}

drawers["run-masks"] = (element) => {
  const { member, moment } = findMoment("mask", payload.masks);
  const { states, label } = member;
  const masks = {};
  const shares = Object.entries(moment.masks).map(([name, text]) => {
    const mask = [...toBytes(text)].map((on) => on || null);
    masks[name] = name.endsWith("reward") ? mask : chunk(mask, states.length);
    const part = (100 * mask.filter(Boolean).length) / mask.length;
    return `${name.replaceAll("_", " ")} ${Math.round(part)} %`;
  });
  const told = shares.join(", ");
  find("#mask-reading").textContent =
    `Step ${moment.step.toLocaleString("en")}: share of edges, ${told}; ` +
    `compact state: ${moment.compact} of ${states.length} dimensions`;
  drawMaps(element, member, masks, false);
  describe(element, `Masks of ${label} at step ${moment.step}: ${told}`);
};

drawers.rewards = (element) => {
  const { member, moment } = findMoment("reward", payload.episodes);
  const { step, match, scaled } = moment;
  find("#reward-reading").textContent = `Training step ${step.toLocaleString("en")}: ${match}`;
  const curve = (name, tint, width) => {
    const [x, y] = [moment[name].x, moment[name].y].map(unpack);
    return line(x, y, colour(tint), width, { hovertemplate: "%{y:.4g}" }, { name });
  };
  show(element, [curve("true", "second", 1.2), curve("found", "accent", 1.6)], {
    hovermode: "x unified",
    showlegend: true,
    xaxis: axis("step of the episode", { zeroline: false }),
    yaxis: axis(scaled ? "reward, standardised" : "reward"),
    margin: { l: 52, r: 12, t: 30, b: 44 },
  });
  describe(element, `Found and true rewards of ${member.label} at training step ${step}: ${match}`);
};

drawers.speed = (element) => {
  const count = payload.unit.replace("environment ", "");
  const traces = payload.speed.map(({ name, seconds, steps }, index) => {
    const { color, dash } = styleOf(index);
    const minutes = seconds.map((s) => s / 60);
    const told = { hovertemplate: `%{y:,} ${count} after %{x:.1f} min` };
    const more = { name: brief(name, 40), mode: "lines+markers" };
    return line(minutes, steps, color, { width: 2, dash }, told, more);
  });
  show(element, traces, {
    hovermode: "closest",
    showlegend: traces.length > 1,
    xaxis: axis("minutes of training", { rangemode: "tozero" }),
    yaxis: axis(`${count} of each member`, { rangemode: "tozero" }),
    margin: { l: 60, r: 12, t: 30, b: 44 },
  });
};
