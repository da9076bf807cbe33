// Lines over versions, by uPlot. The table below each chart holds the same numbers, so the chart is hidden from readers.

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function versions(place, told) {
  const axis = { stroke: colour("--text"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
  const chart = () => new uPlot({
    width: Math.max(320, place.clientWidth),
    height: 220,
    scales: { x: { time: false } },
    axes: [{ ...axis, label: "version", incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }, axis],
    series: [
      { label: "version" },
      ...told.names.map((name, i) => ({ label: name, stroke: colour(`--series-${i + 1}`), width: 2, points: { show: true } })),
    ],
  }, [told.versions, ...told.lines], place);
  let drawn = chart();
  addEventListener("resize", () => drawn.setSize({ width: Math.max(320, place.clientWidth), height: 220 }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    drawn.destroy();
    drawn = chart();
  });
}

for (const place of document.querySelectorAll("[data-chart=versions]")) {
  versions(place, JSON.parse(document.getElementById("series").textContent));
}
