// What policies reach with each source of rewards.
/** How a return is told: as it is, or as a share of what the truth reaches or gains. */
function findScale() {
  const key = find("#scale")?.value ?? "return";
  const { data, true: truth } = payload;
  if (key === "return") return { of: (r) => r, size: 1, say: tell, shares: false };
  const from = key === "gain" ? data : 0;
  const size = 100 / (truth - from);
  const say = (value) => `${Math.round(value)} %`;
  return { of: (r) => size * (r - from), size, say, shares: true };
}

/** The mean, its spread and all seeds of one source, and what is told of them. */
function drawVerdict(verdict, row, { of, size, say, shares }) {
  const { color } = styleOfSource(verdict);
  const name = plain(verdict.source);
  const mean = of(verdict.mean);
  const spread = verdict.spread * size;
  const many = verdict.scores.length > 1;
  const both = `${Math.round(mean)}${many ? ` ± ${Math.round(spread)}` : ""} %`;
  const told = shares ? both : verdict.reached;
  const hoverlabel = { bordercolor: color };
  const bar = line([mean - spread, mean + spread], [row, row], fade(color, 0.3), 13, "");
  const sign = verdict.oracle ? { size: 15, symbol: "diamond" } : { size: 13, symbol: "circle" };
  const one = { name: `${name}, mean`, hoverlabel };
  const dot = dots([mean], [row], { color, ...sign }, `${name}: ${told}`, one);
  const scores = verdict.scores.map(of);
  const heights = scores.map(() => row + 0.27);
  const look = { color: fade(color, 0.75), size: verdict.few ? 7 : 5 };
  const more = { name: `${name}, seeds`, customdata: scores.map(say), text: payload.seeds };
  const each = `${name}, seed %{text}: %{customdata}`;
  const seeds = dots(scores, heights, look, each, { ...more, hoverlabel });
  return { traces: [...(verdict.few ? [] : [bar]), dot, ...(many ? [seeds] : [])], told };
}

drawers.verdicts = (element) => {
  const { verdicts, data, true: truth } = payload;
  const scale = findScale();
  const { of, say, shares } = scale;
  const label = find("#scale")?.selectedOptions[0].text ?? "true return";
  const narrow = element.clientWidth < 560;
  const rows = verdicts.map((verdict, row) => drawVerdict(verdict, row, scale));
  const annotations = rows.map(({ told }, y) => {
    const at = { x: 1, xref: "paper", xanchor: "left", xshift: 10, y };
    return mark(narrow ? say(of(verdicts[y].mean)) : told, at, font(13, "ink"));
  });
  const lines = [];
  if (truth !== null) lines.push([of(truth), narrow ? "true" : "true rewards", "dash"]);
  if (data !== null) lines.push([of(data), narrow ? "data" : "the data", "dot"]);
  const ends = verdicts.flatMap((v) => [...v.scores, v.mean + v.spread, v.mean - v.spread].map(of));
  const all = [...ends, ...lines.map(([x]) => x)];
  const [low, high] = frame(all, 0);
  // Their names stand towards the middle, where there is room, or else apart.
  const close = lines.length > 1 && Math.abs(lines[0][0] - lines[1][0]) < 0.25 * (high - low);
  const between = close ? (lines[0][0] + lines[1][0]) / 2 : (low + high) / 2;
  for (const [x, text] of lines) {
    const xanchor = x > between === close ? "left" : "right";
    annotations.push(mark(text, { x, y: 1, yref: "paper", yanchor: "bottom", xanchor }));
  }
  const names = verdicts.map((verdict) => verdict.source);
  const range = frame(all, 0.06, Math.abs(high) || 1);
  const down = { range: [verdicts.length - 0.5, -0.5], fixedrange: true };
  const traces = rows.flatMap((row) => row.traces);
  show(element, traces, {
    height: verdicts.length * 50 + 80,
    hovermode: "closest",
    hoverdistance: 30,
    shapes: lines.map(([x, , dash]) => level(x, dash)),
    annotations,
    margin: { l: 40, r: narrow ? 62 : 118, t: 28, b: 46 },
    xaxis: axis(label, { range, zeroline: false, ticksuffix: shares ? " %" : "" }),
    yaxis: nameAxis(names, 13, narrow ? 14 : 30, down),
  });
  const told = verdicts.map((v) => `${v.source} ${say(of(v.mean))}`);
  if (data !== null) told.push(`the data ${say(of(data))}`);
  describe(element, `${label}: ${told.join(", ")}`);
};

/** Where each name stands, from its point: the first place that is free, near and within. */
function placeNames(spots, wide) {
  const taken = spots.map(({ x, y }) => [x - 8, x + 8, y - 8, y + 8]);
  const isFree = ([left, right, top, bottom]) =>
    left > 0 &&
    right < wide &&
    taken.every((box) => right < box[0] || left > box[1] || bottom < box[2] || top > box[3]);
  return spots.map(({ x, y, size }) => {
    const sides = x > wide / 2 ? [-20, 20] : [20, -20];
    const tries = [0, 20, -20, 40, -40, 60].flatMap((ay) => sides.map((ax) => [ax, ay]));
    const boxOf = ([ax, ay]) => {
      const left = x + ax - (ax < 0 ? size : 0);
      return [left, left + size, y + ay - 8, y + ay + 8];
    };
    const place = tries.find((at) => isFree(boxOf(at))) ?? tries[0];
    taken.push(boxOf(place));
    return place;
  });
}

drawers.nearness = (element) => {
  const points = payload.nearness;
  const height = 340;
  const margin = { l: 60, r: 16, t: 14, b: 46 };
  const wide = element.clientWidth - margin.l - margin.r;
  const correlations = points.map((point) => point.pearson);
  const ends = points.flatMap(({ mean, spread }) => [mean - spread, mean + spread]);
  const [across, up] = [frame(correlations, 0.08), frame(ends, 0.12)];
  const spots = points.map(({ pearson, mean, source }) => ({
    x: ((pearson - across[0]) / (across[1] - across[0])) * wide,
    y: ((up[1] - mean) / (up[1] - up[0])) * (height - margin.t - margin.b),
    size: 8 * clip(source, 30).length,
  }));
  const places = placeNames(spots, wide);
  // The truth lies below the others, which are what the drawing is about.
  const ordered = [...points].sort((a, b) => b.oracle - a.oracle);
  const draw = (point) => {
    const { color } = styleOfSource(point);
    const sign = point.oracle ? { size: 14, symbol: "diamond" } : { size: 10, symbol: "circle" };
    const spread = { array: [point.spread], visible: !point.few };
    const error_y = { type: "data", color, thickness: 1.4, width: 4, ...spread };
    const told = `${plain(point.source)}: Pearson %{x:.3f}, return ${point.reached}`;
    const more = { error_y, hoverlabel: { bordercolor: color } };
    return dots([point.pearson], [point.mean], { color, ...sign }, told, more);
  };
  const arrow = { showarrow: true, arrowhead: 0, arrowwidth: 0.8, arrowcolor: colour("faint") };
  show(element, ordered.map(draw), {
    hovermode: "closest",
    height,
    margin,
    annotations: points.map(({ source, pearson, mean }, index) => {
      const [ax, ay] = places[index];
      const xanchor = ax < 0 ? "right" : "left";
      const place = { x: pearson, y: mean, ax, ay, xanchor, standoff: 7 };
      return mark(brief(source, 30), { ...place, ...arrow }, font(13, "ink"));
    }),
    xaxis: axis("correlation (Pearson) with the true rewards", { range: across, zeroline: false }),
    yaxis: axis("true return", { range: up, zeroline: false }),
  });
};
