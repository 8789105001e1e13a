/* The best translations or captions: words that differ from the first stand out; choosing one shows its attention. */

import { make } from "./words.js";

/** `onChoose(number)` when one is chosen. */
export function showHypotheses(list, hypotheses, chosen, onChoose) {
  const top = hypotheses.length ? Math.exp(hypotheses[0].score) : 1, focused = list.contains(document.activeElement);
  list.replaceChildren(...hypotheses.map((one, number) => {
    const button = make("button", { type: "button", "aria-pressed": String(number === chosen) });
    const bar = make("span", { class: "bar", "aria-hidden": "true" });
    const share = bar.appendChild(make("i"));
    share.style.width = `${(100 * Math.exp(one.score)) / top}%`;
    button.append(differing(one.text, hypotheses[0].text), make("span", { class: "score" }, one.score.toFixed(3).replace("-", "−")), bar);
    button.addEventListener("click", () => onChoose(number));
    const item = make("li");
    item.append(button);
    return item;
  }));
  if (focused && hypotheses.length) list.children[chosen].firstChild.focus(); // the button that had it is gone
}

/** The text with the words marked that the first one does not have. */
function differing(text, first) {
  const shown = make("span", { class: "text", dir: "auto" }), known = new Set(first.split(/\s+/));
  for (const part of text.split(/(\s+)/)) {
    shown.append(part.trim() && !known.has(part) ? make("mark", {}, part) : part);
  }
  return shown;
}
