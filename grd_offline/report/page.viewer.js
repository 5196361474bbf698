// The rewards of one episode, step by step, and what each effect adds to the chosen one.
const viewer = payload.viewer && { step: 0, play: 0, element: find(".viewer") };

/** The series of one episode by name; see pack_series in page.py. */
function decode({ length, width, ranges, data, sum }) {
  const { spiky, smooth } = payload.viewer.series;
  const count = Math.ceil(length / width);
  const each = width === 1 ? count : 2 * count;
  const total = spiky.length * each + smooth.length * count;
  const { buffer } = toBytes(data);
  const levels = new Uint16Array(buffer, 0, total);
  const places = new Uint8Array(buffer, 2 * total);
  const ends = Array.from({ length: count }, (_, i) => Math.min((i + 1) * width, length) - 1);
  const locate = (place, i) =>
    [place >> 4, place & 15].map(
      (part) => i * width + (width > 16 ? Math.floor((part * width) / 16) : part),
    );
  const track = {};
  let at = 0;
  [...spiky, ...smooth].forEach((name, index) => {
    const isSpiky = index < spiky.length;
    const y = toNumbers(levels.subarray(at, (at += isSpiky ? each : count)), ...ranges[index]);
    const own = [...places.subarray(index * count, (index + 1) * count)];
    track[name] = { x: isSpiky && width > 1 ? own.flatMap(locate) : ends, y };
  });
  track.sum.y[count - 1] = sum; // The last sum is known exactly.
  return track;
}

const drawnInputs = () => payload.viewer.series.inputs.slice(0, payload.viewer.series.drawn);
const spreadAt = (step) => Z90 * viewer.track.std.y[Math.floor(step / viewer.episode.width)];

/** What the data paid. */
function drawPaid({ deliveries }, { observed }, tint) {
  const more = { name: "observed" };
  if (observed) return [line(observed.x, observed.y, tint, 1.6, plainValue, more)];
  const [steps, amounts] = [0, 1].map((part) => deliveries.map((delivery) => delivery[part]));
  const across = steps.flatMap((step) => [step, step, null]);
  const stems = amounts.flatMap((amount) => [0, amount, null]);
  const look = { color: tint, size: 7, symbol: "diamond" };
  return [line(across, stems, tint, 1.6, ""), dots(steps, amounts, look, plainValue, more)];
}

/** The drawings below each other, with their heights and titles. */
function listRows(episode, track) {
  const [found, truth, given, ink] = ["accent", "second", "third", "muted"].map(colour);
  const word = (text, tint) => `<span style="color:${tint}">${plain(text)}</span>`;
  // There may be no true rewards.
  const curve = (key, name, tint, look) =>
    track[key] ? [line(track[key].x, track[key].y, tint, look, plainValue, { name })] : [];
  const alsoTrue = track.true ? `, ${word("true", truth)}` : "";
  const { deliveries, length } = episode;
  const isPaidOnce = deliveries.length === 1 && deliveries[0][0] === length - 1;
  const paid = isPaidOnce ? payload.outcome.paid : "Observed rewards";
  const outcome = `observed ${payload.outcome.singular}`;
  const { x, y } = track.reward;
  const told = "%{y:.4g} ± %{customdata:.2g}";
  const rewards = banded(x, y, x.map(spreadAt), found, 1.6, told, { name: "reward found" });
  const look = { color: given, size: 10, symbol: "diamond" };
  const dashed = { width: 1, dash: "dash" };
  const end = { name: outcome, cliponaxis: false };
  const ended = dots([length - 1], [episode.return], look, plainValue, end);
  return [
    {
      height: 200,
      title: `Reward per step: ${word("found, with 90 % band", found)}${alsoTrue}`,
      traces: [...rewards, ...curve("true", "true reward", truth, 0.9)],
    },
    ...curve("gap", "found − true", ink, 1).map((trace) => {
      return { height: 70, ticks: 3, title: "Difference: found − true", traces: [trace] };
    }),
    { height: 54, ticks: 2, title: word(paid, given), traces: drawPaid(episode, track, given) },
    {
      height: 130,
      title: `Sum so far: ${word("found", found)}${alsoTrue}, ${word(`${outcome} ◆`, given)}`,
      traces: [
        ...curve("sum", "sum found", found, 1.6),
        ...curve("trueSum", "true sum", truth, dashed),
        ended,
      ],
    },
    ...drawnInputs().map((name, i) => {
      // An input with few values jumps from one to the next.
      const shape = payload.viewer.series.few.includes(name) ? "hvh" : "linear";
      const traces = curve(`input${i}`, brief(name, 24), ink, { width: 1, shape });
      return { height: 56, ticks: 3, title: brief(name, 44), traces };
    }),
  ];
}

