/* Other words in place of one of the translation: those that the model finds, or one that is typed. */

import { say } from "./strings.js";
import { make } from "./words.js";

export class Choices {
  /** `parts` are the elements; `onChoose(start)` with the beginning of the translation that was chosen. */
  constructor(parts, onChoose) {
    Object.assign(this, { ...parts, onChoose, before: "" });
    parts.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const word = parts.own.value.trim();
      if (word) this.choose(this.before + word);
    });
    parts.close.addEventListener("click", () => this.leave());
    parts.form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.leave();
    });
  }

  /** Open for a word, before its alternatives are known. */
  open(word, before) {
    Object.assign(this, { before, word, opener: document.activeElement });
    this.title.textContent = say("insteadOf", word);
    this.list.replaceChildren(make("span", { class: "count" }, say("loading")));
    this.own.value = "";
    this.form.hidden = false;
  }

  /** Show the alternatives that the server found. */
  show({ prefix, alternatives }) {
    const others = alternatives.filter(({ word }) => word !== this.word);
    this.list.replaceChildren(...others.map((one) => this.button(prefix, one)));
    if (!others.length) this.list.append(make("span", { class: "count" }, say("noOthers")));
    else this.list.firstChild.focus();
  }

  button(prefix, { word, text }) {
    const at = text.indexOf(word, prefix.length), end = at + word.length;
    const button = make("button", { type: "button", dir: "auto" });
    button.append(make("b", {}, word), make("span", { class: "rest" }, text.slice(end)));
    button.addEventListener("click", () => this.choose(text.slice(0, end)));
    return button;
  }

  choose(start) {
    this.hide();
    this.onChoose(start);
  }

  /** Close without a choice, and go back to the word. */
  leave() {
    this.hide();
    this.opener.focus();
  }

  hide() {
    this.form.hidden = true;
  }
}
