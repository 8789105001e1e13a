/* The attention map of the translation that is looked at, and the words that light up with it. */

import { say } from "./strings.js";

/** Weights [target][source] of one layer and head, or averaged over those that are "mean". */
export function chosenWeights(map, layer, head) {
  const layers = layer === "mean" ? map.weights : [map.weights[layer]];
  const heads = layers.flatMap((one) => (head === "mean" ? one : [one[head]]));
  return map.target.map((_, row) => map.source.map((_, column) => heads.reduce((sum, one) => sum + one[row][column], 0) / heads.length));
}

export class Looking {
  /** `source` and `output` are told which words to light up. */
  constructor(element, source, output) {
    Object.assign(this, { element, source, output, widget: null, map: null, choice: { layer: "mean", head: "mean" } });
  }

  show(map) {
    this.clear();
    this.map = map;
    this.widget = window.Jumok.attentionMap(this.element, map, {
      ...this.choice,
      sentences: false,
      texts: say("map"),
      onHover: (place) => this.light(place),
      onSelect: (choice) => this.choose(choice),
    });
    this.choose(this.choice);
  }

  choose(choice) {
    this.choice = choice;
    const within = (at, count) => (at === "mean" || at < count ? at : "mean");
    const layer = within(choice.layer, this.map.weights.length), head = within(choice.head, this.map.weights[0].length);
    this.weights = chosenWeights(this.map, layer, head);
    this.top = Math.max(...this.weights.flat());
    this.light({ target: null, source: null });
  }

  clear() {
    if (this.widget) this.widget.destroy();
    Object.assign(this, { widget: null, map: null });
  }

  /** Called by the widget: light up the words of both texts. */
  light({ target, source }) {
    const row = target === null ? null : this.weights[target];
    const column = source === null || target !== null ? null : this.weights.map((one) => one[source]);
    this.source.light(row, this.top, source);
    this.output.light(column, this.top, target);
  }

  /** A word of one side is pointed at; null for none. */
  point(side, at) {
    if (this.widget) this.widget.highlight(at === null ? {} : { [side]: at });
  }
}
