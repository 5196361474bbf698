// How much of the reward's variation comes from each input.

function drawImportance(element) {
  const bars = [...payload.importance].reverse(),
    narrow = element.clientWidth < 560,
    rows = bars.map((_, row) => row),
    joint = bars.some((bar) => bar.joint > 0);
  const part = (key, name, tint) => ({
    type: "bar",
    orientation: "h",
    name,
    x: bars.map((bar) => 100 * bar[key]),
    y: rows,
    text: bars.map((bar) => plain(bar.name)),
    textposition: "none",
    marker: { color: tint },
    hoverlabel: { bordercolor: colour("accent") },
    hovertemplate: `%{text}, ${name}: %{x:.2f} %<extra></extra>`,
  });
  element.style.height = `${bars.length * 30 + (joint ? 86 : 58)}px`;
  show(
    element,
    [
      part("alone", "alone", colour("accent")),
      ...(joint ? [part("joint", "together with others", fade(colour("accent"), 0.4))] : []),
    ],
    {
      barmode: "stack",
      bargap: 0.35,
      margin: { l: 40, r: 64, t: joint ? 30 : 6, b: 44 },
      showlegend: joint,
      legend: { ...topLegend(), traceorder: "normal" },
      xaxis: axis({ title: "share of the reward's variation, %", range: [0, 100] }),
      yaxis: axis({
        tickvals: rows,
        ticktext: bars.map((bar) => plain(clip(bar.name, narrow ? 16 : 34))),
        tickfont: { size: narrow ? 12 : 14, color: colour("ink") },
        ticklabelstandoff: 6,
        showgrid: false,
        zeroline: false,
        ticks: "",
      }),
      annotations: bars.map((bar, row) => ({
        text: share(bar.alone + bar.joint),
        x: 100 * Math.min(1, bar.alone + bar.joint),
        y: row,
        xanchor: "left",
        xshift: 6,
        showarrow: false,
        font: { size: narrow ? 12 : 14, color: colour("ink") },
      })),
    },
  );
}
