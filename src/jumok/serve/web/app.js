/* The page: sends texts, images and nodes to the server and shows the answers. Answers to outdated requests are dropped. */

import * as api from "./api.js";
import { Choices } from "./choices.js";
import { showClasses } from "./classes.js";
import { fileName, save } from "./download.js";
import { showHypotheses } from "./hypotheses.js";
import { MapView, probabilitiesOf, wordsOf } from "./map.js";
import { Output } from "./output.js";
import { Source } from "./source.js";
import { languageName, preferred, say, speak } from "./strings.js";
import { Tree } from "./tree.js";
import { ImageUpload, dataUrl } from "./upload.js";
import { make } from "./words.js";

const PAUSE = 220; // milliseconds without a key before a translation is asked for
const BEST = 5;
const KEPT = 500;
const LONG = 18; // words of a source beyond which its map has the whole width
const WIDTHS = [1, 2, 3, 4, 5, 6, 8, 10];
const OTHERS = 6; // words to choose from, the one that is there among them
const NARROW = 2; // beam size that completes them

const $ = (id) => document.getElementById(id);
const answers = new Map(); // translations and captions by model, beam and input
const written = new Map(); // what was last written for models that read texts, and for those that read nodes
const pinned = new Map(); // how the translation of a text has to begin
const state = { terms: {}, models: [], limits: {}, model: null, beam: 5, tag: "", from: "", to: "", kind: "cross", image: null, line: 0, chosen: 0, part: 0, partial: null, shown: null, treeOf: null };
let turn = new AbortController(), timer = 0, retry = 0, images = 0;

const source = new Source($("text"), $("mirror"), {
  onInput: (line) => {
    Object.assign(state, { line, chosen: 0, part: 0 });
    later(PAUSE);
  },
  onLine: (line) => chooseLine(line),
  onWord: (word) => map.point("source", word),
});
const output = new Output($("output"), {
  onLine: (line) => chooseLine(line),
  onWord: (word) => map.point("target", word),
  onPick: (word, before) => offer(word, before),
});
const choices = new Choices({ form: $("choices"), title: $("choices-title"), list: $("choices-list"), own: $("own-word"), close: $("choices-close") }, (start) => pin(start));
const upload = new ImageUpload({ zone: $("image-source"), input: $("file"), picture: $("picture") }, { enabled: captioning, onFile: openFile });
const map = new MapView($("map"), { source, output, picture: $("picture") });
const tree = new Tree($("tree"), $("tree-said"));

// ---- asking ------------------------------------------------------------------------------------------------------

function captioning() {
  return Boolean(state.model) && state.model.reads === "image";
}

/** Whether the model generates nothing, and its maps are all there is: of a node of a graph, or of a text. */
function mapping() {
  return Boolean(state.model) && !state.model.generates;
}

const ofNodes = () => mapping() && state.model.reads === "node";

/** What the model reads: the lines of the text, or the name of the image. */
const inputs = () => (captioning() ? [state.image ? state.image.name : ""] : source.lines);
const keyOf = (text) => [state.model.name, state.tag, state.from, state.to, state.beam, pinned.get(text) || "", captioning() ? "" : JSON.stringify(state.terms), text].join("\n");
const tagged = () => (state.tag ? { tag: state.tag } : {});
const settings = () => ({ model: state.model.name, beam: state.beam, n_best: Math.min(BEST, state.beam), ...tagged(), ...languages() });
/** What the translation of a text has to contain. */
const required = (text) => ({ ...(pinned.has(text) ? { prefix: pinned.get(text) } : {}), ...(Object.keys(state.terms).length ? { terms: state.terms } : {}) });
/** The languages that were chosen, where they are not those of the model. */
function languages() {
  const { source_language: from, target_language: to } = state.model;
  return { ...(state.from && state.from !== from ? { from: state.from } : {}), ...(state.to && state.to !== to ? { to: state.to } : {}) };
}

