/* Words in a text: where they stand, and how they light up. */

export const END = "</s>";

/** An element with attributes and text; text is never read as markup. */
export function make(name, attributes, text) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** What of a text a token stands for; ▁ is a space before a word. */
const surface = (text, at, word) => (text.indexOf(word, at) < 0 ? word.replaceAll("▁", " ").trim() : word);

/** Put `text` into `parent`, each of `words` that occurs in it, in order, as a span; null for the others. */
export function spell(parent, text, words, attributes) {
  let at = 0;
  const spans = words.map((token, number) => {
    const word = surface(text, at, token);
    const start = !word || (word === END && number === words.length - 1) ? -1 : text.indexOf(word, at);
    if (start < 0) return null;
    parent.append(text.slice(at, start));
    at = start + word.length;
    return parent.appendChild(make("span", { class: "word", ...attributes(number) }, word));
  });
  parent.append(text.slice(at));
  return spans;
}

/** Show how much of the weight each span has; `weights` null for none, `chosen` the word itself. */
export function light(spans, weights, top, chosen) {
  spans.forEach((span, at) => {
    if (!span) return;
    span.classList.toggle("chosen", at === chosen);
    span.classList.toggle("lit", weights !== null);
    if (weights === null) {
      span.style.removeProperty("--share");
      delete span.dataset.weight;
    } else {
      span.style.setProperty("--share", (weights[at] / (top || 1)).toFixed(3));
      span.dataset.weight = weights[at].toFixed(5);
    }
  });
}
