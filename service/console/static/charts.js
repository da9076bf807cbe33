// Lines over time, by uPlot. The table below each chart holds the same numbers, so the chart is hidden from readers.

import { digits, zonedTime } from "./dom.js";

const HEIGHT = 220;
const DAY_S = 86400;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axis(more = {}) {
  return { stroke: colour("--text"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") }, ...more };
}

const zone = () => zonedTime(new Date()).split(" ").pop();

/** The axis of times: hours of less than three days, else days, in the time zone that the axis names. */
function times() {
  return axis({
    label: `time, ${zone()}`,
    values: (chart, at) => {
      const isShort = chart.scales.x.max - chart.scales.x.min < 3 * DAY_S;
      return at.map((each, i) => {
        const [day, clock] = zonedTime(new Date(1000 * each)).split(" ");
        return isShort && i && clock !== "00:00" ? clock : isShort ? `${clock}\n${day.slice(5)}` : clock === "00:00" ? day.slice(5) : "";
      });
    },
  });
}

/** The series of times: what the legend shows of the point below the pointer, and nothing without one. */
const moments = { label: "time", value: (_, at) => (at == null ? "" : zonedTime(new Date(1000 * at))) };

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

/** Drift, the estimated share of right answers, and rows that were served; a step without rows has neither of the first two. */
function timeline(place, steps) {
  const line = (label, i, more = {}) => ({ label, value: (_, at) => (at == null ? "" : digits(at)), stroke: colour(`--series-${i}`), width: 2, points: { show: true }, ...more });
  draw(place, () => ({
    scales: { rows: { range: (_, __, most) => [0, Math.max(1, most ?? 0)] }, y: { range: (_, __, most) => [0, Math.max(0.05, most ?? 0)] }, right: { range: [0, 100] } },
    axes: [times(), axis({ label: "drift, log loss a row" }), axis({ scale: "right", side: 1, label: "right, %", grid: { show: false } }), axis({ scale: "rows", side: 1, label: "rows", grid: { show: false }, size: 60 })],
    series: [moments, line("drift", 1), line("right as estimated, %", 3, { scale: "right" }), line("rows", 2, { scale: "rows", dash: [6, 4] })],
  }), [
    steps.map((each) => Date.parse(each.since) / 1000),
    steps.map((each) => each.drift_nats ?? null),
    steps.map((each) => (each.estimated?.accuracy == null ? null : 100 * each.estimated.accuracy)),
    steps.map((each) => each.rows.served),
  ]);
}

/** How right the predictions of each day were beside how sure of themselves, and the calibration error. */
function calibration(place, days) {
  const line = (label, i, more = {}) => ({ label, value: (_, at) => (at == null ? "" : digits(at)), stroke: colour(`--series-${i}`), width: 2, points: { show: true }, ...more });
  const percent = (share) => (share == null ? null : 100 * share);
  draw(place, () => ({
    scales: { right: { range: [0, 100] }, error: { range: (_, __, most) => [0, Math.max(10, most ?? 0)] } },
    axes: [times(), axis({ scale: "right", label: "right, %" }), axis({ scale: "error", side: 1, label: "calibration error, %", grid: { show: false } })],
    series: [moments, line("right by labels, %", 1, { scale: "right" }), line("right as expected, %", 3, { scale: "right", dash: [6, 4] }), line("calibration error, %", 2, { scale: "error" })],
  }), [days.map((each) => Date.parse(each.since) / 1000), ...["accuracy", "expected_accuracy", "ece"].map((name) => days.map((each) => percent(each[name])))]);
}

for (const [name, drawing] of Object.entries({ timeline, calibration })) {
  for (const place of document.querySelectorAll(`[data-chart=${name}]`)) drawing(place, JSON.parse(document.getElementById(name).textContent));
}
