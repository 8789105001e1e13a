/* Files to download, made in the browser. */

import { make } from "./words.js";

export function save(name, type, text) {
  const link = make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** A name for a file from a text. */
export function fileName(text, ending) {
  return `${text.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40) || "jumok"}.${ending}`;
}
