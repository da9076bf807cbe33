// Elements without markup: whatever a name or a value holds stays text.

/** An element with attributes (those that begin with "on" are listeners, false and null are left out) and children. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A number for people. */
export function digits(number, places = 3) {
  if (number === null || number === undefined) return "∞";
  if (number !== 0 && Math.abs(number) < 1e-3) return number.toExponential(1);
  return number.toFixed(places);
}

const ZONED = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" });

/** A moment in the browser's time zone, which is named: 2026-01-31 12:00 CET. Every page writes times like this. */
export function zonedTime(at, hasSeconds = false) {
  const { year, month, day, hour, minute, second, timeZoneName } = Object.fromEntries(ZONED.formatToParts(at).map(({ type, value }) => [type, value]));
  return `${year}-${month}-${day} ${hour}:${minute}${hasSeconds ? `:${second}` : ""} ${timeZoneName}`;
}

export function signed(number, places = 3) {
  if (number === null || number === undefined) return "∞";
  return `${number < 0 ? "−" : "+"}${digits(Math.abs(number), places)}`;
}

/** A bar of a share, with a line where it was before, and a band where it may be. */
export function bar(share, ghost = null, band = null) {
  return setBar(el("span", { class: "bar", "aria-hidden": "true" }), share, ghost, band);
}

/** A part of a bar, by shares of its width. */
function piece(tag, left, width, attributes = {}) {
  const made = el(tag, attributes);
  if (left !== null) made.style.left = `${100 * left}%`;
  if (width !== null) made.style.width = `${100 * width}%`;
  return made;
}

/** Let a bar show other shares; the element itself stays. */
export function setBar(made, share, ghost = null, band = null) {
  made.replaceChildren(piece("i", null, share));
  if (band) made.append(piece("u", band[0], Math.max(0, band[1] - band[0])));
  if (ghost !== null && ghost !== undefined) made.append(piece("b", ghost, null));
  return made;
}

/** Repaint; if the element with the focus is made anew, its successor gets the focus: the one of that name, or in its place. */
export function keepingFocus(repaint) {
  const held = document.activeElement;
  const region = held?.closest("[data-body], #chosen");
  if (!region) return repaint();
  const those = () => [...region.querySelectorAll("button")];
  const name = (button) => button.getAttribute("aria-label") ?? button.textContent;
  const place = those().indexOf(held);
  const own = name(held);
  repaint();
  if (held.isConnected || place < 0) return;
  const now = those();
  const next = now.find((button) => name(button) === own) ?? now[Math.min(place, now.length - 1)] ?? document.getElementById("reset");
  next?.focus();
}

/** A bar from `start` to `start + step` on a scale from `low` to `high`: one step of a waterfall. */
export function stepBar(start, step, low, high) {
  const width = high - low || 1;
  return el("span", { class: "bar signed", "aria-hidden": "true" },
    piece("i", (Math.min(start, start + step) - low) / width, Math.abs(step) / width, { class: step >= 0 ? "for" : "against" }),
    piece("b", (0 - low) / width, null));
}

/** A table; the first cell of a row is its header, and heads that begin with # are of numbers. */
export function table(heads, rows, className = "bars") {
  const isNumber = heads.map((head) => head.startsWith("#"));
  const cell = (content, place) =>
    el(place ? "td" : "th", { class: isNumber[place] ? "n" : null, scope: place ? null : "row" }, content ?? "");
  return el("table", { class: className },
    el("thead", {}, el("tr", {}, ...heads.map((head, i) =>
      el("th", { scope: "col", class: isNumber[i] ? "n" : null }, head.replace(/^#/, ""))))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell)))));
}

/** Whether more than one value is possible. */
export function isSeveral(known) {
  return typeof known === "object" && known !== null;
}

/** What is known of a column, in words; `wordsOf(value)` are those of a value, such as "> 22.5" of an interval. */
export function knownWords(known, wordsOf = String) {
  const list = (values) => values.map((each) => (each === null ? "missing" : wordsOf(each))).join(" or ");
  if (Array.isArray(known)) return `= ${list(known)}`;
  if (known?.none_of) return `is not ${list(known.none_of)}`;
  if (isSeveral(known)) return [known.low === undefined ? "" : `≥ ${known.low}`, known.high === undefined ? "" : `≤ ${known.high}`].filter(Boolean).join(" and ");
  const words = known === null || known === undefined ? "missing" : wordsOf(known);
  return /^[≤>] /.test(words) ? words : `= ${words}`;
}
