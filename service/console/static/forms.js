// Forms that send what they show: each names a REST call, and its fields are members of the body or parts of the path.

import { el, zonedTime } from "./dom.js";
import { ask, curl } from "./rest.js";

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const READ = {
  number: (text) => Number(text),
  json: (text) => JSON.parse(text),
  scalar: (text) => (Number.isNaN(Number(text)) ? text.trim() : Number(text)),
  lines,
  columns: (text) => (text.trim().startsWith("{") ? JSON.parse(text) : Object.fromEntries(lines(text).map((name) => [name, "drop"]))),
  groups: (text) => lines(text).map((line) => line.split(",").map((name) => name.trim()).filter(Boolean)),
  pairs: (text) => Object.fromEntries(lines(text).map((line) => {
    const place = line.lastIndexOf("=");
    const value = line.slice(place + 1).trim();
    if (place < 1 || value === "" || Number.isNaN(Number(value))) throw new Error(`${line} is not: name = number`);
    return [line.slice(0, place).trim(), Number(value)];
  })),
};

/** What a form says of itself. Not form.dataset: a field named "dataset" would stand in its place. */
const dataOf = (form, name) => form.getAttribute(`data-${name}`);

/** The call that a form stands for: method, path and body. */
function callOf(form) {
  let path = dataOf(form, "path");
  const body = {};
  let hasBody = false;
  let content;
  for (const field of form.elements) {
    if (!field.name || field.dataset.in === "none") continue;
    if (field.dataset.in === "path") {
      path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
      continue;
    }
    if (field.dataset.in === "body") {
      content = field.files[0];
      continue;
    }
    hasBody = true;
    if (field.type === "checkbox") {
      body[field.name] = field.checked;
      continue;
    }
    if (field.value.trim() === "") continue;
    if (field.type === "file") {
      body[field.name] = [field.dataset.uri ?? field.files[0].name];
      continue;
    }
    const read = READ[field.dataset.as] ?? ((text) => text);
    let value;
    try {
      value = read(field.value);
    } catch (error) {
      if (field.dataset.as === "json") throw new Error(`${field.name}: ${field.value} is not JSON. Text stands in double quotes.`);
      throw new Error(`${field.name}: ${error.message}`);
    }
    if (Array.isArray(value) && field.dataset.as === "lines" && value.length === 0) continue;
    const parts = field.name.split(".");
    const last = parts.pop();
    parts.reduce((inside, part) => (inside[part] ??= {}), body)[last] = value;
  }
  return { method: dataOf(form, "method"), path, body: content ?? (hasBody ? body : undefined) };
}

function show(form) {
  const code = form.querySelector("[data-asked] code");
  if (!code) return;
  try {
    const { method, path, body } = callOf(form);
    const next = dataOf(form, "next-path") ? `\n${curl("POST", dataOf(form, "next-path"), JSON.parse(dataOf(form, "next-body")))}` : "";
    code.textContent = curl(method, path, body) + next;
  } catch (error) {
    code.textContent = error.message;
  }
}

async function send(form) {
  const outcome = form.querySelector("[data-outcome]");
  const say = (words, isBad) => {
    if (!outcome) return;
    outcome.textContent = words;
    outcome.classList.toggle("bad", isBad);
  };
  for (const field of form.querySelectorAll("[data-equals]")) {
    if (field.value !== field.dataset.equals) {
      say(`Type ${field.dataset.equals} to confirm.`, true);
      field.focus();
      return;
    }
  }
  const button = form.querySelector("button[type=submit]");
  button.disabled = true;
  try {
    for (const field of form.querySelectorAll("input[type=file]:not([data-in=body])")) {
      const file = field.files[0];
      say(`Uploading ${file.name} …`, false);
      field.dataset.uri = (await ask("PUT", `/v1/datasets/${encodeURIComponent(form.elements.name.value)}/files/${encodeURIComponent(file.name)}`, file)).uri;
      say("Reading it …", false);
    }
    const { method, path, body } = callOf(form);
    let answer = await ask(method, path, body);
    if (dataOf(form, "next-path")) answer = await ask("POST", dataOf(form, "next-path"), JSON.parse(dataOf(form, "next-body")));
    const next = dataOf(form, "then");
    const shown = dataOf(form, "show");
    const sentence = dataOf(form, "tells");
    if (sentence) say(answer[sentence], answer[dataOf(form, "good")] !== dataOf(form, "good-if"));
    else if (shown) {
      say(dataOf(form, "says"), false);
      outcome.append(" ", el("code", {}, answer[shown]), " ", el("button", { type: "button", "data-copy": true }, "Copy"));
    }
    else if (next === "reload") location.reload();
    else if (next) location.assign(next.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(answer[name])));
    else say("Done.", false);
  } catch (error) {
    say(error.message, true);
  } finally {
    button.disabled = false;
  }
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-rest]")) return;
  event.preventDefault();
  send(event.target);
});
document.addEventListener("click", async ({ target }) => {
  if (!target.matches?.("[data-copy]")) return;
  const code = target.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    target.textContent = "Copied";
  } catch { // without https, browsers let a page select only
    getSelection().selectAllChildren(code);
    target.textContent = "Selected: press Ctrl+C";
  }
});
document.addEventListener("input", (event) => {
  const file = event.target.type === "file" && event.target.files[0];
  if (file && event.target.dataset.in !== "body") {
    delete event.target.dataset.uri;
    const name = event.target.form.elements.name;
    name.value ||= file.name.toLowerCase().replace(/\.[a-z0-9.]*$/, "").replace(/[^a-z0-9._-]+/g, "-").replace(/^[^a-z0-9]+/, "").slice(0, 64);
    if ("submits" in event.target.dataset) event.target.form.requestSubmit();
  }
  const form = event.target.closest?.("form[data-rest]");
  if (form) show(form);
  const filter = event.target.dataset?.filter;
  if (filter) {
    const wanted = event.target.value.toLowerCase();
    for (const row of document.querySelectorAll(filter)) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    }
  }
});
// A column that is chosen is written where a person would type it: of an edge the parent, then the child.
const WRITTEN = {
  edges: (line, name) => (line.endsWith("->") ? `${name}\n` : `${line && "\n"}${name}->`),
  pairs: (line, name) => (line.endsWith("->") ? `${name} = ` : `${line && "\n"}${name}->`),
  groups: (line, name) => (line.trim() ? `, ${name}` : name),
  list: (line, name) => `${line && "\n"}${name}\n`,
};
document.addEventListener("change", ({ target }) => {
  if (!target.dataset?.adds || !target.value) return;
  const text = target.previousElementSibling.querySelector("textarea");
  text.value += WRITTEN[target.dataset.adds](text.value.split("\n").pop(), target.value);
  target.value = "";
  text.dispatchEvent(new Event("input", { bubbles: true }));
});
document.addEventListener("htmx:responseError", ({ detail }) => {
  const page = new DOMParser().parseFromString(detail.xhr.responseText, "text/html");
  if (detail.target.id === "profile") detail.target.replaceChildren(...page.querySelectorAll("main > p"));
});
function showAll(root) {
  root.querySelectorAll("form[data-rest]").forEach(show);
  for (const time of root.querySelectorAll("time[datetime]")) { // in the time zone of who looks
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.textContent = zonedTime(at, "seconds" in time.dataset);
  }
}
document.addEventListener("htmx:afterSettle", (event) => {
  const around = event.target.closest("form[data-rest]"); // fields were swapped inside of a form
  if (around) show(around);
  showAll(event.target);
});
showAll(document);
