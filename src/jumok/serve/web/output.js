/* The translation, line by line; the words of the line that is looked at can be pointed at and walked through. */

import { say } from "./strings.js";
import { light, make, spell } from "./words.js";

const UNSURE = 0.5; // words below this probability stand out

/** The attributes of a word with this probability. */
function probable(probability) {
  if (probability === undefined) return {};
  return { title: say("probability", probability), ...(probability < UNSURE ? { "data-unsure": "" } : {}) };
}

export class Output {
  /**
   * `onLine(number)` when a line is chosen, `onWord(number or null)` when a word is pointed at or focused,
   * `onPick(word, before)` when a word of the active line is clicked: its text and the text before it.
   */
  constructor(element, { onLine, onWord, onPick }) {
    Object.assign(this, { element, onLine, onWord, onPick, spans: [], active: 0, pinned: 0 });
    element.addEventListener("click", (event) => {
      const line = event.target.closest(".line");
      if (line && !line.classList.contains("active")) onLine([...element.children].indexOf(line));
      else this.pick(event.target);
    });
    for (const name of ["pointerover", "focusin"]) element.addEventListener(name, (event) => this.visit(event.target));
    for (const name of ["pointerout", "focusout"]) {
      element.addEventListener(name, (event) => {
        if (name === "pointerout" && (event.pointerType === "touch" || event.target === document.activeElement)) return;
        this.visit(document.activeElement);
      });
    }
    element.addEventListener("keydown", (event) => this.walk(event));
  }

  /** `lines` are {text, state}, state one of done, partial, old. */
  show(lines, active) {
    this.spans = [];
    this.element.classList.toggle("many", lines.length > 1);
    this.element.replaceChildren(
      ...lines.map(({ text, state }, number) =>
        make("div", { class: `line ${state}${number === active ? " active" : ""}`, dir: "auto" }, text)),
    );
    if (active !== this.active) this.follow(this.element.children[active]);
    this.active = active;
  }

  /** Scroll a line into sight, and nothing but the pane. */
  follow(line) {
    if (!line) return;
    const { element } = this, pane = element.getBoundingClientRect(), { top, bottom } = line.getBoundingClientRect();
    if (top < pane.top) element.scrollTop -= Math.ceil(pane.top - top);
    else if (bottom > pane.bottom) element.scrollTop += Math.ceil(bottom - pane.bottom);
  }

  /** The words of the active line, ready to light up, and how probable they are. */
  words(line, text, words, probabilities = []) {
    const node = this.element.children[line];
    if (!node) return;
    const focused = this.spans.indexOf(document.activeElement);
    node.replaceChildren();
    this.spans = spell(node, text, words, (number) => ({ "data-target": number, role: "button", tabindex: "-1", ...probable(probabilities[number]) }));
    this.underline(node);
    const reached = this.spans[focused] || this.spans.find(Boolean); // the first may be a language, which no text has
    if (reached) reached.tabIndex = 0;
    if (focused >= 0 && this.spans[focused]) this.spans[focused].focus({ preventScroll: true });
  }

  light(weights, top, chosen) {
    light(this.spans, weights, top, chosen);
  }

  visit(node) {
    const word = node && node.closest ? node.closest(".word[data-target]") : null;
    this.onWord(word && this.element.contains(word) ? Number(word.dataset.target) : null);
  }

  pick(node) {
    const word = node.closest(".word[data-target]");
    if (!word) return;
    const before = document.createRange();
    before.setStart(word.closest(".line"), 0);
    before.setEndBefore(word);
    this.onPick(word.textContent, before.toString());
  }

  /** Underline the words of a line that end within its first `pinned` characters. */
  underline(line) {
    let end = 0;
    for (const node of line.childNodes) {
      end += node.textContent.length;
      if (node.classList) node.classList.toggle("pinned-word", end <= this.pinned);
    }
  }

  walk(event) {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return this.pick(event.target);
    }
    const spans = this.spans.filter(Boolean), at = spans.indexOf(event.target);
    const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: spans.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    if (!spans[to]) return;
    spans[at].tabIndex = -1;
    spans[to].tabIndex = 0;
    spans[to].focus();
  }
}
