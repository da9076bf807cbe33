// The picture of a graph as an explorer: its boxes hold a bar for each value, and its arrows can be required or forbidden.

import { bent } from "./boxes.js";
import { digits } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
export const LEAST_DRAWN = 0.01; // less probable arrows are folded
const [THINNEST, WIDEST] = [1, 6];

/** What stands for one value: its elements, and where they are. */
function row(g) {
  const [track, share, before] = ["track", "share", "before"].map((name) => g.querySelector(`.${name}`));
  const box = Object.fromEntries(["x", "y", "width", "height"].map((name) => [name, Number(track.getAttribute(name))]));
  return { g, share, before, box, number: g.querySelector(".number"), isUpright: g.classList.contains("upright") };
}

/** Let a row show a share, and as a line what it was; an unknown one shows nothing. */
function fillRow(shown, p, was, most) {
  const key = `${p} ${was} ${most}`;
  if (shown.key === key) return; // what stays is not painted again
  shown.key = key;
  const { g, share, before, box, number, isUpright } = shown;
  const [now, then] = [(p ?? 0) / most, was === undefined ? undefined : was / most];
  if (isUpright) {
    share.setAttribute("y", box.y + box.height * (1 - now));
    share.setAttribute("height", box.height * now);
    before.setAttribute("y", box.y + box.height * (1 - (then ?? 0)) - 1);
    before.setAttribute("width", then === undefined ? 0 : box.width);
    before.setAttribute("height", 2);
  } else {
    share.setAttribute("width", box.width * now);
    before.setAttribute("x", box.x + box.width * (then ?? 0) - 1);
    before.setAttribute("width", then === undefined ? 0 : 2);
    number.textContent = p === undefined ? "" : digits(p);
  }
  const words = p === undefined ? g.dataset.words : `${g.dataset.words}, ${digits(p)}`;
  g.setAttribute("aria-label", words);
  g.firstElementChild.textContent = words;
}

/** A number of a column as people write it. */
export function numberWords(column, number, isLength = false) {
  if (!column.is_date) return Number(number.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
  return isLength ? `${digits(number / 86_400, 1)} days` : new Date(number * 1000).toISOString().slice(0, 10);
}

/** Where most of a column of numbers lies: a standard deviation on both sides of the mean. */
function fillSpread({ g, share, before, box, number }, column, moments, given) {
  const [low, high] = column.range;
  const place = (at) => box.x + box.width * Math.min(1, Math.max(0, (at - low) / (high - low || 1)));
  const deviation = moments ? Math.sqrt(Math.max(0, moments.variance)) : 0;
  const [left, right] = moments ? [place(moments.mean - deviation), place(moments.mean + deviation)] : [box.x, box.x];
  share.setAttribute("x", left);
  share.setAttribute("width", right - left);
  before.setAttribute("x", moments ? place(moments.mean) - 1 : box.x);
  before.setAttribute("width", moments ? 2 : 0);
  number.textContent = given !== undefined ? given : moments ? `${numberWords(column, moments.mean)} ± ${numberWords(column, deviation, true)}` : "";
}

/** The explorer's picture. `columns` maps names to columns with their values; `toggle(name, value, event)` and `turn(edge)` are what a click does. */
export function pictureOf(root, columns, { toggle, turn }) {
  const boxes = new Map();
  for (const node of root.querySelectorAll(".node")) {
    const spread = node.querySelector(".spread");
    boxes.set(node.dataset.column, { node, rows: [...node.querySelectorAll(".value")].map(row), spread: spread && row(spread) });
  }
  const names = [...boxes.keys()].filter((name) => columns.has(name));

  /** The arrow at a click, or within a finger of it: the thin ones are a pixel wide. */
  function near({ target, clientX, clientY }) {
    if (target.closest(".edge-line, .node")) return target.closest(".edge-line");
    const around = [3, 6].flatMap((r) => [[r, 0], [-r, 0], [0, r], [0, -r]]);
    return around.map(([dx, dy]) => document.elementFromPoint(clientX + dx, clientY + dy)?.closest(".edge-line")).find(Boolean);
  }

  function act(event) {
    const value = event.target.closest(".value");
    const edge = turn && !value && event.type === "click" && near(event);
    if (value) {
      const name = value.closest(".node").dataset.column;
      toggle(name, columns.get(name).values[Number(value.dataset.value)].value, event);
    } else if (edge) turn(edge.dataset.edge);
    return Boolean(value);
  }
  root.addEventListener("click", act);
  root.addEventListener("keydown", (event) => {
    if ((event.key === "Enter" || event.key === " ") && act(event)) event.preventDefault();
  });

  /** Show the probabilities of columns: `stateOf(name)` gives those now and before, by place, moments and what is supposed. */
  function fill(stateOf) {
    for (const name of names) {
      const { node, rows, spread } = boxes.get(name);
      const { now, before, moments, isChosen, given } = stateOf(name);
      const most = rows[0]?.isUpright ? Math.max(...[...(now ?? []), ...(before ?? []), 1e-12].filter((p) => p !== undefined)) : 1;
      for (const each of rows) {
        const place = Number(each.g.dataset.value);
        fillRow(each, now?.[place], before?.[place], most);
        each.g.setAttribute("aria-pressed", String(isChosen(place)));
      }
      if (spread && columns.get(name).range) fillSpread(spread, columns.get(name), moments, given);
      node.classList.toggle("given", given !== undefined);
    }
  }

  // Arrows by probability

  function arrow(edge) {
    const name = `${edge.from}->${edge.to}`;
    const found = root.querySelector(`.edge-line[data-edge="${CSS.escape(name)}"]`);
    if (found) return found;
    const made = document.createElementNS(SVG, "path");
    for (const [attribute, value] of Object.entries({ class: "edge-line", "data-edge": name, "data-from": edge.from, "data-to": edge.to, d: bent(root, edge.from, edge.to), "marker-end": "url(#arrow)" })) made.setAttribute(attribute, value);
    made.append(document.createElementNS(SVG, "title"));
    root.querySelector(".node").before(made);
    return made;
  }

  /** Show each arrow as wide as it is probable; those below one in a hundred are folded unless they are supposed. */
  function fillEdges(edges, { present, absent }) {
    for (const edge of edges.filter(({ from, to }) => boxes.has(from) && boxes.has(to))) {
      const name = `${edge.from}->${edge.to}`;
      const isSupposed = present.includes(name) || absent.includes(name);
      const isFolded = edge.probability < LEAST_DRAWN && !isSupposed;
      if (isFolded && !root.querySelector(`.edge-line[data-edge="${CSS.escape(name)}"]`)) continue;
      const line = arrow(edge);
      line.classList.toggle("folded", isFolded);
      line.classList.toggle("present", present.includes(name));
      line.classList.toggle("absent", absent.includes(name));
      line.setAttribute("stroke-width", THINNEST + (WIDEST - THINNEST) * edge.probability);
      line.firstElementChild.textContent = `${edge.from} → ${edge.to}: ${digits(edge.probability)}`;
    }
  }

  return { names, fill, fillEdges };
}
