// Lines over time, by uPlot. The table below each chart holds the same numbers, so the chart is hidden from readers.

const HEIGHT = 220;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axis(more = {}) {
  return { stroke: colour("--text"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") }, ...more };
}

/** Draw, and draw anew when the colours change. */
function draw(place, options, columns) {
  const size = () => ({ width: Math.max(320, place.clientWidth), height: HEIGHT });
  const chart = () => new uPlot({ ...size(), ...options() }, columns, place);
  let drawn = chart();
  addEventListener("resize", () => drawn.setSize(size()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    drawn.destroy();
    drawn = chart();
  });
}

/** Rows that were served, and drift; a step without rows has no drift. */
function timeline(place, told) {
  draw(place, () => ({
    scales: { rows: {} },
    axes: [axis(), axis({ label: "drift, nats" }), axis({ scale: "rows", side: 1, label: "rows", grid: { show: false } })],
    series: [
      {},
      { label: "drift, nats", stroke: colour("--series-1"), width: 2, points: { show: true } },
      { label: "rows", scale: "rows", stroke: colour("--series-2"), width: 2, dash: [6, 4], points: { show: true } },
    ],
  }), [
    told.map((each) => Date.parse(each.since) / 1000),
    told.map((each) => each.drift_nats ?? null),
    told.map((each) => each.rows.served),
  ]);
}

for (const place of document.querySelectorAll("[data-chart=timeline]")) {
  timeline(place, JSON.parse(document.getElementById("timeline").textContent));
}
