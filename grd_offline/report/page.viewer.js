// The rewards of one episode, step by step.
const viewer = payload.viewer && { step: 0, order: "index", play: 0 };

/** The series of one episode; see pack_series in packing.py. */
function decode(episode) {
  const { length, width, ranges } = episode,
    series = payload.viewer.series;
  const spiky = [
    "reward",
    ...(series.true ? ["true", "gap"] : []),
    ...(series.observed ? ["observed"] : []),
    ...series.inputs.map((_, i) => `input${i}`),
  ];
  const smooth = [
    "std",
    "sum",
    ...(series.true ? ["trueSum"] : []),
    ...series.terms.map((_, i) => `term${i}`),
  ];
  const count = Math.ceil(length / width),
    each = width === 1 ? length : 2 * count;
  const buffer = toBytes(episode.data).buffer;
  const total = spiky.length * each + smooth.length * count;
  const levels = new Uint16Array(buffer, 0, total),
    places = new Uint8Array(buffer, 2 * total);
  const track = {};
  let at = 0;
  [...spiky, ...smooth].forEach((name, index) => {
    const size = index < spiky.length ? each : count,
      [low, high] = ranges[index];
    const y = Array.from(
      levels.subarray(at, at + size),
      (level) => low + (level * (high - low)) / 65535,
    );
    at += size;
    let x;
    if (width === 1) x = Array.from(y, (_, step) => step);
    else if (index >= spiky.length)
      x = Array.from(y, (_, i) => Math.min((i + 1) * width, length) - 1);
    else {
      x = [];
      for (let i = 0; i < count; i++) {
        const place = places[index * count + i];
        for (const part of [place >> 4, place & 15]) {
          x.push(i * width + (width > 16 ? Math.floor((part * width) / 16) : part));
        }
      }
    }
    track[name] = { x, y };
  });
  // The last sum is known exactly.
  track.sum.y[track.sum.y.length - 1] = episode.sum;
  return track;
}

const drawnInputs = () =>
  payload.viewer.series.inputs.slice(0, payload.viewer.series.drawn);

function rowsOf(episode, track) {
  const found = colour("accent"),
    truth = colour("second"),
    given = colour("third"),
    ink = colour("muted");
  const word = (text, tint) => `<span style="color:${tint}">${text}</span>`;
  const { series } = payload.viewer,
    rows = [];
  const spread = track.reward.x.map(
    (x) => Z90 * track.std.y[Math.min(Math.floor(x / episode.width), track.std.y.length - 1)],
  );
  const rewards = [
    ...band(
      track.reward.x,
      track.reward.y.map((y, i) => y - spread[i]),
      track.reward.y.map((y, i) => y + spread[i]),
      found,
    ),
    line(track.reward.x, track.reward.y, found, {
      name: "reward found",
      customdata: spread,
      hovertemplate: "%{y:.4g} ± %{customdata:.2g}<extra></extra>",
    }),
    ...(series.true
      ? [
          line(track.true.x, track.true.y, truth, {
            name: "true reward",
            line: { color: truth, width: 0.9 },
            hovertemplate: "%{y:.4g}<extra></extra>",
          }),
        ]
      : []),
  ];
  rows.push({
    height: 200,
    traces: rewards,
    title: `Reward per step: ${word("found, with 90 % band", found)}${series.true ? `, ${word("true", truth)}` : ""}`,
  });
  if (series.true)
    rows.push({
      height: 70,
      ticks: 3,
      title: "Difference: found − true",
      traces: [
        line(track.gap.x, track.gap.y, ink, {
          name: "found − true",
          line: { color: ink, width: 1 },
          hovertemplate: "%{y:.4g}<extra></extra>",
        }),
      ],
    });
  const stems = { x: [], y: [] };
  for (const [step, amount] of episode.deliveries) {
    stems.x.push(step, step, null);
    stems.y.push(0, amount, null);
  }
  const delivered = series.observed
    ? [
        line(track.observed.x, track.observed.y, given, {
          name: "observed",
          hovertemplate: "%{y:.4g}<extra></extra>",
        }),
      ]
    : [
        { ...line(stems.x, stems.y, given), hoverinfo: "skip" },
        {
          x: episode.deliveries.map((d) => d[0]),
          y: episode.deliveries.map((d) => d[1]),
          type: "scatter",
          mode: "markers",
          marker: { color: given, size: 7, symbol: "diamond" },
          name: "observed",
          hovertemplate: "%{y:.5g}<extra></extra>",
        },
      ];
  const [[last] = []] = episode.deliveries.slice(-1),
    isPaidOnce = !series.observed && episode.deliveries.length === 1 && last === episode.length - 1,
    paid = isPaidOnce ? payload.outcome.paid : "Observed rewards";
  rows.push({ height: 54, traces: delivered, title: word(plain(paid), given), ticks: 2 });
  const sums = [
    line(track.sum.x, track.sum.y, found, {
      name: "sum found",
      hovertemplate: "%{y:.5g}<extra></extra>",
    }),
  ];
  if (series.true)
    sums.push(
      line(track.trueSum.x, track.trueSum.y, truth, {
        name: "true sum",
        line: { color: truth, width: 1, dash: "dash" },
        hovertemplate: "%{y:.5g}<extra></extra>",
      }),
    );
  sums.push({
    x: [episode.length - 1],
    y: [episode.return],
    type: "scatter",
    mode: "markers",
    cliponaxis: false,
    marker: { color: given, size: 10, symbol: "diamond" },
    name: `observed ${payload.outcome.singular}`,
    hovertemplate: "%{y:.5g}<extra></extra>",
  });
  rows.push({
    height: 130,
    traces: sums,
    title: `Sum so far: ${word("found", found)}${series.true ? `, ${word("true", truth)}` : ""}, ${word(`observed ${payload.outcome.singular} ◆`, given)}`,
  });
  drawnInputs().forEach((name, i) => {
    const { x, y } = track[`input${i}`];
    rows.push({
      height: 56,
      ticks: 3,
      title: plain(clip(name, 44)),
      traces: [
        line(x, y, ink, {
          name: plain(clip(name, 24)),
          // An input with few values jumps from one to the next.
          line: { color: ink, width: 1, shape: series.few.includes(name) ? "hvh" : "linear" },
          hovertemplate: "%{y:.4g}<extra></extra>",
        }),
      ],
    });
  });
  return rows;
}

