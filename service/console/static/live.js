// One stream of changes for all tabs of a browser: HTTP/1.1 allows six connections to a host, and a stream holds one.
// The tab that holds the lock listens and tells the others; a tab that is hidden lets go.

import { pressed, whenReleased } from "./press.js";

const CHANNEL = "fewpass-live";
const NAMES = ["jobs", "registry", "monitoring"];
const LEAST_MS = 1000; // between two refreshes of a page
const refreshedAt = new Map();
const waiting = new Map();
const channel = "BroadcastChannel" in window ? new BroadcastChannel(CHANNEL) : null;
const status = document.getElementById("live");

/** Let the parts of this page that show a thing fetch themselves anew, at most once a second. */
function refresh(name) {
  if (waiting.has(name)) return;
  const wait = Math.max(0, LEAST_MS - (Date.now() - (refreshedAt.get(name) ?? 0)));
  waiting.set(name, setTimeout(() => {
    waiting.delete(name);
    refreshedAt.set(name, Date.now());
    document.body.dispatchEvent(new CustomEvent(`fewpass:${name}`, { bubbles: true }));
  }, wait));
}

/** The first mark counts as a change, too: it may come later than one that the page was made without. */
const marks = new Map();
function hear({ name, mark }) {
  if (marks.get(name) === mark) return;
  marks.set(name, mark);
  refresh(name);
}

// What is pressed stays until its click: that part of the page is fetched again after it.
document.body.addEventListener("htmx:beforeSwap", (event) => {
  if (!pressed()) return;
  event.detail.shouldSwap = false;
  for (const name of NAMES) whenReleased(name, () => refresh(name));
});

function say(words) {
  if (status && status.textContent !== words) status.textContent = words;
}

/** Listen until asked to stop. */
function listen(signal) {
  return new Promise((done) => {
    const stream = new EventSource("/console/events");
    let wasLost = false;
    stream.onopen = () => {
      say("");
      channel?.postMessage({ kind: "state", words: "" });
      if (wasLost) for (const name of NAMES) refresh(name); // the server was away: whatever is shown may be old
      wasLost = false;
    };
    stream.onerror = () => {
      wasLost = true;
      say("The server does not answer; trying again.");
      channel?.postMessage({ kind: "state", words: "The server does not answer; trying again." });
      if (stream.readyState === EventSource.CLOSED) done();
    };
    for (const name of NAMES) {
      stream.addEventListener(name, (event) => {
        const message = { kind: "mark", name, mark: event.data };
        hear(message);
        channel?.postMessage(message);
      });
    }
    signal.addEventListener("abort", () => {
      stream.close();
      done();
    });
  });
}

let leaving = null;
async function take() {
  if (document.hidden || leaving) return;
  leaving = new AbortController();
  const own = leaving;
  try {
    // Other origins than loopback and https have no locks: there each visible tab listens for itself.
    if (navigator.locks) await navigator.locks.request(CHANNEL, { signal: own.signal }, () => listen(own.signal));
    else await listen(own.signal);
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  } finally {
    if (leaving === own) leaving = null;
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) leaving?.abort();
  else setTimeout(take, 0);
});
channel?.addEventListener("message", ({ data }) => {
  if (data.kind === "mark") hear(data);
  else if (data.kind === "state") say(data.words);
});
take();
