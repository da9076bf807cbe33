// A repaint between press and release would take the pressed element away, and the click with it. So repaints wait for the release.

let isPressed = false;
const waiting = new Map(); // by name, the latest repaint

/** Paint now or, while a button of the mouse or the space bar is down, after its release; of one name only the latest. */
export function whenReleased(name, paint) {
  if (isPressed) waiting.set(name, paint);
  else paint();
}

/** Whether something is pressed at this moment. */
export function pressed() {
  return isPressed;
}

function press() {
  isPressed = true;
}

/** The click comes right after the release, in the same task: what waits comes after both. */
function release() {
  setTimeout(() => {
    isPressed = false;
    const paints = [...waiting.values()];
    waiting.clear();
    for (const paint of paints) paint();
  });
}

addEventListener("pointerdown", press, true);
for (const name of ["pointerup", "pointercancel", "dragend", "blur"]) addEventListener(name, (event) => {
  if (name !== "blur" || event.target === window) release();
}, true);
// A release outside of the window is not heard: the next move tells.
addEventListener("pointermove", (event) => {
  if (isPressed && event.buttons === 0) release();
}, true);
addEventListener("keydown", (event) => {
  if (event.key === " ") press();
}, true);
addEventListener("keyup", (event) => {
  if (event.key === " ") release();
}, true);