function drawViewer(element) {
  const episode = viewer.episode,
    track = viewer.track;
  const rows = rowsOf(episode, track),
    gap = 34,
    foot = 42,
    top = 24;
  const inner = rows.reduce((sum, row) => sum + row.height + gap, -gap);
  const more = {
    margin: { l: 52, r: 14, t: top, b: foot },
    height: inner + top + foot,
    annotations: [],
    hovermode: "x",
    hoversubplots: "axis",
    shapes: [cursor()],
    xaxis: axis({
      title: "step",
      range: viewer.range,
      anchor: `y${rows.length}`,
      automargin: false,
      fixedrange: touch.matches,
      showspikes: false,
    }),
  };
  const traces = [];
  let used = 0;
  rows.forEach((row, index) => {
    const high = 1 - used / inner,
      low = 1 - (used + row.height) / inner,
      id = index ? index + 1 : "";
    used += row.height + gap;
    more[`yaxis${id}`] = axis({
      domain: [Math.max(low, 0), high],
      fixedrange: true,
      nticks: row.ticks ?? 5,
      automargin: false,
    });
    more.annotations.push({
      text: row.title,
      xref: "paper",
      yref: "paper",
      x: 0,
      y: high,
      xanchor: "left",
      yanchor: "bottom",
      yshift: 3,
      showarrow: false,
      bgcolor: colour("paper"),
      borderpad: 1,
      font: { size: 12.5, color: colour("ink") },
    });
    for (const trace of row.traces) traces.push({ ...trace, xaxis: "x", yaxis: `y${id}` });
  });
  element.style.height = `${more.height}px`;
  show(element, traces, more);
  const gapSize = Math.abs(episode.return - episode.sum);
  element.setAttribute(
    "aria-label",
    `Episode ${episode.index} of ${episode.length} steps. Rewards found lie between ${tell(Math.min(...track.reward.y))} and ` +
      `${tell(Math.max(...track.reward.y))} and add up to ${tell(episode.sum)}; the observed ${payload.outcome.singular} is ${tell(episode.return)}, ` +
      `${tell(gapSize)} apart. Below: ${drawnInputs().join(", ") || "no inputs"}.`,
  );
  if (!element.dataset.listens) {
    element.dataset.listens = "yes";
    element.on("plotly_hover", (event) => setStep(Math.round(event.points[0].x)));
    element.on("plotly_relayout", (event) => {
      if (event["xaxis.range[0]"] !== undefined)
        viewer.range = [event["xaxis.range[0]"], event["xaxis.range[1]"]];
      if (event["xaxis.autorange"]) viewer.range = fullRange();
    });
  }
}

const fullRange = () => [-0.01 * viewer.episode.length, 1.01 * viewer.episode.length];

const cursor = () => ({
  type: "line",
  xref: "x",
  yref: "paper",
  x0: viewer.step,
  x1: viewer.step,
  y0: 0,
  y1: 1,
  line: { color: colour("muted"), width: 1.2, dash: "dot" },
});

function setStep(step) {
  const { episode, track } = viewer;
  viewer.step = Math.max(0, Math.min(step, episode.length - 1));
  find("#step").value = viewer.step;
  const at = nearest(track.reward.x, viewer.step),
    reward = track.reward.y[at];
  const spread =
    Z90 *
    track.std.y[Math.min(Math.floor(track.reward.x[at] / episode.width), track.std.y.length - 1)];
  const sum =
    track.sum.y[Math.min(Math.floor(viewer.step / episode.width), track.sum.y.length - 1)];
  const parts = [
    `Step ${viewer.step} of ${episode.length}`,
    `reward ${tell(reward)} (${tell(reward - spread)} to ${tell(reward + spread)})`,
  ];
  if (track.true) parts.push(`true ${tell(track.true.y[nearest(track.true.x, viewer.step)])}`);
  parts.push(`sum so far ${tell(sum)}`, `observed ${payload.outcome.singular} ${tell(episode.return)}`);
  find("#reading").textContent = parts.join("  ·  ");
  showFrame();
  if (!viewer.pending) {
    viewer.pending = requestAnimationFrame(() => {
      viewer.pending = 0;
      if (drawn.has(viewer.element))
        Plotly.relayout(viewer.element, {
          "shapes[0].x0": viewer.step,
          "shapes[0].x1": viewer.step,
        });
      const waterfall = find(".waterfall");
      if (drawn.has(waterfall)) drawWaterfall(waterfall);
    });
  }
}

