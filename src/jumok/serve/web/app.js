/* The page: what is typed goes to the server, and what comes back is shown. Answers to what is no longer asked are dropped. */

import * as api from "./api.js";
import { showBest } from "./best.js";
import { Looking } from "./looking.js";
import { Output } from "./output.js";
import { fileName, save } from "./saving.js";
import { Source } from "./source.js";
import { languageName, preferred, say, speak } from "./strings.js";
import { Tree } from "./tree.js";
import { make } from "./words.js";

const PAUSE = 220; // milliseconds without a key before a translation is asked for
const BEST = 5;
const KEPT = 500;
const LONG = 18; // words of a source beyond which its map has the whole width
const WIDTHS = [1, 2, 3, 4, 5, 6, 8, 10];

const $ = (id) => document.getElementById(id);
const found = new Map(); // translations by model, beam and text
const state = { models: [], limits: {}, model: null, beam: 5, line: 0, chosen: 0, part: 0, partial: null, shown: null, treeOf: null };
let turn = new AbortController(), timer = 0, retry = 0;

const source = new Source($("text"), $("mirror"), {
  onInput: (line) => {
    Object.assign(state, { line, chosen: 0, part: 0 });
    later(PAUSE);
  },
  onLine: (line) => chooseLine(line),
  onWord: (word) => looking.point("source", word),
});
const output = new Output($("output"), {
  onLine: (line) => chooseLine(line),
  onWord: (word) => looking.point("target", word),
});
const looking = new Looking($("map"), source, output);
const tree = new Tree($("tree"), $("tree-said"));

// ---- asking ------------------------------------------------------------------------------------------------------

const keyOf = (text) => `${state.model.name}\n${state.beam}\n${text}`;
const settings = () => ({ model: state.model.name, beam: state.beam, n_best: Math.min(BEST, state.beam) });
const size = (text) => Array.from(text).length; // in characters as the server counts them, not in halves of emoji
const tooLong = (text) => size(text) > state.limits.characters;

/** Ask when there has been no key for a while. */
function later(pause) {
  clearTimeout(timer);
  clearTimeout(retry);
  turn.abort();
  turn = new AbortController();
  render();
  timer = setTimeout(refresh, pause);
}

async function refresh() {
  const { signal } = turn;
  remember();
  const missing = [...new Set(source.lines)].filter((text) => text.trim() && !tooLong(text) && !found.has(keyOf(text)));
  busy(missing.length > 0);
  try {
    if (missing.length === 1) await watch(missing[0], signal);
    else for (let at = 0; at < missing.length; at += state.limits.texts) await all(missing.slice(at, at + state.limits.texts), signal);
    if (signal.aborted) return;
    quiet();
    render();
    await inspect(signal);
  } catch (problem) {
    report(problem, signal);
  } finally {
    if (!signal.aborted) busy(false);
  }
}

/** One text: show it grow. */
async function watch(text, signal) {
  const answer = await api.stream({ text, ...settings() }, (partial) => {
    if (signal.aborted) return;
    state.partial = { text, partial };
    render();
  }, signal);
  if (!signal.aborted) keep(text, answer);
}

async function all(texts, signal) {
  const { translations } = await api.translate({ text: texts, ...settings() }, signal);
  if (!signal.aborted) translations.forEach((one, at) => keep(texts[at], one));
}

function keep(text, translation) {
  found.set(keyOf(text), translation);
  if (found.size > KEPT) found.delete(found.keys().next().value);
}

// ---- showing -----------------------------------------------------------------------------------------------------

const currentText = () => source.lines[state.line] || "";
const currentTranslation = () => found.get(keyOf(currentText()));

function render() {
  const lines = source.lines;
  state.line = Math.min(state.line, lines.length - 1);
  const old = [...$("output").children].map((node) => node.textContent);
  output.show(lines.map((text, at) => lineOf(text, old[at])), state.line);
  const longest = lines.reduce((most, line) => Math.max(most, size(line)), 0);
  $("count").textContent = longest ? say("count", longest, state.limits.characters) : "";
  $("count").classList.toggle("over", longest > state.limits.characters);
  $("split").textContent = longest > state.limits.characters ? say("long", state.limits.characters) : "";
  $("clear").hidden = !longest;
  $("copy").hidden = !lines.some((text) => found.has(keyOf(text)));
}

/** A translation, or what there is of it so far; until then the last one, paler. */
function lineOf(text, old) {
  const translation = found.get(keyOf(text));
  if (translation) return { text: translation.text, state: "done" };
  if (state.partial && state.partial.text === text) return { text: state.partial.partial, state: "partial" };
  return { text: text.trim() && !tooLong(text) ? old || "" : "", state: "old" };
}

