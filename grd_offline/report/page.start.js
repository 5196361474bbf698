// Finds the drawings of the page, and draws what comes near the window.
// These choose their size or their words by the width of the window.
const fluid = "importance waterfall graph maps run-masks pinned verdicts nearness".split(" ");
const drawn = new Set();
const draw = (element) => {
  drawn.add(element);
  drawers[element.dataset.draw](element);
};
/** Draw again what is drawn already, of all kinds or of these. */
const redraw = (...kinds) =>
  drawn.forEach((element) => {
    if (!kinds.length || kinds.includes(element.dataset.draw)) draw(element);
  });

/** Show the panel of a tab, and no other. */
function choose(chosen) {
  for (const tab of findAll("[role=tab]")) {
    const on = tab === chosen;
    tab.setAttribute("aria-selected", on);
    tab.tabIndex = on ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !on;
  }
  chosen.focus();
}

function moveTab(tab, event) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const tabs = findAll("[role=tab]");
  choose(tabs.at((tabs.indexOf(tab) + by) % tabs.length));
}

/** A button that copies the code beside it. */
async function copy(button) {
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
}

if (viewer) startViewer();
if (payload.graph) startGraph(payload.graph);
listen("[role=tab]", "click", choose);
listen("[role=tab]", "keydown", moveTab);
listen(".copy", "click", copy);
listen("#metric, #seeds", "change", () => redraw("learning"));
listen("#scale", "change", () => redraw("verdicts"));
listen("#mask-member, #mask-moment", "input", () => redraw("run-masks"));
listen("#reward-member, #reward-moment", "input", () => redraw("rewards"));
// What is near the window is drawn; the rest when it comes near.
const watch = new IntersectionObserver(
  (entries) =>
    entries.forEach(({ isIntersecting, target }) => {
      if (isIntersecting && !drawn.has(target)) draw(target);
    }),
  { rootMargin: "300px" },
);
findAll("[data-draw]").forEach((element) => watch.observe(element));
dark.addEventListener("change", () => redraw());
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) redraw(...fluid);
  width = innerWidth;
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
