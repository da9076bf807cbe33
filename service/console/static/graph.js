// Finds, sizes and walks the picture of a graph. The arrow keys go to the nearest name or bar in that direction, with Shift they move the box; Enter does what a click does.

import { move } from "./boxes.js";

const picture = document.querySelector(".picture");
const svg = picture?.querySelector(".structure");
const find = document.getElementById("find");
const LEAST = 0.1;
const MOST = 4;
const LEAST_READABLE = 0.7;
const SHARE = 0.75; // of the window, as in the style sheet
const STEP = 1.25;
const JITTER = 3; // pixels
const NUDGE = 20;

// Size

const natural = svg && { width: svg.viewBox.baseVal.width, height: svg.viewBox.baseVal.height };
let scale = 1;

/** Another size, with what is at a place of the window staying there. */
function zoom(to, x = picture.clientWidth / 2, y = picture.clientHeight / 2) {
  const next = Math.min(MOST, Math.max(LEAST, to));
  const [left, top] = [picture.scrollLeft + x, picture.scrollTop + y].map((at) => (at * next) / scale);
  scale = next;
  svg.setAttribute("width", natural.width * scale);
  svg.setAttribute("height", natural.height * scale);
  picture.scrollTo(left - x, top - y);
}

function fit(least = LEAST) {
  const room = Math.min(picture.clientWidth / natural.width, (SHARE * innerHeight) / natural.height, 1);
  zoom(Math.max(least, room));
  picture.scrollTo((natural.width * scale - picture.clientWidth) / 2, 0);
}

if (svg) {
  fit(LEAST_READABLE);
  document.getElementById("fit").addEventListener("click", () => fit());
  document.getElementById("larger").addEventListener("click", () => zoom(scale * STEP));
  document.getElementById("smaller").addEventListener("click", () => zoom(scale / STEP));
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // without a key it scrolls
    event.preventDefault();
    const { left, top } = picture.getBoundingClientRect();
    zoom(scale * STEP ** (-event.deltaY / 100), event.clientX - left, event.clientY - top);
  }, { passive: false });
  // Fingers drag by themselves. A box is held by its name or its rim, the picture anywhere else.
  let held = null;
  picture.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button || event.target.closest(".value, .edge-line") || !event.target.closest(".structure")) return;
    held = { x: event.clientX, y: event.clientY, left: picture.scrollLeft, top: picture.scrollTop, node: event.target.closest(".node") };
  });
  picture.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
    // Only what has moved is a drag; a click stays one of what is below it.
    if (Math.hypot(dx, dy) > JITTER) picture.setPointerCapture(event.pointerId);
    if (!picture.hasPointerCapture(event.pointerId)) return;
    if (held.node) {
      move(svg, held.node, dx / scale, dy / scale);
      held = { ...held, x: event.clientX, y: event.clientY };
    } else picture.scrollTo(held.left - dx, held.top - dy);
  });
  picture.addEventListener("dragstart", (event) => event.preventDefault()); // a name may be a link
  for (const name of ["pointerup", "pointercancel"]) picture.addEventListener(name, () => { held = null; });
}

// Finding

find?.addEventListener("input", () => {
  const wanted = find.value.toLowerCase();
  let first = null;
  for (const node of document.querySelectorAll(".structure .node")) {
    const isFound = wanted !== "" && node.dataset.column.toLowerCase().includes(wanted);
    node.classList.toggle("found", isFound);
    first ??= isFound ? node : null;
  }
  first?.scrollIntoView({ block: "center", inline: "center" });
  for (const row of document.querySelectorAll("#outline tbody tr")) {
    row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
  }
});

// Keys

const DIRECTIONS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
svg?.addEventListener("keydown", (event) => {
  const direction = DIRECTIONS[event.key];
  const here = event.target.closest("a, .value");
  if (!direction || !here) return;
  event.preventDefault();
  if (event.shiftKey) {
    move(svg, here.closest(".node"), ...direction.map((each) => each * NUDGE));
    return;
  }
  const centre = (node) => {
    const box = node.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  const [x, y] = centre(here);
  let best = null;
  let least = Infinity;
  for (const node of svg.querySelectorAll("a, .value")) {
    const [nx, ny] = centre(node);
    const along = (nx - x) * direction[0] + (ny - y) * direction[1];
    const aside = Math.abs((nx - x) * direction[1]) + Math.abs((ny - y) * direction[0]);
    if (node === here || along <= 1) continue;
    const distance = along + 2 * aside;
    if (distance < least) [best, least] = [node, distance];
  }
  best?.focus();
});
// Where no name is a link, the first bar is what the tab key reaches.
if (svg && !svg.querySelector("a")) svg.querySelector(".value")?.setAttribute("tabindex", "0");
