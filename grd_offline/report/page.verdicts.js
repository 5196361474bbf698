// What policies reach with each source of rewards.
/** How a return is told: as it is, or as a share of what the truth reaches or gains. */
function findScale() {
  const key = find("#scale")?.value ?? "return",
    { data, true: truth } = payload;
  if (key === "return") return { of: (r) => r, size: 1, say: tell, shares: false };
  const from = key === "gain" ? data : 0,
    size = 100 / (truth - from);
  return {
    of: (r) => size * (r - from),
    size,
    say: (value) => `${Math.round(value)} %`,
    shares: true,
  };
}

function drawVerdicts(element) {
  const { verdicts, data, true: truth } = payload,
    { of, size, say, shares } = findScale(),
    label = find("#scale")?.selectedOptions[0].text ?? "true return",
    narrow = element.clientWidth < 560,
    traces = [],
    shapes = [],
    annotations = [];
  verdicts.forEach((verdict, row) => {
    const { color } = styleOfSource(verdict),
      name = plain(verdict.source),
      mean = of(verdict.mean),
      spread = verdict.spread * size,
      many = verdict.scores.length > 1,
      told = shares
        ? `${Math.round(mean)}${many ? ` ± ${Math.round(spread)}` : ""} %`
        : verdict.reached;
    if (!verdict.few)
      traces.push({
        ...line([mean - spread, mean + spread], [row, row], fade(color, 0.3), {
          hoverinfo: "skip",
        }),
        line: { color: fade(color, 0.3), width: 13 },
      });
    traces.push({
      x: [mean],
      y: [row],
      type: "scatter",
      mode: "markers",
      name: `${name}, mean`,
      marker: {
        color,
        size: verdict.oracle ? 15 : 13,
        symbol: verdict.oracle ? "diamond" : "circle",
      },
      hoverlabel: { bordercolor: color },
      hovertemplate: `${name}: ${told}<extra></extra>`,
    });
    if (many)
      traces.push({
        x: verdict.scores.map(of),
        y: verdict.scores.map(() => row + 0.27),
        type: "scatter",
        mode: "markers",
        name: `${name}, seeds`,
        customdata: verdict.scores.map((score) => say(of(score))),
        text: verdict.scores.map((_, seed) => payload.seeds[seed]),
        marker: { color: fade(color, 0.75), size: verdict.few ? 7 : 5 },
        hoverlabel: { bordercolor: color },
        hovertemplate: `${name}, seed %{text}: %{customdata}<extra></extra>`,
      });
    annotations.push(
      mark(narrow ? say(mean) : told, {
        x: 1,
        xref: "paper",
        xanchor: "left",
        xshift: 10,
        y: row,
        font: { size: 13, color: colour("ink") },
      }),
    );
  });
  const lines = [];
  if (truth !== null) lines.push([of(truth), narrow ? "true" : "true rewards", "dash"]);
  if (data !== null) lines.push([of(data), narrow ? "data" : "the data", "dot"]);
  const every = [
    ...verdicts.flatMap((v) => [...v.scores, v.mean + v.spread, v.mean - v.spread].map(of)),
    ...lines.map(([x]) => x),
  ];
  const low = Math.min(...every),
    high = Math.max(...every),
    pad = 0.06 * (high - low || Math.abs(high) || 1);
  // Their names stand towards the middle, where there is room, or else apart.
  const close = lines.length > 1 && Math.abs(lines[0][0] - lines[1][0]) < 0.25 * (high - low),
    between = close ? (lines[0][0] + lines[1][0]) / 2 : (low + high) / 2;
  for (const [x, text, dash] of lines) {
    shapes.push(level({ x0: x, x1: x, yref: "paper", y0: 0, y1: 1 }, dash));
    annotations.push(
      mark(text, {
        x,
        y: 1,
        yref: "paper",
        yanchor: "bottom",
        xanchor: x > between === close ? "left" : "right",
      }),
    );
  }
  element.style.height = `${verdicts.length * 50 + 80}px`;
  show(element, traces, {
    hovermode: "closest",
    hoverdistance: 30,
    shapes,
    annotations,
    margin: { l: 40, r: narrow ? 62 : 118, t: 28, b: 46 },
    xaxis: axis({
      title: label,
      range: [low - pad, high + pad],
      zeroline: false,
      ticksuffix: shares ? " %" : "",
    }),
    yaxis: axis({
      tickvals: verdicts.map((_, row) => row),
      ticktext: verdicts.map((v) => plain(clip(v.source, narrow ? 14 : 30))),
      tickfont: { size: 13, color: colour("ink") },
      range: [verdicts.length - 0.5, -0.5],
      ticklabelstandoff: 6,
      showgrid: false,
      zeroline: false,
      fixedrange: true,
      ticks: "",
    }),
  });
  element.setAttribute(
    "aria-label",
    `${label}: ` +
      [
        ...verdicts.map((v) => `${v.source} ${say(of(v.mean))}`),
        ...(data === null ? [] : [`the data ${say(of(data))}`]),
      ].join(", "),
  );
}