const size = (text) => Array.from(text).length; // in characters as the server counts them, not in halves of emoji
const tooLong = (text) => size(text) > state.limits.characters;
const answerTo = (text) => answers.get(keyOf(text));

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
  const missing = [...new Set(inputs())].filter((text) => text.trim() && !tooLong(text) && !answerTo(text));
  busy(missing.length > 0);
  try {
    if (missing.length && captioning()) await describe(state.image, signal);
    else if (mapping()) for (const text of missing) await mapInput(text, signal);
    else {
      const free = missing.filter((text) => !pinned.has(text));
      const alone = missing.length === 1 ? missing : missing.filter((text) => pinned.has(text)); // each with its own beginning
      for (const text of alone) await watch(text, signal);
      for (let at = 0; missing.length > 1 && at < free.length; at += state.limits.texts) await all(free.slice(at, at + state.limits.texts), signal);
    }
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
  const answer = await api.stream({ text, ...settings(), ...required(text) }, (partial) => {
    if (signal.aborted) return;
    state.partial = { text, partial };
    render();
  }, signal);
  if (!signal.aborted) keep(text, answer);
}

async function all(texts, signal) {
  const { translations } = await api.translate({ text: texts, ...settings(), ...required() }, signal);
  if (!signal.aborted) translations.forEach((one, at) => keep(texts[at], one));
}

async function describe(image, signal) {
  const caption = await api.caption({ image: image.url, ...settings() }, signal);
  if (!signal.aborted) keep(image.name, { ...caption, parts: 1, warnings: [] });
}

/** A text or a node of a model that has only maps; an unknown node is shown as an answer. */
async function mapInput(text, signal) {
  const read = { [state.model.reads]: text.trim() }, answer = { text: "", read, parts: 1, warnings: [], n_best: [], unknown: false };
  try {
    const shown = await api.attention({ ...read, model: state.model.name }, signal);
    const { classification = null } = shown;
    Object.assign(answer, { text: ofNodes() && classification ? classification.class : shown.text, shown, classification });
  } catch (problem) {
    if (!ofNodes() || problem.kind !== "invalid") throw problem;
    answer.unknown = true;
  }
  if (!signal.aborted) keep(text, answer);
}

function keep(text, answer) {
  answers.set(keyOf(text), answer);
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
}

// ---- showing -----------------------------------------------------------------------------------------------------

const currentText = () => inputs()[state.line] || "";
const currentAnswer = () => answerTo(currentText());

function render() {
  choices.hide();
  $("output").dataset.empty = say(captioning() ? "emptyCaption" : ofNodes() ? "emptyNode" : mapping() ? "emptyResult" : "empty");
  const lines = inputs();
  state.line = Math.min(state.line, lines.length - 1);
  const old = [...$("output").children].map((node) => node.textContent);
  output.show(lines.map((text, at) => lineOf(text, old[at])), state.line);
  showPinned();
  const longest = captioning() || ofNodes() ? 0 : lines.reduce((most, line) => Math.max(most, size(line)), 0);
  $("count").textContent = longest ? say("count", longest, state.limits.characters) : "";
  $("count").classList.toggle("over", longest > state.limits.characters);
  $("split").textContent = longest > state.limits.characters ? say("long", state.limits.characters) : "";
  $("clear").hidden = !lines.some(Boolean);
  $("copy").hidden = !outputText().trim();
  $("classes").classList.toggle("old", !currentAnswer());
  if (!currentText().trim()) showClasses($("classes"), null);
}

function showPinned() {
  const start = pinned.get(currentText());
  $("pinned").hidden = !start;
  $("pinned-text").textContent = start ? say("pinnedText", start) : "";
}

/** Offer other words in place of one; what comes before it stays. */
async function offer(word, before) {
  const text = currentText(), translation = currentAnswer(), { signal } = turn;
  if (captioning() || mapping() || !translation || translation.parts > 1) return;
  choices.open(word, before);
  try {
    const beam = Math.min(NARROW, state.beam);
    const found = await api.alternatives({ text, prefix: before, count: Math.min(OTHERS, state.limits.beam), model: state.model.name, beam, ...tagged(), ...languages() }, signal);
    if (!signal.aborted && !$("choices").hidden) choices.show(found);
  } catch (problem) {
    if (["invalid", "wrong"].includes(problem.kind)) choices.show({ prefix: before, alternatives: [] }); // a word can still be typed
    else report(problem, signal);
  }
}

/** Translate the current line again, beginning with a text; "" for any beginning. */
function pin(start) {
  const text = currentText();
  if (start) pinned.set(text, start);
  else pinned.delete(text);
  state.chosen = 0;
  later(0);
  if (start) $("unpin").focus(); // what was chosen is gone
}

