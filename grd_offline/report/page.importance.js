// How much of the reward's variation comes from each input.
drawers.importance = (element) => {
  const found = [...payload.importance].reverse();
  const narrow = element.clientWidth < 560;
  const names = found.map((one) => one.name);
  const joint = found.some((one) => one.joint > 0);
  const part = (key, name, tint) => {
    const shares = found.map((one) => 100 * one[key]);
    const more = { name, hoverlabel: { bordercolor: colour("accent") } };
    return bars(shares, names, tint, `%{text}, ${name}: %{x:.2f} %`, more);
  };
  const together = part("joint", "together with others", fade(colour("accent"), 0.4));
  show(element, [part("alone", "alone", colour("accent")), ...(joint ? [together] : [])], {
    height: found.length * 30 + (joint ? 86 : 58),
    barmode: "stack",
    bargap: 0.35,
    margin: { l: 40, r: 64, t: joint ? 30 : 6, b: 44 },
    showlegend: joint,
    xaxis: axis("share of the reward's variation, %", { range: [0, 100] }),
    yaxis: nameAxis(names, narrow ? 12 : 14, narrow ? 16 : 34),
    annotations: found.map(({ alone, joint }, y) => {
      const at = { x: 100 * Math.min(1, alone + joint), y, xanchor: "left", xshift: 6 };
      return mark(share(alone + joint), at, font(narrow ? 12 : 14, "ink"));
    }),
  });
};
