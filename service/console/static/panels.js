// What the explorer shows of an answer, one function a panel; each table is also what a screen reader reads.

import { bar, digits, el, knownWords, signed, stepBar, table } from "./dom.js";
import { LEAST_DRAWN } from "./picture.js";

const MOST_ROWS = 12;
const MOST_EDGES = 60;
const body = (id) => document.querySelector(`#${id} [data-body]`);

function put(id, ...content) {
  body(id)?.replaceChildren(...content.filter(Boolean)); // a page has the panels that it has room for
}

function whyNot(words) {
  return el("p", { class: "why-not" }, words ?? "No answer.");
}

/** Whether the joint distribution answers otherwise than the prediction, in the digits that are shown. */
const differs = (joint, { classes, probabilities }) => joint && classes.some((each, i) => Math.abs(joint[String(each)] - probabilities[i]) >= 0.0005);

/** The distribution of the question: as predicted, or by the joint distribution where there is no class. */
export function distributionOf(answer) {
  const { prediction, posterior } = answer.parts;
  if (prediction) {
    return {
      labels: prediction.classes.map(String),
      now: prediction.probabilities,
      before: prediction.prior,
      joint: differs(posterior?.question, prediction) ? posterior.question : null,
      how: "as the model predicts",
    };
  }
  if (posterior?.question) {
    const labels = Object.keys(posterior.question);
    return { labels, now: labels.map((label) => posterior.question[label]), before: null, joint: null, how: "by the joint distribution" };
  }
  return null;
}

export function answerPanel(answer, start, prior, wordsOf) {
  const posterior = distributionOf(answer);
  if (!body("p-answer")) return;
  document.getElementById("h-answer").textContent = answer.target ? `Answer: ${answer.target}` : "Answer";
  if (!posterior) {
    put("p-answer", whyNot(answer.parts.posterior?.why_no_question ?? answer.absent.posterior ?? answer.absent.prediction));
    return;
  }
  const before = posterior.before ?? (prior ? posterior.labels.map((label) => prior[label] ?? 0) : null);
  const band = answer.parts.interval;
  const order = posterior.labels.map((_, i) => i).sort((a, b) => posterior.now[b] - posterior.now[a]).slice(0, MOST_ROWS);
  const shown = posterior.labels.length <= MOST_ROWS ? posterior.labels.map((_, i) => i) : order;
  const rows = shown.map((i) => [
    wordsOf(answer.target, posterior.labels[i]),
    bar(posterior.now[i], before?.[i], band ? [band.low[i], band.high[i]] : null),
    digits(posterior.now[i]),
    band ? `${digits(band.low[i])} – ${digits(band.high[i])}` : "",
    before ? signed(posterior.now[i] - before[i]) : "",
    posterior.joint ? digits(posterior.joint[posterior.labels[i]]) : "",
  ]);
  const isBrief = document.getElementById("p-contributions") === null; // beside a picture
  const heads = ["answer", isBrief ? "" : "line: without evidence", "#probability", band ? `#sampling error, level ${band.level}` : "#", "#change", posterior.joint ? "#joint" : "#"];
  if (isBrief) for (const each of [heads, ...rows]) each.splice(band ? 4 : 3);
  const notes = [];
  if (posterior.joint && !isBrief) notes.push("joint: what the joint distribution of all columns says, where it differs from the prediction");
  if (!band && answer.absent.interval && start.target && !isBrief) notes.push(`No interval: ${answer.absent.interval}`);
  if (!answer.parts.prediction && answer.absent.prediction) notes.push(answer.absent.prediction);
  const at = Object.entries(answer.parts.prediction?.predicted_at ?? {});
  if (at.length) notes.push(`Predicted at ${at.map(([name, value]) => `${name} = ${value}`).join(", ")}; other numbers of the interval may differ a little.`);
  if (posterior.labels.length > MOST_ROWS) notes.push(`${posterior.labels.length - MOST_ROWS} less probable answers are not shown.`);
  put("p-answer", table(heads, rows), ...notes.map((words) => el("p", { class: "why-not" }, words)));
}

export function besidePanel(answer, kept, wordsOf, onSwap, onDrop) {
  const place = document.getElementById("p-beside");
  place.hidden = kept === null;
  if (kept === null) return;
  const here = distributionOf(answer);
  const there = distributionOf(kept.answer);
  const evidence = Object.entries(kept.state.evidence).map(([name, value]) => `${name} ${knownWords(value, (each) => wordsOf(name, each))}`);
  const content = [el("p", {}, evidence.length ? evidence.join(", ") : "No evidence.")];
  if (here && there && answer.target === kept.answer.target) {
    content.push(table(["answer", "line: the other case", "#here", "#beside", "#difference"],
      here.labels.slice(0, 50).map((label, i) => {
        const other = there.now[there.labels.indexOf(label)] ?? 0;
        return [label, bar(here.now[i], other), digits(here.now[i]), digits(other), signed(here.now[i] - other)];
      })));
  } else content.push(whyNot("The two cases have different questions."));
  const surprises = [answer, kept.answer].map((each) => each.parts.posterior?.surprise);
  if (surprises.every((each) => each !== undefined && each !== null)) {
    content.push(el("p", {}, `Surprise: ${rarity(answer.parts.posterior)} here, ${rarity(kept.answer.parts.posterior)} beside.`));
  }
  content.push(el("p", {}, el("button", { type: "button", onclick: onSwap }, "Switch to that case"), " ", el("button", { type: "button", onclick: onDrop }, "Remove")));
  put("p-beside", ...content);
}

