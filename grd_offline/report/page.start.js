// Finds the drawings of the page, and draws what comes near the window.
const drawers = {
  importance: drawImportance,
  viewer: drawViewer,
  waterfall: drawWaterfall,
  effect: drawEffect,
  graph: drawGraph,
  returns: drawReturns,
  calibration: drawCalibration,
  pinned: drawPinned,
  maps: (element) => drawMaps(element, payload.graph, readStrengths(payload.graph), true),
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

/** Buttons that copy the code beside them. */
function startCopying() {
  for (const button of findAll(".copy"))
    button.addEventListener("click", async () => {
      const code = find("code", button.parentElement);
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        // Without a clipboard, the text is at least selected.
        getSelection().selectAllChildren(code);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
}

if (viewer) startViewer();
if (payload.graph) startGraph(payload.graph);
if (payload.metrics) startRuns();
startTabs();
startCopying();
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
// These choose their size or their words by the width of the window.
const redrawn =
  "importance waterfall graph maps run-masks pinned verdicts nearness".split(" ");
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  for (const element of drawn)
    if (redrawn.includes(element.dataset.draw))
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