/** Where each name stands, from its point: the first place that is free, near and within. */
function placeNames(spots, wide) {
  const taken = spots.map(({ x, y }) => [x - 8, x + 8, y - 8, y + 8]);
  const isFree = ([left, right, top, bottom]) =>
    left > 0 &&
    right < wide &&
    taken.every((box) => right < box[0] || left > box[1] || bottom < box[2] || top > box[3]);
  return spots.map(({ x, y, size }) => {
    const sides = x > wide / 2 ? [-20, 20] : [20, -20],
      boxOf = ([ax, ay]) => [
        x + ax - (ax < 0 ? size : 0),
        x + ax + (ax < 0 ? 0 : size),
        y + ay - 8,
        y + ay + 8,
      ];
    const tries = [0, 20, -20, 40, -40, 60].flatMap((ay) => sides.map((ax) => [ax, ay]));
    const place = tries.find((at) => isFree(boxOf(at))) ?? tries[0];
    taken.push(boxOf(place));
    return place;
  });
}

function drawNearness(element) {
  const points = payload.nearness,
    height = 340,
    margin = { l: 60, r: 16, t: 14, b: 46 },
    wide = element.clientWidth - margin.l - margin.r;
  const xs = points.map((p) => p.pearson),
    ys = points.flatMap((p) => [p.mean - p.spread, p.mean + p.spread]);
  const frame = (values, share) => {
    const low = Math.min(...values),
      high = Math.max(...values),
      pad = share * (high - low || 1);
    return [low - pad, high + pad];
  };
  const across = frame(xs, 0.08),
    up = frame(ys, 0.12);
  const places = placeNames(
    points.map((point) => ({
      x: ((point.pearson - across[0]) / (across[1] - across[0])) * wide,
      y: ((up[1] - point.mean) / (up[1] - up[0])) * (height - margin.t - margin.b),
      size: 8 * clip(point.source, 30).length,
    })),
    wide,
  );
  element.style.height = `${height}px`;
  // The truth lies below the others, which are what the drawing is about.
  const ordered = [...points].sort((a, b) => b.oracle - a.oracle);
  show(
    element,
    ordered.map((point) => {
      const { color } = styleOfSource(point),
        many = !point.few;
      return {
        x: [point.pearson],
        y: [point.mean],
        type: "scatter",
        mode: "markers",
        marker: {
          color,
          size: point.oracle ? 14 : 10,
          symbol: point.oracle ? "diamond" : "circle",
        },
        error_y: {
          type: "data",
          array: [point.spread],
          color,
          thickness: 1.4,
          width: 4,
          visible: many,
        },
        hoverlabel: { bordercolor: color },
        hovertemplate: `${plain(point.source)}: Pearson %{x:.3f}, return ${point.reached}<extra></extra>`,
      };
    }),
    {
      hovermode: "closest",
      height,
      margin,
      annotations: points.map((point, index) => {
        const [ax, ay] = places[index];
        return {
          text: plain(clip(point.source, 30)),
          x: point.pearson,
          y: point.mean,
          ax,
          ay,
          xanchor: ax < 0 ? "right" : "left",
          showarrow: true,
          arrowhead: 0,
          arrowwidth: 0.8,
          arrowcolor: colour("faint"),
          standoff: 7,
          font: { size: 13, color: colour("ink") },
        };
      }),
      xaxis: axis({
        title: "correlation (Pearson) with the true rewards",
        range: across,
        zeroline: false,
      }),
      yaxis: axis({ title: "true return", range: up, zeroline: false }),
    },
  );
}

function startRuns() {
  const again = (kind) =>
    findAll(`[data-draw=${kind}]`)
      .filter((element) => drawn.has(element))
      .forEach(draw);
  const listen = (selector, kind, event = "input") =>
    find(selector)?.addEventListener(event, () => again(kind));
  listen("#metric", "learning", "change");
  listen("#seeds", "learning", "change");
  listen("#scale", "verdicts", "change");
  for (const [kind, name] of [
    ["run-masks", "mask"],
    ["rewards", "reward"],
  ]) {
    listen(`#${name}-member`, kind, "change");
    listen(`#${name}-moment`, kind);
  }
}