/** Everything below: the map, the list and the tree of the line that is looked at. */
async function inspect(signal) {
  const translation = currentTranslation();
  $("below").hidden = !translation;
  state.shown = state.treeOf = null;
  if (!translation) return;
  const hypothesis = translation.n_best[state.chosen] || translation.n_best[0];
  announce();
  showBest($("best"), translation.n_best, state.chosen, (number) => {
    state.chosen = number;
    again();
  });
  output.show(source.lines.map((text) => lineOf(text, "")), state.line);
  output.words(state.line, translation.text, []);
  const doubts = translation.warnings.map(({ kind }) => say(kind));
  $("split").textContent = [...(translation.parts > 1 ? [say("parts", translation.parts)] : []), ...doubts].join(" ");
  const why = !state.model.layers ? say("noAttention") : "";
  none("map", why);
  $("below").classList.remove("long");
  showParts(why ? 1 : translation.parts);
  if (why) looking.clear();
  else if (translation.parts > 1) await lookAtPart(translation, signal);
  else await look(hypothesis, signal);
  await search(signal);
}

async function look(hypothesis, signal) {
  const map = await ask(currentText(), hypothesis.ids, signal);
  if (!map) return;
  output.element.children[state.line].textContent = hypothesis.text;
  source.show(state.line, map.source);
  output.words(state.line, hypothesis.text, map.target);
  looking.show(map);
}

/** A part of a long text has a map of its own; the words of the panes, which may come in other parts too, stay as they are. */
async function lookAtPart(translation, signal) {
  const piece = translation.pieces[state.part];
  const map = await ask(piece.source, piece.ids, signal);
  if (!map) return;
  source.show(state.line, []);
  looking.show(map);
}

async function ask(text, ids, signal) {
  const map = await api.attention({ text, target_ids: ids, model: state.model.name }, signal);
  if (signal.aborted) return null;
  state.shown = { text, ids };
  $("below").classList.toggle("long", map.source.length > LONG);
  return map;
}

/** Which part is looked at, where there are several. */
function showParts(count) {
  state.part = Math.min(state.part, count - 1);
  $("parts").hidden = count < 2;
  $("part-now").textContent = count < 2 ? "" : say("part", state.part + 1, count);
  $("part-before").disabled = state.part === 0;
  $("part-after").disabled = state.part === count - 1;
}

/** The tree, once somebody can see it. */
async function search(signal) {
  const translation = currentTranslation();
  if (!translation || !state.treeVisible || state.treeOf === keyOf(currentText())) return;
  none("tree", translation.parts > 1 ? say("noTree") : "");
  if (translation.parts > 1) return tree.clear();
  state.treeOf = keyOf(currentText());
  tree.wait();
  const { steps } = await api.beam({ text: currentText(), ...settings() }, signal).catch((problem) => {
    state.treeOf = null;
    throw problem;
  });
  if (!signal.aborted) tree.show(steps);
}

function none(name, why) {
  $(`${name}-none`).hidden = !why;
  $(`${name}-none`).textContent = why;
  $(name).hidden = Boolean(why);
  for (const button of name === "map" ? ["map-svg", "map-html"] : ["tree-svg"]) $(button).hidden = Boolean(why);
}

/** Look again at what is there, with another choice. */
function again() {
  turn.abort();
  turn = new AbortController();
  refresh();
}

function chooseLine(line) {
  Object.assign(state, { line, chosen: 0, part: 0 });
  source.show(line, []);
  render();
  again();
}

function announce() {
  const text = source.lines.map((line) => (found.get(keyOf(line)) || { text: "" }).text).join("\n").trim();
  if ($("live").dataset.text !== text) $("live").textContent = say("translation", text);
  $("live").dataset.text = text;
}

// ---- what goes wrong ---------------------------------------------------------------------------------------------

function report(problem, signal) {
  if (problem.name === "AbortError" || signal.aborted) return;
  const said = { gone: say("gone"), busy: say("busy"), slow: say("slow") }[problem.kind] || say("failed", problem.message);
  if (problem.kind === "key") return askForKey();
  $("notice").textContent = said;
  $("notice").hidden = false;
  if (problem.kind === "gone" || problem.kind === "busy") retry = setTimeout(state.model ? refresh : start, 1000 * problem.wait);
}

function askForKey() {
  $("key-form").hidden = false;
  $("key").focus();
}

function quiet() {
  $("notice").hidden = $("key-form").hidden = true;
}

function busy(is) {
  $("busy").hidden = !is;
}

// ---- choices -----------------------------------------------------------------------------------------------------

