// Where the boxes of a graph stand. One can be moved, by the mouse or with Shift and the arrow keys, and its arrows follow.

const BEND = 0.12;
const boxOf = (root, name) => root.querySelector(`.node[data-column="${CSS.escape(name)}"]`);
const movedBy = (node) => (node.dataset.moved ?? "0 0").split(" ").map(Number);

function placeOf(node) {
  const box = node.querySelector(".box");
  const [x, y, width, height] = ["x", "y", "width", "height"].map((each) => Number(box.getAttribute(each)));
  const [dx, dy] = movedBy(node);
  return { x: x + width / 2 + dx, y: y + height / 2 + dy, width, height };
}

/** From one box to another, bent to the right, so that both directions can be seen. */
export function bent(root, from, to) {
  const [a, b] = [from, to].map((name) => placeOf(boxOf(root, name)));
  const middle = { x: (a.x + b.x) / 2 - (b.y - a.y) * BEND, y: (a.y + b.y) / 2 + (b.x - a.x) * BEND };
  const rim = (box) => {
    const [dx, dy] = [middle.x - box.x, middle.y - box.y];
    const t = Math.min(1, box.width / 2 / Math.abs(dx || 1e-9), box.height / 2 / Math.abs(dy || 1e-9));
    return `${box.x + dx * t} ${box.y + dy * t}`;
  };
  return `M${rim(a)}Q${middle.x} ${middle.y} ${rim(b)}`;
}

/** Move a box by so much, in units of the picture and not out of it. */
export function move(root, node, dx, dy) {
  const { x, y, width, height } = placeOf(node);
  const { width: right, height: foot } = root.viewBox.baseVal;
  const within = (at, by, half, most) => Math.min(most - half, Math.max(half, at + by)) - at;
  const [before, above] = movedBy(node);
  const [left, top] = [before + within(x, dx, width / 2, right), above + within(y, dy, height / 2, foot)];
  node.dataset.moved = `${left} ${top}`;
  node.setAttribute("transform", `translate(${left} ${top})`);
  const name = CSS.escape(node.dataset.column);
  for (const line of root.querySelectorAll(`.edge-line[data-from="${name}"], .edge-line[data-to="${name}"]`)) {
    line.setAttribute("d", bent(root, line.dataset.from, line.dataset.to));
  }
}
