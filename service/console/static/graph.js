// Finds columns in the picture. The arrow keys go from a column to the nearest one in that direction; Enter opens it.

const nodes = [...document.querySelectorAll(".structure a")];
const find = document.getElementById("find-node");

find?.addEventListener("input", () => {
  const wanted = find.value.toLowerCase();
  let first = null;
  for (const node of nodes) {
    const isFound = wanted !== "" && node.dataset.column.toLowerCase().includes(wanted);
    node.firstElementChild.classList.toggle("found", isFound);
    first ??= isFound ? node : null;
  }
  first?.scrollIntoView({ block: "nearest", inline: "nearest" });
  for (const row of document.querySelectorAll("#outline tbody tr")) {
    row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
  }
});

const DIRECTIONS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
document.querySelector(".structure")?.addEventListener("keydown", (event) => {
  const direction = DIRECTIONS[event.key];
  const here = event.target.closest("a");
  if (!direction || !here) return;
  event.preventDefault();
  const centre = (node) => {
    const box = node.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  const [x, y] = centre(here);
  let best = null;
  let least = Infinity;
  for (const node of nodes) {
    const [nx, ny] = centre(node);
    const along = (nx - x) * direction[0] + (ny - y) * direction[1];
    const aside = Math.abs((nx - x) * direction[1]) + Math.abs((ny - y) * direction[0]);
    if (node === here || along <= 1) continue;
    const distance = along + 2 * aside;
    if (distance < least) [best, least] = [node, distance];
  }
  best?.focus();
});
