/* The beam as a tree: a column for every step, the best on top; lines lead from a hypothesis to what extends it. */

import { say } from "./strings.js";
import { make } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const ROW = 36, HEIGHT = 28, GAP = 28, WIDEST_GAP = 110, LEFT = 4, TOP = 4;

function draw(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

const percent = (logProb) => {
  const share = 100 * Math.exp(logProb);
  return share >= 0.1 ? `${share.toFixed(share >= 9.95 ? 0 : 1)}%` : "< 0.1%";
};

export class Tree {
  constructor(element, status) {
    Object.assign(this, { element, status, nodes: [] });
    element.addEventListener("pointerover", (event) => this.visit(event.target));
    element.addEventListener("focusin", (event) => this.visit(event.target));
    element.addEventListener("pointerleave", () => this.visit(null));
    element.addEventListener("focusout", () => this.visit(null));
    element.addEventListener("keydown", (event) => this.walk(event));
    element.addEventListener("scroll", () => this.fade(), { passive: true });
    new ResizeObserver(() => this.fade()).observe(element);
  }

  clear() {
    this.nodes = [];
    this.element.replaceChildren();
    this.status.textContent = "";
  }

  /** Until there is a tree to show. */
  wait() {
    if (!this.nodes.length) this.status.textContent = say("loading");
  }

  /** `steps` as /api/beam gives them, up to the last that completed a hypothesis of the final list; its incomplete ones are left out. */
  show(all) {
    const steps = all.slice(0, all.findLastIndex((step) => step.some((node) => node.rank !== null)) + 1);
    if (steps.length) steps.push(steps.pop().filter((node) => node.ended));
    this.nodes = placed(steps, this.element.clientWidth);
    const last = this.nodes.at(-1) || [];
    const width = Math.max(LEFT * 2, ...last.map((node) => node.x + node.width + LEFT));
    const height = TOP * 2 + ROW * (Math.max(1, ...steps.map((step) => step.length)) - 1) + HEIGHT;
    this.svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": say("beam") });
    for (const column of this.nodes) for (const node of column) this.edge(node);
    for (const column of this.nodes) for (const node of column) this.box(node);
    this.element.replaceChildren(this.svg);
    this.visit(null);
    this.fade();
  }

  /** Whether more of it is to the right. */
  fade() {
    const { scrollLeft, clientWidth, scrollWidth } = this.element;
    this.element.style.setProperty("--beyond", scrollLeft + clientWidth < scrollWidth - 1 ? "40px" : "0px");
  }

  edge(node) {
    if (!node.above) return;
    const from = node.above.x + node.above.width, to = node.x, y = node.above.y + HEIGHT / 2, z = node.y + HEIGHT / 2;
    const half = (from + to) / 2;
    node.edge = draw("path", { class: `edge${node.best ? " best" : ""}`, d: `M${from} ${y}C${half} ${y} ${half} ${z} ${to} ${z}` });
    this.svg.append(node.edge);
  }

  box(node) {
    const kind = `node${node.best ? " best" : ""}${node.ended ? " end" : ""}${node.fell ? " fell" : ""}`;
    const group = draw("g", { class: kind, tabindex: node.step || node.row ? "-1" : "0", role: "img", "aria-label": this.words(node).join("") });
    group.append(
      draw("rect", { x: node.x, y: node.y, width: node.width, height: HEIGHT, rx: 9 }),
      draw("text", { x: node.x + node.width / 2, y: node.y + 19, "text-anchor": "middle" }, node.label),
    );
    Object.assign(node, { group });
    group.dataset.place = `${node.step}.${node.row}`;
    this.svg.append(group);
  }

  words(node) {
    const [text, chance] = say("treeNode", node.text, percent(node.log_prob));
    return [text, chance, node.ended ? ` · ${say("ended", node.rank)}` : ""];
  }

  find(target) {
    const group = target && target.closest ? target.closest(".node") : null;
    if (!group) return null;
    const [step, row] = group.dataset.place.split(".").map(Number);
    return this.nodes[step].find((node) => node.row === row);
  }

  /** Light up a hypothesis and all it came from, and say what it is. */
  visit(target) {
    const chosen = this.find(target) || this.find(document.activeElement);
    for (const node of this.nodes.flat()) {
      node.group.classList.remove("on");
      if (node.edge) node.edge.classList.remove("on");
    }
    for (let node = chosen; node; node = node.above) {
      node.group.classList.add("on");
      if (node.edge) node.edge.classList.add("on");
    }
    if (!this.nodes.length) return;
    if (!chosen) return void (this.status.textContent = say("treeHint"));
    const [text, chance, end] = this.words(chosen);
    this.status.replaceChildren(make("b", { dir: "auto" }, text), chance + end);
  }

  walk(event) {
    const node = this.find(event.target);
    if (!node) return;
    const below = (this.nodes[node.step + 1] || []).find((one) => one.above === node);
    const near = (rows) => this.nodes[node.step].find((one) => one.row === node.row + rows);
    const to = { ArrowLeft: node.above, ArrowRight: below, ArrowUp: near(-1), ArrowDown: near(1) }[event.key];
    if (!(event.key in { ArrowLeft: 0, ArrowRight: 0, ArrowUp: 0, ArrowDown: 0 })) return;
    event.preventDefault();
    if (!to) return;
    node.group.setAttribute("tabindex", "-1");
    to.group.setAttribute("tabindex", "0");
    to.group.focus();
    to.group.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** The picture as a file of its own, in the colours of the page. */
  picture() {
    const copy = this.svg.cloneNode(true), style = getComputedStyle(document.body);
    const shown = this.svg.querySelectorAll("rect, text, path");
    copy.querySelectorAll("rect, text, path").forEach((node, at) => {
      const one = getComputedStyle(shown[at]);
      for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight"]) {
        node.setAttribute(name, one.getPropertyValue(name));
      }
    });
    for (const node of copy.querySelectorAll("[class]")) for (const name of ["class", "tabindex", "data-place"]) node.removeAttribute(name);
    copy.setAttribute("font-family", style.fontFamily);
    const paper = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim();
    copy.prepend(draw("rect", { width: "100%", height: "100%", fill: paper }));
    return new XMLSerializer().serializeToString(copy);
  }
}

/** Every hypothesis with its place, its parent, and what became of it; columns part as far as there is room for it. */
function placed(steps, room) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `14px ${getComputedStyle(document.body).fontFamily}`;
  const broad = (one) => Math.max(HEIGHT, context.measureText(label(one)).width + 18);
  const needed = steps.reduce((sum, step) => sum + Math.max(0, ...step.map(broad)), 2 * LEFT);
  const gap = Math.min(Math.max((room - needed) / Math.max(steps.length - 1, 1), GAP), WIDEST_GAP);
  let x = LEFT, before = [];
  const nodes = [];
  steps.forEach((column, step) => {
    const kept = column.map((one) => ({ ...one, step, above: step ? before[one.parent] : null, label: label(one) }));
    const widths = kept.map(broad);
    [...kept].sort((one, other) => other.log_prob - one.log_prob).forEach((node, row) => Object.assign(node, { row, x, y: TOP + ROW * row }));
    kept.forEach((node, at) => (node.width = widths[at]));
    x += Math.max(0, ...widths) + gap;
    before = kept;
    nodes.push(kept);
  });
  for (const node of nodes.flat()) {
    if (node.rank === 0) for (let one = node; one; one = one.above) one.best = true;
    if (node.rank !== null) for (let one = node; one; one = one.above) one.stayed = true;
  }
  for (const node of nodes.flat()) node.fell = !node.stayed;
  return nodes;
}

function label(node) {
  if (node.ended) return node.rank === null ? say("end") : `${say("end")} ${node.rank + 1}`;
  return node.token.replace(/^▁(?=.)/, "\u00b7").replaceAll("▁", "␣");
}
