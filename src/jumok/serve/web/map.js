/* The attention map of the output, and the words of both texts that light up with it. */

import { say } from "./strings.js";

const isGraph = (map) => Boolean(map.layout) && map.layout.kind === "graph";

/** Which words of a map stand in the two texts: in self-attention, only one of them has some; of a graph, none. */
export function wordsOf(map) {
  if (isGraph(map)) return { source: [], output: [] };
  const kind = map.kind || "cross";
  return { source: kind === "decoder" || map.layout ? [] : map.source, output: kind === "encoder" ? [] : map.target };
}

/** The probabilities of the words that stand in the output. */
export const probabilitiesOf = (map) => (map.kind === "encoder" ? [] : map.probabilities || []);

export class MapView {
  /** `source` and `output` light up their words; `picture` is where the image of a caption lights up. */
  constructor(element, { source, output, picture }) {
    const choice = { layer: "mean", head: "mean", tokens: false };
    Object.assign(this, { element, source, output, picture, widget: null, map: null, given: null, choice, letters: false });
  }

  /** Show a map; its words stand in the texts already, unless it is the map of a part only. For a character-level model, tokens come first. */
  show(map, letters) {
    this.clear();
    if (letters !== this.letters) this.choice = { ...this.choice, tokens: letters };
    this.letters = letters;
    this.given = this.map = map;
    this.widget = window.Jumok.attentionMap(this.element, map, {
      ...this.choice,
      sentences: false,
      texts: say("map", map.layout ? map.layout.kind : "line"),
      onHover: (place) => this.light(place),
      onSelect: (choice) => this.choose(choice),
    });
    if (map.layout && !isGraph(map)) this.picture.replaceChildren(this.element.querySelector(".jumok-image"));
    this.choose(this.choice);
  }

  /** The choice is kept for later maps. */
  choose(choice) {
    this.choice = choice;
    const { given } = this, map = choice.tokens && given.tokens ? { ...given, ...given.tokens } : given;
    if (map !== this.map) this.spell(map);
    this.map = map;
    this.light({ target: null, source: null });
  }

  /** Divide both texts into tokens, or into words again. */
  spell(map) {
    const { source, output } = this, line = output.element.children[output.active];
    const words = wordsOf(map);
    if (!line || (words.source.length && !source.words.length)) return;
    if (!map.layout) source.show(source.line, words.source);
    output.words(output.active, line.textContent, words.output, probabilitiesOf(map));
  }

  clear() {
    if (this.widget) this.widget.destroy();
    Object.assign(this, { widget: null, map: null, given: null });
  }

  /** Called by the widget: light up the words of both texts. */
  light({ target, source }) {
    const { widget, map } = this;
    if (!widget) return; // the map was removed while the pointer was over a word
    const top = widget.largest();
    const row = target === null ? null : map.source.map((_, at) => widget.weight(target, at));
    const column = source === null || target !== null ? null : map.target.map((_, at) => widget.weight(at, source));
    if (map.kind === "encoder") this.source.light(row || column, top, target ?? source);
    else if (map.kind === "decoder") {
      // The first column is the beginning of the sentence, which stands in no text.
      this.output.light(row ? row.slice(1) : column, top, target ?? (source ? source - 1 : null));
    } else {
      if (!map.layout) this.source.light(row, top, source);
      this.output.light(column, top, target);
    }
  }

  /** The pointer is over a word of one side; null for none. */
  point(side, at) {
    if (!this.widget) return;
    const own = { encoder: "source", decoder: "target" }[this.map.kind]; // the text that attends to itself
    if (at === null || (own && own !== side)) this.widget.highlight({});
    else this.widget.highlight(own ? { target: at } : { [side]: at });
  }
}
