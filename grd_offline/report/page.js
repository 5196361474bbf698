"use strict";
// Draws what Python prepared: the payload holds numbers, the page's elements say what goes where.
// Names come from data: they reach the page through textContent, and Plotly through plain().
(() => {
  const payload = JSON.parse(document.getElementById("payload").textContent);
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const touch = matchMedia("(pointer: coarse)");
  const Z90 = 1.6448536269514722;
  const find = (selector, within = document) => within.querySelector(selector);
  const findAll = (selector, within = document) => [...within.querySelectorAll(selector)];

  // ---------------------------------------------------------------- numbers and names

  const toBytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  /** Numbers of a packed array, in rows where it has two dimensions, in planes where three. */
  function unpack({ shape, low, high, data }) {
    const levels = new Uint16Array(toBytes(data).buffer);
    const flat = Array.from(levels, (level) => low + (level * (high - low)) / 65535);
    return shape.slice(1).reduceRight((items, size) => chunk(items, size), flat);
  }

  const chunk = (items, size) =>
    Array.from({ length: items.length / size }, (_, i) => items.slice(i * size, (i + 1) * size));

  /** Text as Plotly shows it letter by letter: it reads a little HTML. */
  const plain = (text) =>
    String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  /** Long text without its middle: names often differ at their ends. */
  function clip(text, most) {
    if (text.length <= most) return text;
    const tail = Math.floor((most - 1) / 2);
    return `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}`;
  }

  function tell(value) {
    if (value === null || !Number.isFinite(value)) return "nothing";
    if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
    return String(Number(value.toPrecision(3)));
  }

  /** Position of the last entry that is not above the value, in a rising list. */
  function locate(list, value) {
    let low = 0,
      high = list.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (list[middle] <= value) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  function nearest(list, value) {
    const at = locate(list, value);
    return at + 1 < list.length && list[at + 1] - value < value - list[at] ? at + 1 : at;
  }

  // ---------------------------------------------------------------- looks

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  function fade(hex, share) {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    return `rgba(${red},${green},${blue},${share})`;
  }

  const axis = (more = {}) => ({
    gridcolor: colour("line"),
    zerolinecolor: colour("faint"),
    zerolinewidth: 1,
    linecolor: colour("line"),
    tickcolor: colour("line"),
    automargin: true,
    fixedrange: touch.matches,
    tickfont: { size: 11, color: colour("muted") },
    ...more,
    title: { text: more.title ?? "", font: { size: 12, color: colour("muted") }, standoff: 8 },
  });

  const layout = (more) => ({
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    font: { family: colour("sans"), size: 12, color: colour("ink") },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("faint"), activecolor: colour("muted") },
    margin: { l: 46, r: 12, t: 10, b: 38 },
    dragmode: touch.matches ? false : "zoom",
    hoverlabel: {
      bgcolor: colour("card"),
      bordercolor: colour("line"),
      font: { color: colour("ink"), size: 12 },
    },
    ...more,
  });

  const config = {
    responsive: true,
    displaylogo: false,
    scrollZoom: false,
    doubleClick: "reset",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };

  const show = (element, traces, more) => Plotly.react(element, traces, layout(more), config);

  const line = (x, y, tint, more = {}) => ({
    x,
    y,
    type: "scatter",
    mode: "lines",
    line: { color: tint, width: 1.6 },
    hoverlabel: { bordercolor: tint },
    ...more,
  });

  /** Two edges with the room between them filled. */
  const band = (x, low, high, tint, more = {}) => [
    { x, y: low, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", ...more },
    {
      x,
      y: high,
      type: "scatter",
      mode: "lines",
      line: { width: 0 },
      hoverinfo: "skip",
      fill: "tonexty",
      fillcolor: fade(tint, 0.22),
      ...more,
    },
  ];

  // ---------------------------------------------------------------- the episode viewer

  const viewer = payload.viewer && { step: 0, order: "index", play: 0 };

  /** The series of one episode; see pack_series in packing.py. */
  function decode(episode) {
    const { length, width, ranges } = episode,
      series = payload.viewer.series;
    const spiky = [
      "reward",
      ...(series.true ? ["true"] : []),
      ...(series.observed ? ["observed"] : []),
      ...series.inputs.map((_, i) => `input${i}`),
    ];
    const smooth = ["std", "sum", ...(series.true ? ["trueSum"] : [])];
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
    rows.push({ height: 54, traces: delivered, title: word("Observed reward", given), ticks: 2 });
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
      name: "observed return",
      hovertemplate: "%{y:.5g}<extra></extra>",
    });
    rows.push({
      height: 130,
      traces: sums,
      title: `Sum so far: ${word("found", found)}${series.true ? `, ${word("true", truth)}` : ""}, ${word("observed return ◆", given)}`,
    });
    series.inputs.forEach((name, i) => {
      const { x, y } = track[`input${i}`];
      rows.push({
        height: 56,
        ticks: 3,
        title: plain(clip(name, 44)),
        traces: [
          line(x, y, ink, {
            name: plain(clip(name, 24)),
            line: { color: ink, width: 1 },
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
        `${tell(Math.max(...track.reward.y))} and add up to ${tell(episode.sum)}; the observed return is ${tell(episode.return)}, ` +
        `${tell(gapSize)} apart. Below: ${payload.viewer.series.inputs.join(", ") || "no inputs"}.`,
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
    parts.push(`sum so far ${tell(sum)}`, `return ${tell(episode.return)}`);
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
        : `Drawn: of every ${width} steps the smallest and the largest value, where they stand. The relabelled data have every step; ` +
          "so do the best, the median and the worst episode here, if they fit.";
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
        (episode) => new Option(`${episode.index}: return ${tell(episode.return)}`, episode.index),
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

  // ---------------------------------------------------------------- effects

  function drawEffect(element) {
    const effect = payload.effects[element.dataset.index];
    const grids = effect.grids.map(unpack),
      mean = unpack(effect.mean),
      std = unpack(effect.std);
    if (grids.length === 1) {
      const tint = colour("accent"),
        low = mean.map((m, i) => m - Z90 * std[i]),
        high = mean.map((m, i) => m + Z90 * std[i]);
      show(
        element,
        [
          ...band(grids[0], low, high, tint),
          line(grids[0], mean, tint, {
            name: "",
            line: { color: tint, width: 2 },
            customdata: std.map((s) => Z90 * s),
            hovertemplate: "at %{x:.3g}: %{y:.3g} ± %{customdata:.2g}<extra></extra>",
          }),
        ],
        {
          xaxis: axis({ nticks: 6, zeroline: false }),
          yaxis: axis({ nticks: 5 }),
          margin: { l: 40, r: 6, t: 6, b: 24 },
        },
      );
      return;
    }
    const slider = find(".slice", element.parentElement),
      depth = slider ? Number(slider.value) : null;
    const cut = (values) =>
      depth === null ? values : values.map((plane) => plane.map((row) => row[depth]));
    const surface = cut(mean),
      spread = cut(std),
      most = Math.max(...mean.flat(2).map(Math.abs)) || 1;
    // Rows of a heat map go up: the first input runs across.
    const turn = (rows) => rows[0].map((_, j) => rows.map((row) => row[j]));
    show(
      element,
      [
        {
          type: "heatmap",
          x: grids[0],
          y: grids[1],
          z: turn(surface),
          customdata: turn(spread.map((row) => row.map((s) => Z90 * s))),
          zmin: -most,
          zmax: most,
          zsmooth: "best",
          colorscale: diverging(),
          colorbar: {
            thickness: 8,
            outlinewidth: 0,
            tickfont: { size: 10, color: colour("muted") },
            nticks: 5,
          },
          hovertemplate: "%{x:.3g}, %{y:.3g}: %{z:.3g} ± %{customdata:.2g}<extra></extra>",
        },
      ],
      {
        xaxis: axis({ title: plain(clip(effect.inputs[0], 30)), nticks: 5 }),
        yaxis: axis({ title: plain(clip(effect.inputs[1], 20)), nticks: 5 }),
        margin: { l: 46, r: 4, t: 6, b: 38 },
      },
    );
    if (slider && !slider.dataset.listens) {
      slider.dataset.listens = "yes";
      slider.addEventListener("input", () => drawEffect(element));
    }
  }

  /** From blue through the page's own colour to vermillion. */
  const diverging = () => [
    [0, colour("accent")],
    [0.5, colour("soft")],
    [1, colour("second")],
  ];

  // ---------------------------------------------------------------- the causal graph

  /** The four masks as rows of levels: 0 where there is no edge, else 1 to 255. */
  function readMasks(graph, masks = graph.masks) {
    const states = graph.states.length;
    return {
      stateReward: [...toBytes(masks.state_to_reward)],
      actionReward: [...toBytes(masks.action_to_reward)],
      stateState: chunk([...toBytes(masks.state_to_state)], states),
      actionState: chunk([...toBytes(masks.action_to_state)], states),
    };
  }

  const drawing = { node: "", edges: null, hover: "" };

  function listEdges(graph) {
    const masks = readMasks(graph),
      edges = [];
    const add = (from, to, level, strong) =>
      level && edges.push({ from, to, level, toReward: to === "r", strong });
    for (const i of graph.shown_states) {
      add(`s${i}`, "r", masks.stateReward[i], true);
      for (const j of graph.shown_states)
        add(`s${i}`, `n${j}`, masks.stateState[i][j], graph.compact[j]);
    }
    for (const i of graph.shown_actions) {
      add(`a${i}`, "r", masks.actionReward[i], true);
      for (const j of graph.shown_states)
        add(`a${i}`, `n${j}`, masks.actionState[i][j], graph.compact[j]);
    }
    // Those to the reward first, then the strongest.
    return edges.sort((a, b) => b.toReward - a.toReward || b.level - a.level);
  }

  function make(tag, attributes = {}, text = null) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== null) element.textContent = text;
    return element;
  }

  function startGraph(graph) {
    const select = find("#node"),
      slider = find("#edges"),
      edges = listEdges(graph);
    const nodes = [
      ["", "everything"],
      ["r", "the reward"],
      ...graph.shown_states.map((i) => [`s${i}`, graph.states[i]]),
      ...graph.shown_actions.map((i) => [`a${i}`, graph.actions[i]]),
    ];
    select.replaceChildren(...nodes.map(([key, name]) => new Option(name, key)));
    slider.max = Math.max(1, edges.length);
    drawing.edges = Math.min(edges.length, edges.filter((edge) => edge.toReward).length + 36);
    slider.value = drawing.edges;
    const again = () => drawn.has(find(".graph")) && drawGraph(find(".graph"));
    select.addEventListener("change", () => {
      drawing.node = select.value;
      again();
    });
    slider.addEventListener("input", () => {
      drawing.edges = Number(slider.value);
      again();
    });
  }

  function drawGraph(element) {
    const graph = payload.graph,
      wide = element.clientWidth || 800,
      row = wide < 560 ? 21 : 24;
    const states = graph.shown_states,
      actions = graph.shown_actions;
    const side = Math.min(wide * 0.34, 190),
      left = side,
      right = wide - side,
      letters = Math.floor((side - 18) / (wide < 560 ? 6 : 7.1));
    const place = {},
      top = 34;
    states.forEach((i, k) => {
      place[`s${i}`] = [left, top + k * row];
      place[`n${i}`] = [right, top + k * row];
    });
    const below = top + states.length * row + row * 1.1;
    actions.forEach((i, k) => {
      place[`a${i}`] = [left, below + k * row];
    });
    place.r = [right, below + ((Math.max(actions.length, 1) - 1) * row) / 2];
    const height = Math.max(below + actions.length * row, place.r[1] + row) + 4;
    const svg = make("svg", { viewBox: `0 0 ${wide} ${height}`, "aria-hidden": "true" });
    const all = listEdges(graph),
      focus = drawing.hover || drawing.node;
    // A dimension's own focus covers it both now and next.
    const same = focus.startsWith("s") ? [focus, `n${focus.slice(1)}`] : [focus];
    const seen = focus
      ? all.filter((edge) => same.includes(edge.from) || same.includes(edge.to))
      : all.slice(0, drawing.edges);
    const lit = new Set(seen.flatMap((edge) => [edge.from, edge.to]));
    for (const edge of [...seen].reverse()) {
      const [x0, y0] = place[edge.from],
        [x1, y1] = place[edge.to],
        bend = (x1 - x0) * 0.45,
        gap = edge.toReward ? 15 : 9;
      const strength = edge.level / 255,
        tint = edge.toReward ? colour("second") : edge.strong ? colour("accent") : colour("faint");
      svg.append(
        make("path", {
          d: `M${x0 + 9},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1 - gap},${y1}`,
          stroke: tint,
          "stroke-width": (0.5 + 4.5 * strength).toFixed(2),
          "stroke-opacity": edge.toReward ? 0.9 : focus ? 0.7 : 0.2 + 0.4 * strength,
        }),
      );
    }
    const node = (key, name, shape, anchor) => {
      const [x, y] = place[key],
        away = focus && !lit.has(key) && !same.includes(key);
      const group = make("g", { class: `node${away ? " away" : ""}` });
      group.append(
        shape(x, y),
        make(
          "text",
          {
            x: anchor === "end" ? x - 13 : x + (key === "r" ? 18 : 13),
            y: y + 4,
            "text-anchor": anchor === "end" ? "end" : "start",
          },
          clip(name, letters),
        ),
        make("title", {}, name),
      );
      const plainKey = key.startsWith("n") ? `s${key.slice(1)}` : key;
      group.addEventListener("pointerenter", (event) => {
        if (event.pointerType === "mouse" && drawing.hover !== plainKey) {
          drawing.hover = plainKey;
          drawGraph(element);
        }
      });
      group.addEventListener("click", () => {
        drawing.node = drawing.node === plainKey ? "" : plainKey;
        drawing.hover = "";
        find("#node").value = drawing.node;
        drawGraph(element);
      });
      svg.append(group);
    };
    const circle = (compact) => (x, y) =>
      make("circle", {
        cx: x,
        cy: y,
        r: 5.5,
        fill: compact ? colour("accent") : colour("paper"),
        stroke: compact ? colour("accent") : colour("muted"),
        "stroke-width": 1.5,
      });
    const square = (x, y) =>
      make("rect", {
        x: x - 5,
        y: y - 5,
        width: 10,
        height: 10,
        fill: colour("paper"),
        stroke: colour("ink"),
        "stroke-width": 1.5,
      });
    svg.append(
      make("text", { class: "head", x: left, y: 14, "text-anchor": "end" }, "this step"),
      make("text", { class: "head", x: right, y: 14 }, "next step"),
    );
    for (const i of states) {
      node(`s${i}`, graph.states[i], circle(graph.compact[i]), "end");
      node(`n${i}`, graph.states[i], circle(graph.compact[i]), "start");
    }
    for (const i of actions) node(`a${i}`, graph.actions[i], square, "end");
    node(
      "r",
      "reward",
      (x, y) => make("circle", { cx: x, cy: y, r: 10, fill: colour("second"), stroke: "none" }),
      "start",
    );
    svg.addEventListener("pointerleave", () => {
      if (drawing.hover) {
        drawing.hover = "";
        drawGraph(element);
      }
    });
    const key = document.createElement("ul");
    key.className = "key";
    const entry = (shape, text) => {
      const item = document.createElement("li"),
        sign = make("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
      sign.append(shape);
      item.append(sign, text);
      return item;
    };
    key.append(
      entry(circle(1)(8, 8), "state in the compact state"),
      entry(circle(0)(8, 8), "other state"),
      entry(square(8, 8), "action"),
      entry(make("circle", { cx: 8, cy: 8, r: 7, fill: colour("second") }), "reward"),
    );
    const hidden = graph.states.length - states.length + graph.actions.length - actions.length;
    const count = `${focus ? seen.length : Math.min(drawing.edges, all.length)} of ${all.length} lines shown`;
    key.append(
      Object.assign(document.createElement("li"), {
        textContent: hidden
          ? `${count}; ${hidden} weaker dimensions are in the heat maps only`
          : count,
      }),
    );
    element.replaceChildren(svg, key);
  }

  /** The four masks in one picture: causes are rows, effects are columns, the reward stands apart. */
  function drawMaps(element, graph, masks, strengths) {
    const states = graph.states.length,
      actions = graph.actions.length;
    const names = [...graph.states, ...graph.actions].map((name) => name.length),
      left = Math.min(170, 26 + 6.2 * Math.max(...names));
    const room = (element.closest(".scroll") ?? element).clientWidth || 700;
    const units = states + 2.6,
      cell = Math.max(states > 60 ? 4 : 13, Math.min(30, (room - left - 16) / units));
    const bottom = Math.min(
        150,
        22 + 6.2 * Math.max(...graph.states.map((name) => name.length), 6),
      ),
      top = 26;
    const width = left + units * cell + 16,
      down = states + actions + 1,
      height = down * cell + bottom + top;
    const colours = [
      [0, fade(colour("accent"), 0.25)],
      [1, colour("accent")],
    ];
    const block = (rows, causes, effects, x, y) => ({
      type: "heatmap",
      x: effects.map((_, i) => i),
      y: causes.map((_, i) => i),
      xaxis: x,
      yaxis: y,
      xgap: cell > 8 ? 1 : 0,
      ygap: cell > 8 ? 1 : 0,
      z: rows.map((levels) => levels.map((level) => level || null)),
      zmin: 1,
      zmax: strengths ? 255 : 1,
      colorscale: strengths
        ? colours
        : [
            [0, colour("accent")],
            [1, colour("accent")],
          ],
      showscale: false,
      hoverongaps: false,
      text: rows.map((levels, i) =>
        levels.map(
          (level, j) =>
            `${plain(causes[i])} → ${plain(effects[j])}${strengths ? `: ${tell(100 * (level / 255) ** 2)} % of the strongest` : ""}`,
        ),
      ),
      hovertemplate: "%{text}<extra></extra>",
    });
    const every = Math.ceil(14 / cell),
      ticks = (list, more) => ({
        tickmode: "array",
        tickvals: list.map((_, i) => i).filter((i) => i % every === 0),
        ticktext: list.map((name) => plain(clip(name, 24))).filter((_, i) => i % every === 0),
        showgrid: false,
        zeroline: false,
        ticks: "",
        automargin: false,
        fixedrange: true,
        ...more,
      });
    const split = (down - states) / down,
      edge = states / units;
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
    const reward = ["reward"],
      frame = {
        type: "rect",
        xref: "paper",
        yref: "paper",
        line: { width: 0 },
        fillcolor: colour("soft"),
        layer: "below",
      };
    const across = [
        [0, edge],
        [1 - 1.6 / units, 1],
      ],
      downs = [
        [split, 1],
        [0, actions / down],
      ];
    Plotly.react(
      element,
      [
        block(masks.stateState, graph.states, graph.states, "x", "y"),
        block(
          masks.stateReward.map((level) => [level]),
          graph.states,
          reward,
          "x2",
          "y",
        ),
        block(masks.actionState, graph.actions, graph.states, "x", "y2"),
        block(
          masks.actionReward.map((level) => [level]),
          graph.actions,
          reward,
          "x2",
          "y2",
        ),
      ],
      layout({
        width,
        height,
        margin: { l: left, r: 16, t: top, b: bottom },
        dragmode: false,
        annotations: [
          ["→ next state", across[0][0], "left"],
          ["→ reward", across[1][1], "right"],
        ].map(([text, x, xanchor]) => ({
          text,
          x,
          xanchor,
          y: 1,
          yanchor: "bottom",
          yshift: 4,
          xref: "paper",
          yref: "paper",
          showarrow: false,
          font: { size: 12, color: colour("muted") },
        })),
        shapes: across.flatMap(([x0, x1]) =>
          downs.map(([y0, y1]) => ({ ...frame, x0, x1, y0, y1 })),
        ),
        xaxis: axis(
          ticks(graph.states, {
            domain: across[0],
            anchor: "y2",
            range: [-0.5, states - 0.5],
            tickangle: -90,
          }),
        ),
        xaxis2: axis(
          ticks(reward, { domain: across[1], anchor: "y2", range: [-0.5, 0.5], tickangle: -90 }),
        ),
        yaxis: axis(ticks(graph.states, { domain: downs[0], range: [states - 0.5, -0.5] })),
        yaxis2: axis(ticks(graph.actions, { domain: downs[1], range: [actions - 0.5, -0.5] })),
      }),
      { ...config, responsive: false, displayModeBar: false },
    );
  }

  // ---------------------------------------------------------------- how good it is

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
      name: "in the fit",
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
      xaxis: axis({ title: "observed return", range: ends, zeroline: false }),
      yaxis: axis({ title: "predicted return", range: ends, zeroline: false }),
      margin: { l: 60, r: 10, t: 30, b: 44 },
      showlegend: Boolean(held),
      legend: {
        orientation: "h",
        x: 0,
        y: 1.02,
        yanchor: "bottom",
        font: { size: 12, color: colour("muted") },
      },
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
    add(returns, "returns held out", colour("accent"), "circle");
    add(rewards, "true step rewards", colour("second"), "square");
    show(element, traces, {
      xaxis: axis({ title: "level of the interval, %", range: [0, 101] }),
      yaxis: axis({ title: "values inside it, %", range: [0, 104] }),
      margin: { l: 52, r: 10, t: 30, b: 44 },
      showlegend: true,
      legend: {
        orientation: "h",
        x: 0,
        y: 1.02,
        yanchor: "bottom",
        font: { size: 12, color: colour("muted") },
      },
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
        xaxis: axis({ title: "known, %", range: [0, 101] }),
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

  // ---------------------------------------------------------------- runs

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
      if (seeds)
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
    const masks = readMasks(member, moment.masks),
      flat = Object.values(masks).map((mask) => mask.flat());
    const parts = ["state to reward", "action to reward", "state to state", "action to state"].map(
      (name, i) =>
        `${name} ${Math.round((100 * flat[i].filter(Boolean).length) / flat[i].length)} %`,
    );
    find("#mask-reading").textContent =
      `Step ${moment.step.toLocaleString("en")}: edges on, ${parts.join(", ")}; compact state ${moment.compact} of ${member.states.length}`;
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
        legend: {
          orientation: "h",
          x: 0,
          y: 1.02,
          yanchor: "bottom",
          font: { size: 12, color: colour("muted") },
        },
      },
    );
    element.setAttribute(
      "aria-label",
      `Rewards found and true of ${member.label} at training step ${moment.step}: ${moment.match}`,
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
        legend: {
          orientation: "h",
          x: 0,
          y: 1.02,
          yanchor: "bottom",
          font: { size: 12, color: colour("muted") },
        },
      },
    );
  }

  // ---------------------------------------------------------------- verdicts

  /** A straight line to measure others by, and words beside it. */
  const level = (at, dash = "dot") => ({
    type: "line",
    layer: "below",
    line: { color: colour("muted"), width: 1.5, dash },
    ...at,
  });

  const mark = (text, at) => ({
    text,
    showarrow: false,
    font: { size: 12, color: colour("muted") },
    ...at,
  });

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
      if (many)
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
          marker: { color: fade(color, 0.75), size: 5 },
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
          many = point.scores.length > 1;
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
          title: "Pearson with the true rewards, per step",
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

  // ---------------------------------------------------------------- the page

  const drawers = {
    viewer: drawViewer,
    effect: drawEffect,
    graph: drawGraph,
    returns: drawReturns,
    calibration: drawCalibration,
    pinned: drawPinned,
    maps: (element) => drawMaps(element, payload.graph, readMasks(payload.graph), true),
    learning: drawLearning,
    "run-masks": drawRunMasks,
    rewards: drawRewards,
    speed: drawSpeed,
    verdicts: drawVerdicts,
    nearness: drawNearness,
  };
  const drawn = new Set();
  const draw = (element) => {
    drawn.add(element);
    drawers[element.dataset.draw](element);
  };
  const redraw = () => [...drawn].forEach(draw);

  function startTabs() {
    for (const list of findAll("[role=tablist]")) {
      const tabs = findAll("[role=tab]", list);
      const choose = (chosen) =>
        tabs.forEach((tab) => {
          const on = tab === chosen;
          tab.setAttribute("aria-selected", on);
          tab.tabIndex = on ? 0 : -1;
          document.getElementById(tab.getAttribute("aria-controls")).hidden = !on;
          if (on) tab.focus();
        });
      tabs.forEach((tab, index) => {
        tab.addEventListener("click", () => choose(tab));
        tab.addEventListener("keydown", (event) => {
          const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (by) {
            event.preventDefault();
            choose(tabs[(index + by + tabs.length) % tabs.length]);
          }
        });
      });
    }
  }

  if (viewer) startViewer();
  if (payload.graph) startGraph(payload.graph);
  if (payload.metrics) startRuns();
  startTabs();
  // What is near the window is drawn; the rest when it comes near.
  const watch = new IntersectionObserver(
    (entries) =>
      entries.forEach((entry) => {
        if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
      }),
    { rootMargin: "300px" },
  );
  findAll("[data-draw]").forEach((element) => watch.observe(element));
  dark.addEventListener("change", redraw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    for (const element of drawn)
      if (["graph", "maps", "run-masks", "pinned", "verdicts", "nearness"].includes(element.dataset.draw))
        draw(element);
  });
  addEventListener("beforeprint", () => {
    root.dataset.print = "";
    findAll("[data-draw]").forEach(draw);
  });
  addEventListener("afterprint", () => {
    delete root.dataset.print;
    redraw();
  });
  root.dataset.ready = "";
})();
