/* The image to describe: dropped on the page, chosen as a file, or pasted. */

import { make } from "./words.js";

const SIDE = 2048; // pixels to which an image that is too large for the server is reduced

export class ImageUpload {
  /** `zone` shows the image, `input` chooses a file; `enabled()` says whether the page wants images; `onFile(file)` gets one. */
  constructor({ zone, input, picture }, { enabled, onFile }) {
    Object.assign(this, { zone, input, picture });
    const take = (files) => {
      const file = [...(files || [])].find((one) => one.type.startsWith("image/")) || (files || [])[0];
      if (file) onFile(file);
      return Boolean(file);
    };
    input.addEventListener("change", () => {
      take(input.files);
      input.value = ""; // or the same file could not be chosen again
    });
    document.addEventListener("dragover", (event) => {
      if (!enabled()) return;
      event.preventDefault();
      zone.classList.add("over");
    });
    for (const name of ["dragleave", "drop"]) {
      document.addEventListener(name, (event) => {
        if (name === "drop" || !event.relatedTarget) zone.classList.remove("over");
      });
    }
    document.addEventListener("drop", (event) => {
      if (!enabled()) return;
      event.preventDefault(); // or the browser would leave the page and show the file
      take(event.dataTransfer.files);
    });
    document.addEventListener("paste", (event) => {
      if (enabled() && take(event.clipboardData.files)) event.preventDefault();
    });
  }

  /** Show an image until its attention is there; null for none. */
  show(url) {
    this.zone.classList.toggle("filled", Boolean(url));
    if (!url) return this.picture.replaceChildren();
    const image = make("img", { src: url, alt: "" });
    image.addEventListener("error", () => image.remove()); // a format that only the server can read
    this.picture.replaceChildren(image);
  }
}

/** A file as a data URL, reduced if it has more than `most` bytes. */
export async function dataUrl(file, most) {
  const blob = file.size > most ? await reduced(file) : file;
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

async function reduced(file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = make("canvas", { width: Math.round(bitmap.width * scale), height: Math.round(bitmap.height * scale) });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.9));
}