function showFrame() {
  const clip = payload.film?.[viewer.episode.index],
    frame = find(".film .frame");
  if (!frame) return;
  find(".film").hidden = !clip;
  if (!clip) return;
  const at = nearest(clip.steps, viewer.step),
    rows = Math.ceil(clip.steps.length / clip.columns);
  if (frame.dataset.episode !== String(viewer.episode.index)) {
    frame.dataset.episode = viewer.episode.index;
    frame.style.cssText =
      `width:${clip.width}px;height:${clip.height}px;background-image:url(${clip.image});` +
      `background-size:${clip.width * clip.columns}px ${clip.height * rows}px`;
  }
  frame.dataset.step = clip.steps[at];
  frame.style.backgroundPosition = `-${(at % clip.columns) * clip.width}px -${Math.floor(at / clip.columns) * clip.height}px`;
  frame.setAttribute(
    "aria-label",
    `Episode ${viewer.episode.index} as rendered at step ${clip.steps[at]}`,
  );
}

function playFilm() {
  const clip = payload.film?.[viewer.episode.index];
  if (viewer.play || !clip) {
    clearInterval(viewer.play);
    viewer.play = 0;
  } else {
    let at = nearest(clip.steps, viewer.step);
    if (at === clip.steps.length - 1) at = -1;
    viewer.play = setInterval(
      () => {
        at += 1;
        setStep(clip.steps[at]);
        if (at === clip.steps.length - 1) playFilm();
      },
      calm.matches ? 500 : 120,
    );
  }
  find("#play").textContent = viewer.play ? "Pause" : "Play";
}

function pickEpisode(index) {
  if (viewer.play) playFilm();
  viewer.episode = payload.viewer.episodes.find((episode) => episode.index === index);
  viewer.track = decode(viewer.episode);
  viewer.range = fullRange();
  find("#episode").value = index;
  const slider = find("#step");
  slider.max = viewer.episode.length - 1;
  const { width } = viewer.episode;
  find("#thinned").textContent =
    width === 1
      ? "Every step is drawn."
      : `Of every ${width} steps, the drawing has the smallest and the largest value. ` +
        "The best, the median and the worst episode have every step, if there is room.";
  if (drawn.has(viewer.element)) drawViewer(viewer.element);
  setStep(Math.min(viewer.step, viewer.episode.length - 1));
}

function fillPicker() {
  const select = find("#episode"),
    chosen = viewer.episode?.index;
  const list = [...payload.viewer.episodes];
  if (viewer.order === "return") list.sort((a, b) => b.return - a.return);
  select.replaceChildren(
    ...list.map(
      (episode) => new Option(`${episode.label ?? episode.index}: ${payload.outcome.singular} ${tell(episode.return)}`, episode.index),
    ),
  );
  if (chosen !== undefined) select.value = chosen;
}

function zoom(kind) {
  const [low, high] = viewer.range,
    width = high - low;
  if (kind === "all") viewer.range = fullRange();
  else {
    const wanted = Math.max(8, kind === "in" ? width / 2 : width * 2),
      [first, last] = fullRange();
    const middle = kind === "in" ? viewer.step : (low + high) / 2;
    const start = Math.max(first, Math.min(middle - wanted / 2, last - wanted));
    viewer.range = [start, Math.min(start + wanted, last)];
  }
  Plotly.relayout(viewer.element, { "xaxis.range": viewer.range.slice() });
}

function startViewer() {
  viewer.element = find(".viewer");
  fillPicker();
  const select = find("#episode"),
    move = (by) => {
      const option =
        select.options[
          Math.max(0, Math.min(select.selectedIndex + by, select.options.length - 1))
        ];
      pickEpisode(Number(option.value));
    };
  select.addEventListener("change", () => pickEpisode(Number(select.value)));
  find("#order").addEventListener("change", (event) => {
    viewer.order = event.target.value;
    fillPicker();
  });
  find("#previous").addEventListener("click", () => move(-1));
  find("#next").addEventListener("click", () => move(1));
  find("#step").addEventListener("input", (event) => setStep(Number(event.target.value)));
  find("#play")?.addEventListener("click", playFilm);
  for (const button of findAll("[data-landmark]"))
    button.addEventListener("click", () =>
      pickEpisode(payload.viewer.landmarks[button.dataset.landmark]),
    );
  for (const button of findAll("[data-zoom]"))
    button.addEventListener("click", () => zoom(button.dataset.zoom));
  pickEpisode(payload.viewer.landmarks.median);
}