drawers.viewer = (element) => {
  const { episode, track } = viewer;
  const rows = listRows(episode, track);
  const [gap, foot, top] = [34, 42, 24];
  const inner = rows.reduce((sum, row) => sum + row.height + gap, -gap);
  const { range } = viewer;
  const along = { range, anchor: `y${rows.length}`, automargin: false, showspikes: false };
  const more = {
    margin: { l: 52, r: 14, t: top, b: foot },
    height: inner + top + foot,
    annotations: [],
    hovermode: "x",
    hoversubplots: "axis",
    shapes: [level(viewer.step, "dot", { layer: "above" })],
    xaxis: axis("step", along),
  };
  const traces = [];
  let used = 0;
  rows.forEach((row, index) => {
    const id = index ? index + 1 : "";
    const domain = [Math.max(1 - (used + row.height) / inner, 0), 1 - used / inner];
    used += row.height + gap;
    const fixed = { domain, fixedrange: true, automargin: false };
    more[`yaxis${id}`] = axis("", { ...fixed, nticks: row.ticks ?? 5 });
    const at = { xref: "paper", yref: "paper", x: 0, y: domain[1], yshift: 3, xanchor: "left" };
    const ground = { yanchor: "bottom", bgcolor: colour("paper"), borderpad: 1 };
    more.annotations.push(mark(row.title, { ...at, ...ground }, font(12.5, "ink")));
    traces.push(...row.traces.map((trace) => ({ ...trace, xaxis: "x", yaxis: `y${id}` })));
  });
  show(element, traces, more);
  const [low, high] = frame(track.reward.y, 0).map(tell);
  const apart = tell(Math.abs(episode.return - episode.sum));
  const told =
    `Episode ${episode.index} of ${episode.length} steps. Rewards found lie between ${low} and ` +
    `${high} and add up to ${tell(episode.sum)}; the observed ${payload.outcome.singular} is ` +
    `${tell(episode.return)}, ${apart} apart. Below: ${drawnInputs().join(", ") || "no inputs"}.`;
  describe(element, told);
  if (element.dataset.listens) return;
  element.dataset.listens = "yes";
  element.on("plotly_hover", (event) => setStep(Math.round(event.points[0].x)));
  element.on("plotly_relayout", (event) => {
    const low = event["xaxis.range[0]"];
    if (low !== undefined) viewer.range = [low, event["xaxis.range[1]"]];
    if (event["xaxis.autorange"]) viewer.range = fullRange();
  });
};

const fullRange = () => [-0.01, 1.01].map((share) => share * viewer.episode.length);

function setStep(step) {
  const { episode, track } = viewer;
  viewer.step = clamp(step, 0, episode.length - 1);
  find("#step").value = viewer.step;
  const at = nearest(track.reward.x, viewer.step);
  const reward = track.reward.y[at];
  const spread = spreadAt(track.reward.x[at]);
  find("#reading").textContent = [
    `Step ${viewer.step} of ${episode.length}`,
    `reward ${tell(reward)} (${tell(reward - spread)} to ${tell(reward + spread)})`,
    ...(track.true ? [`true ${tell(track.true.y[nearest(track.true.x, viewer.step)])}`] : []),
    `sum so far ${tell(track.sum.y[Math.floor(viewer.step / episode.width)])}`,
    `observed ${payload.outcome.singular} ${tell(episode.return)}`,
  ].join("  ·  ");
  showFrame();
  viewer.pending ??= requestAnimationFrame(() => {
    delete viewer.pending;
    const { step } = viewer;
    if (drawn.has(viewer.element))
      Plotly.relayout(viewer.element, { "shapes[0].x0": step, "shapes[0].x1": step });
    redraw("waterfall");
  });
}

