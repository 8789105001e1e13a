/* The classes that a model chooses from, with their probabilities; the true one is marked where it is known. */

import { say } from "./strings.js";
import { make } from "./words.js";

const SHOWN = 6; // classes, the true one among them

/** Show a classification; null for none. */
export function showClasses(list, classification) {
  list.hidden = !classification;
  if (!classification) return list.replaceChildren();
  const { probabilities, label } = classification;
  const ranked = Object.entries(probabilities).sort((one, other) => other[1] - one[1]);
  const shown = ranked.filter(([name], at) => at < SHOWN || name === label);
  if (shown.length > SHOWN) shown.splice(SHOWN - 1, 1); // the true one takes the place of the last
  list.classList.toggle("wrong", label !== null && label !== classification.class);
  list.replaceChildren(...shown.map(([name, share]) => row(name, share, name === label)));
  if (ranked.length > shown.length) list.append(make("li", { class: "count" }, say("moreClasses", ranked.length - shown.length)));
}

function row(name, share, isTrue) {
  const item = make("li"), bar = make("span", { class: "bar", "aria-hidden": "true" });
  item.append(make("span", { class: "name", dir: "auto" }, name));
  if (isTrue) item.append(make("span", { class: "true" }, say("trueClass")));
  item.append(make("span", { class: "share" }, say("share", share)), bar);
  bar.appendChild(make("i")).style.width = `${100 * share}%`;
  return item;
}
