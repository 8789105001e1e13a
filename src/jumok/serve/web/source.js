/* The text that is typed: a textarea over a mirror of itself, in which words can light up. */

import { light, spell } from "./words.js";

export class Source {
  /** `onInput(line)` after a change in a line, `onLine(number)` when the caret changes its line, `onWord(number or null)` on hover. */
  constructor(area, mirror, { onInput, onLine, onWord }) {
    Object.assign(this, { area, mirror, onLine, onWord, spans: [], line: 0, words: [] });
    area.addEventListener("input", () => {
      this.show(this.before().length - 1, []);
      onInput(this.line);
    });
    area.addEventListener("pointermove", (event) => this.onWord(this.at(event.clientX, event.clientY)));
    area.addEventListener("pointerleave", () => this.onWord(null));
    area.addEventListener("blur", () => this.onWord(null));
    document.addEventListener("selectionchange", () => document.activeElement === area && this.caret());
  }

  get lines() {
    return this.area.value.split("\n");
  }

  set(text) {
    this.area.value = text;
    this.line = 0;
    this.show(0, []);
  }

  /** The words of one line, ready to light up. */
  show(line, words) {
    this.line = Math.min(line, this.lines.length - 1);
    this.words = words;
    const lines = this.lines, start = lines.slice(0, this.line).map((one) => one + "\n").join("");
    this.mirror.replaceChildren(start);
    this.spans = spell(this.mirror, lines[this.line], words, (number) => ({ "data-source": number }));
    this.mirror.append(lines.slice(this.line + 1).map((one) => "\n" + one).join("") + "\u200b");
  }

  light(weights, top, chosen) {
    light(this.spans, weights, top, chosen);
  }

  /** The word at a place of the window. */
  at(x, y) {
    const inside = (box) => x >= box.left - 3 && x <= box.right + 3 && y >= box.top - 3 && y <= box.bottom + 3;
    const index = this.spans.findIndex((span) => span && [...span.getClientRects()].some(inside));
    return index < 0 ? null : index;
  }

  /** The lines up to the caret. */
  before() {
    return this.area.value.slice(0, this.area.selectionStart).split("\n");
  }

  /** Follow the caret: to its line, and to the word it stands in. */
  caret() {
    const before = this.before();
    if (before.length - 1 !== this.line) return this.onLine(before.length - 1);
    let end = 0;
    const text = this.lines[this.line], place = before.at(-1).length;
    for (const [number, span] of this.spans.entries()) {
      if (!span) continue;
      const start = text.indexOf(span.textContent, end);
      end = start + span.textContent.length;
      if (place >= start && place <= end) return this.onWord(number);
    }
    this.onWord(null);
  }
}