const findClip = () => payload.film?.[viewer.episode.index];

function showFrame() {
  const film = find(".film");
  const clip = findClip();
  if (film) film.hidden = !clip;
  if (!clip) return;
  const { width, height, columns, steps, image } = clip;
  const frame = find(".frame", film);
  const at = nearest(steps, viewer.step);
  const { index } = viewer.episode;
  if (frame.dataset.episode !== String(index)) {
    frame.dataset.episode = index;
    const size = `${width * columns}px ${height * Math.ceil(steps.length / columns)}px`;
    const background = `background-image:url(${image});background-size:${size}`;
    frame.style.cssText = `width:${width}px;height:${height}px;${background}`;
  }
  frame.dataset.step = steps[at];
  const [across, down] = [(at % columns) * width, Math.floor(at / columns) * height];
  frame.style.backgroundPosition = `-${across}px -${down}px`;
  describe(frame, `Episode ${index} as rendered at step ${steps[at]}`);
}

function playFilm() {
  const clip = findClip();
  if (viewer.play || !clip) {
    clearInterval(viewer.play);
    viewer.play = 0;
  } else {
    const last = clip.steps.length - 1;
    let at = nearest(clip.steps, viewer.step);
    if (at === last) at = -1;
    const advance = () => {
      setStep(clip.steps[++at]);
      if (at === last) playFilm();
    };
    viewer.play = setInterval(advance, calm.matches ? 500 : 120);
  }
  find("#play").textContent = viewer.play ? "Pause" : "Play";
}

function pickEpisode(index) {
  if (viewer.play) playFilm();
  viewer.episode = payload.viewer.episodes.find((episode) => episode.index === index);
  viewer.track = decode(viewer.episode);
  viewer.range = fullRange();
  find("#episode").value = index;
  find("#step").max = viewer.episode.length - 1;
  const { width } = viewer.episode;
  find("#thinned").textContent =
    width === 1
      ? "Every step is drawn."
      : `Of every ${width} steps, the drawing has the smallest and the largest value. ` +
        "The best, the median and the worst episode have every step, if there is room.";
  redraw("viewer");
  setStep(viewer.step);
}

function fillPicker() {
  const list = [...payload.viewer.episodes];
  if (find("#order").value === "return") list.sort((a, b) => b.return - a.return);
  const { singular } = payload.outcome;
  const name = (one) => `${one.label ?? one.index}: ${singular} ${tell(one.return)}`;
  find("#episode").replaceChildren(...list.map((one) => new Option(name(one), one.index)));
  if (viewer.episode) find("#episode").value = viewer.episode.index;
}

function zoom(kind) {
  const [low, high] = viewer.range;
  const [first, last] = fullRange();
  const size = high - low;
  const wanted = { in: Math.max(8, size / 2), out: 2 * size, all: last - first }[kind];
  const middle = kind === "in" ? viewer.step : (low + high) / 2;
  const start = Math.max(first, Math.min(middle - wanted / 2, last - wanted));
  viewer.range = [start, Math.min(start + wanted, last)];
  Plotly.relayout(viewer.element, { "xaxis.range": viewer.range.slice() });
}

function startViewer() {
  const { landmarks } = payload.viewer;
  const select = find("#episode");
  const move = (by) => {
    select.selectedIndex = clamp(select.selectedIndex + by, 0, select.options.length - 1);
    pickEpisode(Number(select.value));
  };
  fillPicker();
  listen("#episode", "change", () => move(0));
  listen("#order", "change", fillPicker);
  listen("#previous", "click", () => move(-1));
  listen("#next", "click", () => move(1));
  listen("#step", "input", ({ value }) => setStep(Number(value)));
  listen("#play", "click", playFilm);
  listen("[data-landmark]", "click", ({ dataset }) => pickEpisode(landmarks[dataset.landmark]));
  listen("[data-zoom]", "click", ({ dataset }) => zoom(dataset.zoom));
  pickEpisode(landmarks.median);
}

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
  const annotations = rows.map((part, y) =>
    beside(part.told, Math.max(part.from, part.to), y, 5, 12),
  );
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