/** The terms of the glossary: one in each line, as "source = target". */
function useTerms() {
  const lines = $("terms").value.split("\n").map((line) => line.split(/[=\t]/).map((side) => side.trim()));
  state.terms = Object.fromEntries(lines.filter((sides) => sides.length === 2 && sides.every(Boolean)));
  const count = Object.keys(state.terms).length;
  $("glossary-count").textContent = count ? say("terms", count) : "";
}

/** A translation, or what there is of it so far; until then the last one, paler. */
function lineOf(text, old) {
  const translation = answerTo(text);
  if (translation) return { text: translation.text, state: "done" };
  if (state.partial && state.partial.text === text) return { text: state.partial.partial, state: "partial" };
  return { text: text.trim() && !tooLong(text) ? old || "" : "", state: "old" };
}

/** Everything below: the map, the list and the tree of the line that is looked at. */
async function inspect(signal) {
  const translation = currentAnswer();
  $("below").hidden = !translation || translation.unknown;
  state.shown = state.treeOf = null;
  if (mapping()) return inspectMap(translation);
  if (!translation) return;
  const hypothesis = translation.n_best[state.chosen] || translation.n_best[0];
  announce();
  showHypotheses($("best"), translation.n_best, state.chosen, (number) => {
    state.chosen = number;
    again();
  });
  output.show(inputs().map((text) => lineOf(text, "")), state.line);
  output.words(state.line, translation.text, []);
  const doubts = translation.warnings.map(({ kind }) => say("doubts")[kind]);
  $("split").textContent = [...(translation.parts > 1 ? [say("parts", translation.parts)] : []), ...doubts].join(" ");
  const why = !state.model.kinds.length ? say("noAttention") : "";
  none("map", why);
  $("below").classList.toggle("long", captioning());
  showParts(why ? 1 : translation.parts);
  if (why) map.clear();
  else if (translation.parts > 1) await lookAtPart(translation, signal);
  else await look(hypothesis, signal);
  await search(signal);
}

/** The class of an input and its map; all of it came with the answer. */
function inspectMap(answer) {
  showClasses($("classes"), answer && !answer.unknown ? answer.classification : null);
  if (!answer) return;
  if (answer.unknown) {
    const why = say("noNode", currentText().trim());
    if (inputs().length > 1) $("split").textContent = why;
    else $("output").dataset.empty = why;
    return map.clear();
  }
  announce();
  const { shown, read } = answer, words = wordsOf(shown);
  state.shown = { asked: read, name: currentText() };
  source.show(state.line, words.source);
  output.words(state.line, answer.text, words.output);
  none("map", "");
  showParts(1);
  $("below").classList.add("long");
  map.show(shown, false);
}

async function look(hypothesis, signal) {
  const shown = await ask({ text: currentText(), ...tagged() }, hypothesis.ids, signal);
  if (!shown) return;
  const words = wordsOf(shown);
  output.element.children[state.line].textContent = hypothesis.text;
  if (captioning()) upload.show(state.image.url);
  else source.show(state.line, words.source);
  output.pinned = (pinned.get(currentText()) || "").length;
  output.words(state.line, hypothesis.text, words.output, probabilitiesOf(shown));
  map.show(shown, state.model.letters);
}

/** A part of a long text has a map of its own; the words of the panes, which may come in other parts too, stay as they are. */
async function lookAtPart(translation, signal) {
  const piece = translation.pieces[state.part];
  const shown = await ask({ text: piece.source }, piece.ids, signal);
  if (!shown) return;
  source.show(state.line, []);
  map.show(shown, state.model.letters);
}

