/* The attention map of the translation that is looked at, and the words that light up with it. */

import { say } from "./strings.js";

export class Looking {
  /** `source` and `output` are told which words to light up. */
  constructor(element, source, output) {
    Object.assign(this, { element, source, output, widget: null, map: null, given: null, choice: { layer: "mean", head: "mean", tokens: false } });
  }

  /** The words of the map stand in both texts, ready to light up, unless it is the map of a part only. */
  show(map) {
    this.clear();
    this.given = this.map = map;
    this.widget = window.Jumok.attentionMap(this.element, map, {
      ...this.choice,
      sentences: false,
      texts: say("map"),
      onHover: (place) => this.light(place),
      onSelect: (choice) => this.choose(choice),
    });
    this.choose(this.choice);
  }

  /** The choice is kept for the maps to come. */
  choose(choice) {
    this.choice = choice;
    const { given } = this, map = choice.tokens && given.tokens ? { ...given, ...given.tokens } : given;
    if (map !== this.map) this.spell(map);
    this.map = map;
    this.light({ target: null, source: null });
  }

  /** Other pieces of both texts from now on: tokens, or words again. */
  spell(map) {
    const { source, output } = this, line = output.element.children[output.active];
    if (!source.words.length || !line) return;
    source.show(source.line, map.source);
    output.words(output.active, line.textContent, map.target);
  }

  clear() {
    if (this.widget) this.widget.destroy();
    Object.assign(this, { widget: null, map: null, given: null });
  }

  /** Called by the widget: light up the words of both texts. */
  light({ target, source }) {
    const { widget, map } = this;
    if (!widget) return; // a word that was pointed at while its map was taken away
    const top = widget.largest();
    const row = target === null ? null : map.source.map((_, at) => widget.weight(target, at));
    const column = source === null || target !== null ? null : map.target.map((_, at) => widget.weight(at, source));
    this.source.light(row, top, source);
    this.output.light(column, top, target);
  }

  /** A word of one side is pointed at; null for none. */
  point(side, at) {
    if (this.widget) this.widget.highlight(at === null ? {} : { [side]: at });
  }
}