export function contributionsPanel(answer) {
  const explanation = answer.parts.contributions;
  if (!explanation) return put("p-contributions", whyNot(answer.absent.contributions));
  const steps = [{ column: "class shares", log_odds: explanation.prior }, ...explanation.contributions.slice(0, 20)];
  let sum = 0;
  const ends = [0];
  for (const step of steps) ends.push((sum += step.log_odds ?? 0));
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const rows = steps.map((step, i) => [step.column, stepBar(ends[i], step.log_odds ?? 0, low, high), signed(step.log_odds)]);
  rows.push(["sum", stepBar(0, explanation.log_odds ?? 0, low, high), signed(explanation.log_odds)]);
  put("p-contributions",
    el("p", {}, `Log odds of ${explanation.prediction} against ${explanation.against}, one step after the other.`),
    table(["what", "step", "#log odds"], rows));
}

export function askPanel(answer, onPick) {
  const posterior = answer.parts.posterior;
  if (!posterior?.ask_next) return put("p-ask", whyNot(posterior?.why_no_question ?? answer.absent.posterior));
  const most = posterior.ask_next.slice(0, 8);
  const scale = posterior.entropy || 1;
  put("p-ask",
    el("p", {}, "Share of the remaining uncertainty that each column is expected to remove:"),
    table(["column", "share", "#"], most.map((each) => [
      el("button", { type: "button", onclick: () => onPick(each.column) }, each.column),
      bar(Math.min(1, each.entropy_drop / scale)),
      `${(100 * Math.min(1, each.entropy_drop / scale)).toFixed(1)} %`,
    ])));
}

/** How rare a case is: one in so many; of columns with densities, which have no such number, the log density. */
function rarity(posterior) {
  if (posterior.is_density) return `log density ${digits(-posterior.surprise)}`;
  const oneIn = Math.exp(posterior.surprise);
  return `1 in ${oneIn < 10 ? oneIn.toFixed(1) : oneIn < 1e6 ? Math.round(oneIn).toLocaleString("en") : oneIn.toExponential(1)}`;
}

export function surprisePanel(answer, nEvidence) {
  const posterior = answer.parts.posterior;
  if (!posterior) return put("p-surprise", whyNot(answer.absent.posterior));
  if (posterior.surprise === null) return put("p-surprise", whyNot("The evidence is impossible to this model."));
  if (!nEvidence) return put("p-surprise", whyNot("Suppose something to see how rare it is."));
  put("p-surprise", el("p", {}, "Probability of the evidence: ", el("strong", {}, rarity(posterior)), "."));
}

export function completionPanel(answer, onTake, wordsOf, onMore) {
  const completion = answer.parts.completion;
  if (!completion) return put("p-completion", whyNot(answer.absent.completion));
  const rows = Object.entries(completion.assignment).slice(0, 200).map(([name, value]) => [name, value === null ? "(missing)" : wordsOf(name, value)]);
  const found = completion.is_optimal ? "No other values are more probable together." : "The best found within the time limit; a better one may exist.";
  put("p-completion",
    el("p", {}, `${found} Log probability ${digits(completion.log_probability)}.`),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Completion" }, table(["column", "value"], rows, "")),
    el("p", {}, el("button", { type: "button", onclick: () => onTake(completion.assignment) }, "Suppose all of it"), " ",
      completion.best ? null : el("button", { type: "button", onclick: onMore }, "Show the next ones")),
    completion.best && completion.best.length > 1 ? othersTable(completion.best, wordsOf) : null);
}

/** The next most probable completions: how probable each is beside the first, and where it differs from it. */
function othersTable([first, ...others], wordsOf) {
  const changes = ({ assignment }) => Object.entries(assignment).filter(([name, value]) => value !== first.assignment[name])
    .map(([name, value]) => `${name} = ${value === null ? "missing" : wordsOf(name, value)}`).join(", ");
  return table(["next", "differs in", "#as probable as the first"],
    others.map((each, i) => [String(i + 2), changes(each), digits(Math.exp(each.log_probability - first.log_probability))]), "");
}

export function edgesPanel(answer, wanted, state, onToggle) {
  const found = answer.parts.edges;
  if (!found) return put("p-edges", whyNot(answer.absent.edges));
  const matching = found.edges.filter((edge) => !wanted || `${edge.from} ${edge.to}`.toLowerCase().includes(wanted));
  const isSupposed = (edge) => [...state.present, ...state.absent].includes(`${edge.from}->${edge.to}`);
  const sorted = matching.sort((a, b) => b.probability - a.probability);
  const most = sorted.filter((edge) => edge.probability >= LEAST_DRAWN || isSupposed(edge)).slice(0, MOST_EDGES);
  const rest = sorted.filter((edge) => !most.includes(edge));
  const wasOpen = document.querySelector("#p-edges details")?.open;
  const toggle = (edge, list, words) => {
    const name = `${edge.from}->${edge.to}`;
    const isOn = state[list].includes(name);
    return el("button", { type: "button", "aria-pressed": String(isOn), "aria-label": `${words} ${edge.from} to ${edge.to}`, onclick: () => onToggle(list, name) }, words);
  };
  const rows = (edges) => table(["edge", "bar", "#probability", "suppose"], edges.map((edge) => [
    `${edge.from} → ${edge.to}`, bar(edge.probability), digits(edge.probability),
    el("span", { class: "edge" }, toggle(edge, "present", "in"), toggle(edge, "absent", "out")),
  ]));
  put("p-edges", rows(most),
    rest.length ? el("details", { open: wasOpen }, el("summary", {}, `${rest.length} less probable edges`), rows(rest.slice(0, MOST_EDGES)),
      rest.length > MOST_EDGES ? el("p", { class: "why-not" }, `${rest.length - MOST_EDGES} of them are not shown: find them by name.`) : null) : null);
}
