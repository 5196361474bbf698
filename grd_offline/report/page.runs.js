// Learning curves, masks and rewards of training runs.
const tints = ["group0", "group1", "group2", "group3", "group4", "group5", "group6"];
const dashes = ["solid", "dash", "dashdot", "dot"];
const styleOf = (index) => ({
  color: colour(tints[index % tints.length]),
  dash: dashes[Math.floor(index / tints.length) % dashes.length],
});

const styleOfSource = (source) =>
  source.oracle ? { color: colour("muted"), dash: "dash" } : styleOf(source.look);

function drawLearning(element) {
  const key = find("#metric")?.value ?? "return",
    seeds = find("#seeds")?.checked,
    metric = payload.metrics.find((m) => m.key === key),
    below = [],
    traces = [];
  metric.curves.forEach((curve) => {
    const style = styleOfSource(curve);
    const name = plain(curve.label),
      group = { legendgroup: curve.label, showlegend: false };
    if (seeds || (curve.few && curve.seeds > 1))
      for (const one of curve.lines)
        below.push(
          line(one.steps, one.values, fade(style.color, 0.5), {
            ...group,
            line: { color: fade(style.color, 0.5), width: 1 },
            hovertemplate: `${name}, seed ${plain(one.seed)}: %{y:.4g}<extra></extra>`,
          }),
        );
    else if (curve.seeds > 1)
      below.push(
        ...band(
          curve.steps,
          curve.means.map((m, i) => m - curve.spreads[i]),
          curve.means.map((m, i) => m + curve.spreads[i]),
          style.color,
          group,
        ),
      );
    traces.push(
      line(curve.steps, curve.means, style.color, {
        legendgroup: curve.label,
        name: plain(clip(curve.label, 40)) + (curve.seeds > 1 ? ` (${curve.seeds} seeds)` : ""),
        customdata: curve.spreads,
        mode: curve.steps.length > 1 ? "lines" : "markers",
        line: { color: style.color, width: 2.2, dash: style.dash },
        hovertemplate: curve.seeds > 1 ? "%{y:.4g} ± %{customdata:.2g}" : "%{y:.4g}",
      }),
    );
  });
  if (key === "return" && Number.isFinite(payload.data)) {
    const steps = metric.curves.flatMap((curve) => curve.steps),
      muted = colour("muted");
    traces.push(
      line([Math.min(...steps), Math.max(...steps)], [payload.data, payload.data], muted, {
        name: "mean of the data",
        line: { color: muted, width: 1.5, dash: "dot" },
        hoverinfo: "skip",
      }),
    );
  }
  const rows = Math.ceil(traces.length / Math.max(1, Math.floor(element.clientWidth / 240)));
  element.style.height = `${400 + 22 * rows}px`;
  show(element, [...below, ...traces], {
    hovermode: "x unified",
    showlegend: true,
    margin: { l: 56, r: 12, t: 10, b: 60 + 22 * rows },
    xaxis: axis({ title: payload.unit, zeroline: false }),
    yaxis: axis({ title: metric.label }),
    legend: {
      orientation: "h",
      x: 0,
      y: -0.16,
      yanchor: "top",
      font: { size: 12, color: colour("ink") },
    },
  });
  element.setAttribute(
    "aria-label",
    `${metric.label} over ${payload.unit}: ` +
      metric.curves
        .map((curve) => `${curve.label} ends at ${tell(curve.means[curve.means.length - 1])}`)
        .join(", "),
  );
}

function drawRunMasks(element) {
  const member = payload.masks[find("#mask-member").value],
    slider = find("#mask-moment");
  slider.max = member.moments.length - 1;
  const at = Math.min(Number(slider.value), member.moments.length - 1),
    moment = member.moments[at];
  const read = (name) => [...toBytes(moment.masks[name])].map((on) => on || null),
    masks = {
      stateReward: read("state_to_reward"),
      actionReward: read("action_to_reward"),
      stateState: chunk(read("state_to_state"), member.states.length),
      actionState: chunk(read("action_to_state"), member.states.length),
    },
    flat = Object.values(masks).map((mask) => mask.flat());
  const parts = ["state to reward", "action to reward", "state to state", "action to state"].map(
    (name, i) =>
      `${name} ${Math.round((100 * flat[i].filter(Boolean).length) / flat[i].length)} %`,
  );
  find("#mask-reading").textContent =
    `Step ${moment.step.toLocaleString("en")}: share of edges, ${parts.join(", ")}; compact state: ${moment.compact} of ${member.states.length} dimensions`;
  slider.setAttribute("aria-valuetext", `step ${moment.step}`);
  drawMaps(element, member, masks, false);
  element.setAttribute(
    "aria-label",
    `Masks of ${member.label} at step ${moment.step}: ${parts.join(", ")}`,
  );
}

function drawRewards(element) {
  const member = payload.episodes[find("#reward-member").value],
    slider = find("#reward-moment");
  slider.max = member.moments.length - 1;
  const at = Math.min(Number(slider.value), member.moments.length - 1),
    moment = member.moments[at];
  slider.setAttribute("aria-valuetext", `step ${moment.step}`);
  find("#reward-reading").textContent =
    `Training step ${moment.step.toLocaleString("en")}: ${moment.match}`;
  show(
    element,
    [
      line(unpack(moment.true.x), unpack(moment.true.y), colour("second"), {
        name: "true",
        line: { color: colour("second"), width: 1.2 },
        hovertemplate: "%{y:.4g}",
      }),
      line(unpack(moment.found.x), unpack(moment.found.y), colour("accent"), {
        name: "found",
        hovertemplate: "%{y:.4g}",
      }),
    ],
    {
      hovermode: "x unified",
      showlegend: true,
      xaxis: axis({ title: "step of the episode", zeroline: false }),
      yaxis: axis({ title: moment.scaled ? "reward, standardised" : "reward" }),
      margin: { l: 52, r: 12, t: 30, b: 44 },
      legend: topLegend(),
    },
  );
  element.setAttribute(
    "aria-label",
    `Found and true rewards of ${member.label} at training step ${moment.step}: ${moment.match}`,
  );
}

function drawSpeed(element) {
  const count = payload.unit.replace("environment ", "");
  show(
    element,
    payload.speed.map((run, index) =>
      line(
        run.seconds.map((s) => s / 60),
        run.steps,
        styleOf(index).color,
        {
          name: plain(clip(run.name, 40)),
          mode: "lines+markers",
          line: { ...styleOf(index), width: 2 },
          hovertemplate: `%{y:,} ${count} after %{x:.1f} min`,
        },
      ),
    ),
    {
      hovermode: "closest",
      showlegend: payload.speed.length > 1,
      xaxis: axis({ title: "minutes of training", rangemode: "tozero" }),
      yaxis: axis({ title: `${count} of each member`, rangemode: "tozero" }),
      margin: { l: 60, r: 12, t: 30, b: 44 },
      legend: topLegend(),
    },
  );
}
