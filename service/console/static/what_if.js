// The what-if explorer: what is supposed stands in the address, what follows from it comes from one REST call.

import { bar, digits, el, isSeveral, keepingFocus, knownWords, setBar } from "./dom.js";
import { answerPanel, askPanel, besidePanel, completionPanel, contributionsPanel, distributionOf, edgesPanel, surprisePanel } from "./panels.js";
import { numberWords, pictureOf } from "./picture.js";
import { whenReleased } from "./press.js";
import { ask, curl } from "./rest.js";

const MOST_LISTED = 60;
const OPEN_AT_FIRST = 6;
const TYPING_MS = 60;
const MOST_BEST = 5;
// The parts of an answer that a page has room for.
const room = (parts) => parts.filter((part) => document.getElementById({ contributions: "p-contributions", completion: "p-completion", interval: "p-answer" }[part] ?? "what-if"));
// Asked one after the other, as soon as what is quicker is shown.
const STAGES = [["prediction", "posterior"], ["contributions"], ["interval", "completion"]].map(room).filter((parts) => parts.length);
const KEPT = /\/(graph|regions|what-if)$/; // pages that show the same case

const place = document.getElementById("what-if");
if (document.getElementById("start")) explore(JSON.parse(document.getElementById("start").textContent));

function explore(start) {
  const path = `/v1/models/${encodeURIComponent(start.reference)}/whatif`.replaceAll("%40", "@");
  const byName = new Map(start.columns.map((column) => [column.name, column]));
  const firstQuestion = start.target ?? start.columns.find((column) => !column.is_continuous)?.name ?? null;
  const empty = () => ({ evidence: {}, do: {}, target: firstQuestion, present: [], absent: [] });
  const priors = new Map(); // column -> label -> probability, without evidence
  const open = new Map(); // column -> its element, of those that are open
  let state = empty();
  let kept = null; // a case beside: its state and its answer
  let latest = null;
  let number = 0;
  let nBest = 1; // explanations
  let inFlight = null;
  const classes = { name: start.target, values: start.classes.map((each) => ({ label: String(each), value: each, words: String(each) })) };
  const drawn = document.querySelector(".structure");
  const picture = drawn && pictureOf(drawn, new Map([...byName, [start.target, classes]]), {
    toggle, turn: start.is_of_structures ? (edge) => turnEdge(edge) : null,
  });

  // The address

  function read() {
    const asked = new URLSearchParams(location.search);
    const parse = (name) => {
      try {
        return asked.has(name) ? { ...empty(), ...JSON.parse(asked.get(name)) } : null;
      } catch {
        return null;
      }
    };
    return [parse("case") ?? empty(), parse("beside")];
  }

  function compact(each) {
    const { evidence, do: set, target, present, absent } = each;
    return { ...(Object.keys(evidence).length && { evidence }), ...(Object.keys(set).length && { do: set }), ...(target !== firstQuestion && { target }), ...(present.length && { present }), ...(absent.length && { absent }) };
  }

  function write() {
    const parameters = new URLSearchParams(location.search);
    for (const name of ["case", "beside"]) parameters.delete(name);
    if (Object.keys(compact(state)).length) parameters.set("case", JSON.stringify(compact(state)));
    if (kept) parameters.set("beside", JSON.stringify(compact(kept.state)));
    const text = parameters.toString();
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
  }

  // Links to other views of this model take the case along.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    const to = link && new URL(link.href.baseVal ?? link.href, location.href);
    if (!to || to.origin !== location.origin || !KEPT.test(to.pathname) || event.ctrlKey || event.metaKey || event.button) return;
    const here = new URLSearchParams(location.search);
    for (const name of ["case", "beside"]) if (here.has(name)) to.searchParams.set(name, here.get(name));
    event.preventDefault();
    location.assign(to);
  });

  // Asking

  function request(each, parts, columns) {
    if (start.is_of_structures) return { parts: ["edges"], present: each.present, absent: each.absent };
    const body = { evidence: each.evidence, parts };
    if (Object.keys(each.do).length) body.do = each.do;
    if (nBest > 1 && (!parts || parts.includes("completion"))) body.best = nBest;
    if (each.target !== start.target) body.target = each.target;
    if (columns) body.columns = columns;
    return body;
  }

  async function update() {
    const mine = ++number;
    inFlight?.abort();
    inFlight = new AbortController();
    const { signal } = inFlight;
    place.dataset.state = "asking";
    write();
    whenReleased("chosen", () => keepingFocus(listChosen));
    marks();
    try {
      let answer = null;
      const stages = start.is_of_structures ? STAGES.slice(0, 1) : STAGES;
      for (const parts of stages) {
        const more = await ask("POST", path, request(state, parts, answer ? [] : [...open.keys(), ...(picture?.names ?? [])]), signal);
        if (mine !== number) return; // a later click has asked meanwhile
        answer = answer ? { ...answer, parts: { ...answer.parts, ...more.parts }, absent: { ...answer.absent, ...more.absent } } : more;
        paint(mine, answer, parts === stages.at(-1) ? "settled" : "answered");
      }
    } catch (error) {
      if (error.name === "AbortError" || mine !== number) return;
      problem(error.message);
      place.dataset.state = "refused";
    }
  }

  /** Show an answer, unless a later click asks for another before the present press ends. */
  function paint(mine, answer, become) {
    whenReleased("answer", () => {
      if (mine !== number) return;
      latest = answer;
      problem("");
      document.getElementById("warnings").textContent = answer.warnings.join(" ");
      show();
      place.dataset.state = become;
      place.dataset.number = String(mine);
      if (become === "settled") place.dataset.settled = String(mine);
    });
  }

  async function learnPriors(names) {
    const unknown = names.filter((name) => !priors.has(name));
    if (!unknown.length || start.is_of_structures) return;
    for (const name of unknown) priors.set(name, null);
    try {
      const withoutEvidence = await ask("POST", path, { evidence: {}, parts: ["posterior"], target: firstQuestion, columns: unknown });
      for (const [name, own] of Object.entries(withoutEvidence.parts.posterior?.distributions ?? {})) priors.set(name, own);
    } catch {
      for (const name of unknown) priors.delete(name); // the answer says what is wrong; the ghosts are missing
    }
    if (latest) whenReleased("priors", show);
  }

  const problem = (words) => { document.getElementById("problem").textContent = words; };

  // Showing

  const show = () => keepingFocus(repaint);

  function repaint() {
    const nEvidence = Object.keys(state.evidence).length + Object.keys(state.do).length;
    if (start.is_of_structures) {
      edgesPanel(latest, document.getElementById("find").value.toLowerCase(), state, toggleEdge);
      picture?.fillEdges(latest.parts.edges?.edges ?? [], state);
    } else {
      picture?.fill(shown);
      const noBars = document.getElementById("no-bars");
      if (noBars) noBars.textContent = latest.absent.posterior ? `Bars stay empty: ${latest.absent.posterior}` : "";
      answerPanel(latest, start, priors.get(latest.target), wordsOf);
      if (latest.parts.contributions || latest.absent.contributions) contributionsPanel(latest);
      askPanel(latest, pick);
      surprisePanel(latest, nEvidence);
      if (latest.parts.completion || latest.absent.completion) completionPanel(latest, take, wordsOf, nextBest);
      if (document.getElementById("p-beside")) besidePanel(latest, kept, wordsOf, swap, drop);
      for (const [name, details] of open) fillColumn(name, details);
    }
    const posterior = start.is_of_structures ? null : distributionOf(latest);
    const best = posterior ? posterior.now.indexOf(Math.max(...posterior.now)) : -1;
    const isGiven = knows(latest.target); // its own value is nothing to predict it by
    const cut = latest.parts.posterior?.intervention?.cut ?? [];
    document.getElementById("said").textContent = (posterior
      ? `${isGiven ? `${latest.target} is supposed. By the other values it is ` : `${latest.target}: `}${wordsOf(latest.target, posterior.labels[best])}, ${digits(posterior.now[best])}, with ${nEvidence - isGiven} given values.`
      : `Supposed: ${nEvidence + state.present.length + state.absent.length}.`)
      + (cut.length ? ` Cut: ${cut.map((arc) => `${arc.from} → ${arc.to}`).join(", ")}.` : "");
    code();
  }

  function listChosen() {
    const items = start.is_of_structures
      ? [...state.present.map((edge) => [edge, "in", () => toggleEdge("present", edge)]), ...state.absent.map((edge) => [edge, "out", () => toggleEdge("absent", edge)])]
      : [...Object.keys(state.evidence), ...Object.keys(state.do)].map((name) => [name, wordsFor(name), () => retract(name)]);
    document.getElementById("chosen").replaceChildren(...items.map(([name, words, away]) =>
      el("li", {}, el("button", { type: "button", onclick: away, "aria-label": `Remove ${name} ${words}` }, `${name.replace("->", " → ")} ${words} ×`))));
  }

  /** What the picture shows of a column: probabilities by place, now and without evidence, and what is supposed. */
  function shown(name) {
    const { posterior, prediction } = latest.parts;
    const isClass = name === start.target;
    const { values } = isClass ? classes : byName.get(name);
    const value = valueOf(name);
    const byPlace = (own) => own && values.map(({ label }) => own[label]);
    const label = value === undefined ? undefined : (posterior?.given?.[name] ?? (isClass ? String(value) : undefined)); // of one value
    const free = isClass && prediction ? prediction.probabilities : byPlace(posterior?.distributions?.[name]);
    return {
      now: value === undefined || isSeveral(value) ? free : label && values.map((each) => Number(each.label === label)),
      before: isClass && prediction ? prediction.prior : byPlace(priors.get(name)),
      moments: posterior?.moments?.[name],
      isChosen: (place) => isChosen(name, values[place].value),
      given: value === undefined ? undefined : wordsFor(name),
    };
  }

  function code() {
    if (!document.getElementById("as-curl")) return;
    const body = request(state, undefined, undefined);
    delete body.parts;
    document.getElementById("as-curl").textContent = curl("POST", path, body);
    document.getElementById("as-python").textContent = `import httpx\n\nurl = "${location.origin}${path}"\nanswer = httpx.post(url, json=${python(body)}).json()`;
  }

  // The columns

  const knows = (name) => name in state.evidence || name in state.do;

  /** What is supposed of a column, or what it is set to. */
  const valueOf = (name) => (name in state.do ? state.do[name] : state.evidence[name]);

  const wordsFor = (name) => (name in state.do ? `set to ${wordsOf(name, state.do[name])}` : knownWords(state.evidence[name], (value) => wordsOf(name, value)));

  function isChosen(name, value) {
    const known = valueOf(name);
    return isSeveral(known) ? (known.none_of ?? (Array.isArray(known) ? known : [])).includes(value) : knows(name) && known === value;
  }

  function list() {
    if (start.is_of_structures || !document.getElementById("columns")) return;
    const wanted = document.getElementById("find").value.toLowerCase();
    const all = start.columns.filter((column) => column.name.toLowerCase().includes(wanted));
    open.clear();
    document.getElementById("columns").replaceChildren(...all.slice(0, MOST_LISTED).map((column, i) => row(column, i < OPEN_AT_FIRST)));
    document.getElementById("more").textContent = all.length > MOST_LISTED ? `${all.length - MOST_LISTED} more columns: find them by name.` : "";
    marks();
    learnPriors([...open.keys()]);
  }

  /** The label of a value as people write it: "≤ 86.35". */
  function wordsOf(name, label) {
    return byName.get(name)?.values.find((each) => each.label === label)?.words ?? String(label);
  }

  /** The values that are listed; of numbers with a density, or with very many intervals, only that they are missing. */
  function listed(column) {
    return column.is_continuous || !column.is_listed ? column.values.filter((each) => each.value === null) : column.values;
  }

  function row(column, isOpen) {
    const details = el("details", { "data-column": column.name });
    details.append(el("summary", {}, column.name, " ", el("span", { class: "picked" })));
    if (isOpen) {
      details.open = true;
      opened(column.name, details);
    }
    details.addEventListener("toggle", () => {
      if (!details.open) return open.delete(column.name);
      if (open.has(column.name)) return null;
      opened(column.name, details);
      marks();
      learnPriors([column.name]);
      return update();
    });
    return details;
  }

  function opened(name, details) {
    open.set(name, details);
    if (details.childElementCount > 1) return;
    const column = byName.get(name);
    const values = el("div", { role: "group", "aria-label": name });
    for (const { label, value, words } of listed(column)) {
      values.append(el("button", { type: "button", class: "value", "aria-pressed": "false", "data-label": label, onclick: (event) => toggle(name, value, event) },
        el("span", { class: "name" }, words), bar(0), el("span", { class: "n" }, "")));
    }
    details.append(values);
    if (column.kind === "numeric") {
      const input = el("input", { type: column.is_time ? "text" : "number", step: "any", "aria-label": `${name}, exactly` });
      let timer = null;
      input.addEventListener("input", () => {
        clearTimeout(timer);
        timer = setTimeout(() => {
          if (input.value === "") retract(name);
          else assume(name, column.is_time ? input.value : Number(input.value));
        }, TYPING_MS);
      });
      details.append(el("label", {}, "exactly ", input), column.is_continuous ? range(column) : "", el("p", { class: "why-not moments" }));
    }
  }

  /** Two fields, for the ends of a range. */
  function range({ name, is_time: isTime }) {
    const ends = ["low", "high"].map((end) => el("input", { type: isTime ? "text" : "number", step: "any", "aria-label": `${name}, ${end === "low" ? "from" : "to"}`, onchange: () => {
      const interval = Object.fromEntries(ends.flatMap((each, i) => (each.value === "" ? [] : [[["low", "high"][i], isTime ? each.value : Number(each.value)]])));
      if (Object.keys(interval).length) suppose({ [name]: interval });
      else retract(name);
    } }));
    return el("label", { class: "range" }, "from ", ends[0], " to ", ends[1]);
  }

  function fillColumn(name, details) {
    const now = latest.parts.posterior?.distributions?.[name];
    const before = priors.get(name);
    for (const button of details.querySelectorAll(".value")) {
      const label = button.dataset.label;
      const given = latest.parts.posterior?.given?.[name];
      const share = now?.[label] ?? (given === undefined ? undefined : Number(given === label));
      setBar(button.children[1], share ?? 0, before?.[label]);
      button.children[1].style.visibility = share === undefined ? "hidden" : ""; // not known is not zero
      button.children[2].textContent = share === undefined ? "" : digits(share);
    }
    const moments = latest.parts.posterior?.moments?.[name];
    const words = details.querySelector(".moments");
    if (words) words.textContent = moments ? `mean ${numberWords(byName.get(name), moments.mean)}, standard deviation ${numberWords(byName.get(name), Math.sqrt(Math.max(0, moments.variance)), true)}` : "";
  }

  function marks() {
    for (const [name, details] of open) {
      for (const [i, button] of [...details.querySelectorAll(".value")].entries()) {
        const values = listed(byName.get(name));
        button.setAttribute("aria-pressed", String(isChosen(name, values[i].value)));
      }
    }
    for (const details of document.querySelectorAll("#columns details")) {
      const name = details.dataset.column;
      details.querySelector(".picked").textContent = knows(name) ? wordsFor(name) : "";
    }
  }

  // What a person does

  const isSetting = () => document.querySelector("input[name=mode]:checked")?.value === "set";

  const without = (values, names) => Object.fromEntries(Object.entries(values).filter(([name]) => !names.includes(name)));

  /** Suppose one value of a column, or set the column to it, as the switch says. A missing value cannot be set. */
  function assume(name, value) {
    if (!isSetting() || value === null) return suppose({ [name]: value });
    state.evidence = without(state.evidence, [name]);
    state.do = { ...state.do, [name]: value };
    return update();
  }

  function suppose(more) {
    state.do = without(state.do, Object.keys(more));
    state.evidence = { ...state.evidence, ...more };
    if (state.target in state.evidence && state.target !== start.target) delete state.evidence[state.target];
    update();
  }

  function retract(name) {
    state.evidence = without(state.evidence, [name]);
    state.do = without(state.do, [name]);
    update();
  }

  /** A click supposes a value, or sets it, or takes it back; with the shift key one of several, with the alt key that it is not this. */
  function toggle(name, value, event) {
    const known = state.evidence[name];
    const change = (list) => (list.includes(value) ? list.filter((each) => each !== value) : [...list, value]);
    if (event?.altKey && value !== null) {
      const excluded = change(known?.none_of ?? []);
      return excluded.length ? suppose({ [name]: { none_of: excluded } }) : retract(name);
    }
    if (event?.shiftKey && value !== null) {
      const possible = change(Array.isArray(known) ? known : name in state.evidence && !isSeveral(known) && known !== null ? [known] : []);
      return possible.length ? suppose({ [name]: possible.length === 1 ? possible[0] : possible }) : retract(name);
    }
    const isSame = isSetting() ? state.do[name] === value : known === value;
    return isSame && knows(name) ? retract(name) : assume(name, value);
  }

  function toggleEdge(which, edge) {
    const other = which === "present" ? "absent" : "present";
    state[other] = state[other].filter((each) => each !== edge);
    state[which] = state[which].includes(edge) ? state[which].filter((each) => each !== edge) : [...state[which], edge];
    update();
  }

  /** From open to required to forbidden to open. */
  function turnEdge(edge) {
    toggleEdge(state.present.includes(edge) || state.absent.includes(edge) ? "absent" : "present", edge);
  }

  function pick(name) {
    document.getElementById("find").value = name;
    list();
    document.querySelector("#columns details summary")?.focus();
    update();
  }

  function take(assignment) {
    // Words stand for a value that has this code: of an interval for a number in it. Rare values that share a code have none.
    const own = Object.entries(assignment).filter(([name]) => byName.has(name) && name !== state.target).flatMap(([name, value]) => {
      const { values, is_continuous: isContinuous } = byName.get(name);
      const known = values.find((each) => each.label === value || each.value === value);
      return known ? [[name, known.value]] : isContinuous ? [[name, value]] : [];
    });
    suppose(Object.fromEntries(own));
  }

  function nextBest() {
    nBest = MOST_BEST;
    update();
  }

  function swap() {
    [state, kept] = [kept.state, { state, answer: latest }];
    questions();
    update();
  }

  function drop() {
    kept = null;
    write();
    show();
  }

  function questions() {
    const select = document.getElementById("target");
    if (!select) return;
    const names = [...(start.target ? [start.target] : []), ...start.columns.filter((column) => !column.is_continuous).map((column) => column.name)];
    select.replaceChildren(...names.map((name) => el("option", { value: name, selected: name === state.target }, name)));
  }

  document.getElementById("reset").addEventListener("click", () => {
    state = { ...empty(), target: state.target };
    update();
  });
  document.getElementById("pin")?.addEventListener("click", () => {
    if (!latest) return;
    kept = { state: structuredClone(state), answer: latest };
    write();
    show();
  });
  document.getElementById("target")?.addEventListener("change", (event) => {
    state.target = event.target.value;
    delete state.evidence[state.target];
    delete state.do[state.target];
    update();
  });
  document.getElementById("find").addEventListener("input", () => {
    list();
    if (latest) update();
  });
  document.getElementById("load")?.addEventListener("click", () => {
    const words = document.getElementById("row-problem");
    try {
      const row = JSON.parse(document.getElementById("row").value);
      if (typeof row !== "object" || row === null || Array.isArray(row)) throw new Error("This is no row: write {\"column\": value}.");
      words.textContent = "";
      const { [state.target]: _, ...rest } = row;
      [state.evidence, state.do] = [rest, {}];
      update();
    } catch (error) {
      words.textContent = error.message;
    }
  });

  async function begin() {
    for (const panel of document.querySelectorAll("#what-if .panel:has([data-body])")) {
      if (panel.id !== "p-beside") panel.hidden = start.is_of_structures !== (panel.id === "p-edges");
    }
    const [here, beside] = read();
    state = here;
    questions();
    list();
    if (picture) learnPriors(picture.names.filter((name) => name !== start.target));
    if (beside && document.getElementById("p-beside")) {
      try {
        kept = { state: beside, answer: await ask("POST", path, request(beside, STAGES[0], [])) };
      } catch (error) {
        problem(`The case beside cannot be asked: ${error.message}`);
      }
    }
    update();
  }
  begin();
}

/** A value as Python writes it. */
function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}