async function ask(given, ids, signal) {
  const read = captioning() ? { image: state.image.url } : { ...given, ...languages() };
  const asked = { ...read, target_ids: ids, kind: state.kind };
  const shown = await api.attention({ ...asked, words: true, tokens: true, model: state.model.name }, signal);
  if (signal.aborted) return null;
  state.shown = { asked, name: captioning() ? shown.text : given.text };
  $("below").classList.toggle("long", Boolean(shown.layout) || shown.source.length > LONG);
  return shown;
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
  const translation = currentAnswer();
  if (!translation || captioning() || mapping() || !state.treeVisible || state.treeOf === keyOf(currentText())) return;
  none("tree", translation.parts > 1 ? say("noTree") : "");
  if (translation.parts > 1) return tree.clear();
  state.treeOf = keyOf(currentText());
  tree.wait();
  const { steps } = await api.beam({ text: currentText(), ...settings(), ...required(currentText()) }, signal).catch((problem) => {
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

const outputText = () => inputs().map((text) => (answerTo(text) || { text: "" }).text).join("\n");

function announce() {
  const text = outputText().trim();
  const kind = captioning() ? "captioned" : ofNodes() ? "classified" : mapping() ? "answered" : "translation";
  if ($("live").dataset.text !== text) $("live").textContent = say(kind, text);
  $("live").dataset.text = text;
}

// ---- what goes wrong ---------------------------------------------------------------------------------------------

function report(problem, signal) {
  if (problem.name === "AbortError" || signal.aborted) return;
  if (problem.kind === "key") return askForKey();
  $("notice").textContent = ["gone", "busy", "slow"].includes(problem.kind) ? say(problem.kind) : say("failed", problem.message);
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
  state.beam = Math.min(state.model.beam || 1, state.limits.beam);
  state.chosen = 0;
  $("model").value = state.model.name;
  showTags();
  useLanguages(state.model.source_language, state.model.target_language);
  const widths = [...new Set([...WIDTHS, state.beam])].filter((width) => width <= state.limits.beam).sort((one, other) => one - other);
  $("width").replaceChildren(...widths.map((width) => make("option", { value: width }, String(width))));
  $("width").value = String(state.beam);
  showKinds();
  $("below").classList.toggle("single", state.model.layers * state.model.heads < 2);
  $("text-source").hidden = captioning();
  $("beam").hidden = $("glossary").hidden = captioning() || mapping();
  $("image-source").hidden = !captioning();
  $("hypotheses").hidden = mapping();
  $("main").classList.toggle("nodes", ofNodes());
  showClasses($("classes"), null);
  $("terms").value = kept(`jumok-terms ${state.model.name}`);
  $("glossary").open = Boolean($("terms").value);
  useTerms();
  $("skip").href = captioning() ? "#file" : "#text";
  $("best-title").dataset.say = captioning() ? "captions" : "others";
  $("main").dataset.label = captioning() ? "describe" : ofNodes() ? "classify" : mapping() ? "look" : "translate";
  $("text").dataset.hint = ofNodes() ? "nodeHint" : "placeholder";
  nameSides();
  nameDomain();
  showExamples();
}

/** The tags to choose from; those of languages are chosen as languages. */
function showTags() {
  const tags = state.model.tags.filter((tag) => !state.model.target_languages.includes(tag.slice(2, -2)));
  state.tag = "";
  $("tags").hidden = !tags.length;
  $("tag").replaceChildren(...["", ...tags].map((tag) => make("option", { value: tag }, tag || say("noTag"))));
}

/** Translate between these languages; a model of several languages offers others. */
function useLanguages(from, to) {
  Object.assign(state, { from: from || "", to: to || "" });
  for (const [side, known] of [["from", state.model.source_languages], ["to", state.model.target_languages]]) {
    const named = known.map((code) => [code, languageName(code)]).sort((one, other) => one[1].localeCompare(other[1]));
    const none = known.includes(state[side]) ? [] : [["", say("anyLanguage")]];
    $(`${side}-choice`).hidden = !known.length;
    $(side).replaceChildren(...[...none, ...named].map(([code, name]) => make("option", { value: code }, name)));
    $(side).value = state[side];
  }
  $("text").lang = state.from;
  $("output").lang = state.to;
}

/** The kinds of attention to choose from, where there are several. */
function showKinds() {
  const { kinds } = state.model;
  if (!kinds.includes(state.kind)) state.kind = kinds[0] || "cross";
  $("kind").replaceChildren(...kinds.map((kind) => make("option", { value: kind }, say("kinds")[kind])));
  $("kind").value = state.kind;
  $("kinds").hidden = kinds.length < 2;
}

function showExamples() {
  const chips = state.model.examples.map(captioning() ? imageExample : textExample);
  $("examples").replaceChildren(...(chips.length ? [make("span", { "data-say": "try" }, say("try")), ...chips] : []));
}

function textExample(text) {
  const chip = make("button", { type: "button", dir: "auto" }, text);
  chip.addEventListener("click", () => write(text));
  return chip;
}

function imageExample(url, number) {
  const chip = make("button", { type: "button", class: "thumbnail", "aria-label": say("exampleImage", number + 1) });
  chip.append(make("img", { src: url, alt: "" }));
  chip.addEventListener("click", () => useImage(url));
  return chip;
}

function nameSides() {
  const { source_languages: sources, target_languages: targets } = state.model;
  const from = sources.length ? "" : state.from, to = targets.length ? "" : state.to; // the choice names them
  $("source-name").textContent = captioning() ? say("image") : ofNodes() ? say("node") : from ? languageName(from) : say("source");
  $("source-name").htmlFor = captioning() ? "file" : "text";
  const written = captioning() ? "caption" : ofNodes() ? "nodeClass" : mapping() ? "result" : "target";
  $("target-name").textContent = to && !captioning() ? languageName(to) : say(written);
  $("best-title").textContent = say($("best-title").dataset.say);
  $("main").setAttribute("aria-label", say($("main").dataset.label));
  $("text").placeholder = say($("text").dataset.hint);
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

/** Describe an image, given as a data URL; null for none. */
function useImage(url) {
  state.image = url ? { url, name: `image ${(images += 1)}` } : null;
  Object.assign(state, { line: 0, chosen: 0, part: 0 });
  map.clear();
  upload.show(url);
  $("choose").textContent = say(url ? "chooseAnother" : "chooseFile");
  $("choose").dataset.say = url ? "chooseAnother" : "chooseFile";
  later(0);
}

async function openFile(file) {
  try {
    useImage(await dataUrl(file, state.limits.image_bytes));
  } catch {
    report(new api.Problem("wrong", say("unreadable")), turn.signal);
  }
}

/** What is typed stays in the address, behind the #, which is never sent: a link to it shows the same. */
function remember() {
  const text = captioning() ? "" : $("text").value, first = state.model === state.models[0];
  const link = new URLSearchParams({ model: state.model.name, ...languages(), ...(text ? { text } : {}) });
  history.replaceState(null, "", text || !first ? `#${link}` : location.pathname);
}

function useLanguage(chosen) {
  speak(chosen);
  if (!state.model) return;
  useLanguages(state.from, state.to);
  nameSides();
  nameDomain();
  showKinds();
  showExamples();
  useTerms();
  render();
  again();
}

function kept(name) {
  try {
    return localStorage.getItem(name) || "";
  } catch {
    return "";
  }
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
    Object.assign(state, { line: 0, part: 0 });
    map.clear();
    const { reads } = state.model;
    written.set(reads, $("text").value);
    useModel($("model").value);
    if (state.model.reads !== reads) source.set(written.get(state.model.reads) || ""); // a text names no node
    upload.show(state.image && state.image.url);
    later(0);
  });
  $("tag").addEventListener("change", () => {
    Object.assign(state, { tag: $("tag").value, chosen: 0, part: 0 });
    later(0);
  });
  for (const side of ["from", "to"]) {
    $(side).addEventListener("change", () => {
      useLanguages($("from").value || state.from, $("to").value || state.to);
      Object.assign(state, { chosen: 0, part: 0 });
      later(0);
    });
  }
  $("width").addEventListener("change", () => {
    Object.assign(state, { beam: Number($("width").value), chosen: 0 });
    later(0);
  });
  $("kind").addEventListener("change", () => {
    state.kind = $("kind").value;
    again();
  });
  $("unpin").addEventListener("click", () => pin(""));
  $("terms").addEventListener("input", () => {
    useTerms();
    store(`jumok-terms ${state.model.name}`, $("terms").value);
    later(PAUSE);
  });
  $("clear").addEventListener("click", () => {
    if (captioning()) useImage(null);
    else write("");
    $(captioning() ? "file" : "text").focus();
  });
  $("text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !ofNodes()) return;
    event.preventDefault(); // a node is no text of several lines
    later(0);
  });
  $("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(outputText()).then(() => ($("copy").textContent = say("copied")), () => {});
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
  $("map-svg").addEventListener("click", () => map.widget && save(fileName(state.shown.name, "svg"), "image/svg+xml", map.widget.svg()));
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
  const { asked, name } = state.shown, { signal } = turn;
  try {
    const language = document.documentElement.lang;
    save(fileName(name, "html"), "text/html", await api.page({ ...asked, model: state.model.name, language }));
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
  const link = new URLSearchParams(location.hash.slice(1));
  useModel(link.get("model"));
  const linked = (side, known) => (known.includes(link.get(side)) ? link.get(side) : state[side]);
  useLanguages(linked("from", state.model.source_languages), linked("to", state.model.target_languages));
  write($("text").value || link.get("text") || "");
}

speak(preferred());
listen();
start();