function useModel(name) {
  state.model = state.models.find((one) => one.name === name) || state.models[0];
  state.beam = Math.min(state.model.beam, state.limits.beam);
  state.chosen = 0;
  $("model").value = state.model.name;
  const widths = [...new Set([...WIDTHS, state.beam])].filter((width) => width <= state.limits.beam).sort((one, other) => one - other);
  $("width").replaceChildren(...widths.map((width) => make("option", { value: width }, String(width))));
  $("width").value = String(state.beam);
  $("text").lang = state.model.source_language || "";
  $("output").lang = state.model.target_language || "";
  $("below").classList.toggle("single", state.model.layers * state.model.heads < 2);
  nameSides();
  const chips = state.model.examples.map((text) => {
    const chip = make("button", { type: "button", dir: "auto" }, text);
    chip.addEventListener("click", () => write(text));
    return chip;
  });
  nameDomain();
  $("examples").replaceChildren(...(chips.length ? [make("span", { "data-say": "try" }, say("try")), ...chips] : []));
}

function nameSides() {
  const { source_language: from, target_language: to } = state.model || {};
  $("source-name").textContent = from ? languageName(from) : say("source");
  $("target-name").textContent = to ? languageName(to) : say("target");
}

/** What the model can translate at all, where that is little. */
function nameDomain() {
  const known = say("domain")[state.model.corpus];
  $("domain").hidden = !known;
  $("domain").textContent = known || "";
}

function write(text) {
  source.set(text);
  Object.assign(state, { line: 0, chosen: 0, part: 0 });
  later(0);
}

/** What is typed stays in the address, behind the #, which is never sent: a link to it shows the same. */
function remember() {
  const said = new URLSearchParams({ model: state.model.name, text: $("text").value });
  history.replaceState(null, "", $("text").value ? `#${said}` : location.pathname);
}

function useLanguage(chosen) {
  speak(chosen);
  if (!state.model) return;
  nameSides();
  nameDomain();
  render();
  again();
}

function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // a browser that keeps nothing
  }
}

function listen() {
  $("model").addEventListener("change", () => {
    useModel($("model").value);
    later(0);
  });
  $("width").addEventListener("change", () => {
    Object.assign(state, { beam: Number($("width").value), chosen: 0 });
    later(0);
  });
  $("clear").addEventListener("click", () => {
    write("");
    $("text").focus();
  });
  $("copy").addEventListener("click", async () => {
    const lines = source.lines.map((text) => (found.get(keyOf(text)) || { text: "" }).text);
    await navigator.clipboard.writeText(lines.join("\n")).then(() => ($("copy").textContent = say("copied")), () => {});
    setTimeout(() => ($("copy").textContent = say("copy")), 1500);
  });
  for (const button of document.querySelectorAll("[data-lang]")) {
    button.addEventListener("click", () => {
      store("jumok-language", button.dataset.lang);
      useLanguage(button.dataset.lang);
    });
  }
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    store("jumok-theme", dark ? "light" : "dark");
  });
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    api.useKey($("key").value);
    quiet();
    start();
  });
  for (const [id, by] of [["part-before", -1], ["part-after", 1]]) {
    $(id).addEventListener("click", () => {
      state.part += by;
      again();
    });
  }
  $("map-svg").addEventListener("click", () => looking.widget && save(fileName(state.shown.text, "svg"), "image/svg+xml", looking.widget.svg()));
  $("map-html").addEventListener("click", saveHtml);
  $("tree-svg").addEventListener("click", () => tree.nodes.length && save(fileName(currentText(), "tree.svg"), "image/svg+xml", tree.picture()));
  new IntersectionObserver(([entry]) => {
    state.treeVisible = entry.isIntersecting;
    const { signal } = turn;
    if (state.model) search(signal).catch((problem) => report(problem, signal));
  }, { rootMargin: "200px" }).observe($("beam"));
}

async function saveHtml() {
  if (!state.shown) return;
  const { text, ids } = state.shown, { signal } = turn;
  try {
    const language = document.documentElement.lang;
    save(fileName(text, "html"), "text/html", await api.page({ text, target_ids: ids, model: state.model.name, language }));
  } catch (problem) {
    report(problem, signal);
  }
}

// ---- beginning ---------------------------------------------------------------------------------------------------

async function start() {
  const { signal } = turn;
  try {
    const { models, limits } = await api.models();
    Object.assign(state, { models, limits });
  } catch (problem) {
    return report(problem, signal);
  }
  quiet();
  $("model").replaceChildren(...state.models.map(({ name }) => make("option", { value: name }, name)));
  const said = new URLSearchParams(location.hash.slice(1));
  useModel(said.get("model"));
  write($("text").value || said.get("text") || "");
}

speak(preferred());
listen();
start();
