/* What the maps of attention.js are made of: elements, colours, the numbers of a layer and head, letters that no font has. */
(function (root) {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";
  const RAMPS = {
    light: ["#f3f6fb", "#cfe1f3", "#82b4de", "#2f78bc", "#0a3a78"],
    dark: ["#1d2534", "#1f4570", "#2a74b8", "#67b7f0", "#dcf1ff"],
  };
  const LETTERS = 400; // that are looked for in the fonts of the reader
  const looked = new Map(); // which of them were missing

  const JAMO = [
    [0x1100, "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"], [0x1161, "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"],
    [0x11a8, "ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"],
  ];
  const ALONE = new Map(JAMO.flatMap(([start, letters]) => Array.from(letters, (letter, at) => [String.fromCharCode(start + at), letter])));
  const SYLLABLE = /[\u1100-\u115f]+[\u1160-\u11a7]+[\u11a8-\u11ff]*|[가-힣][\u11a8-\u11ff]*|[\u1100-\u11ff]/g;

  /** As in style.py: what is only a part of a letter, the vowel of a syllable or an accent, as a letter that stands alone. */
  function readable(text) {
    const letters = text.normalize("NFC").replace(SYLLABLE, (found) => ALONE.get(found) || found);
    return /^[\p{Mn}\p{Me}]/u.test(letters) ? "◌" + letters : letters;
  }

  function make(name, attributes, text) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function draw(name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function bytes(hex) {
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  }

  function ramp(theme) {
    const stops = RAMPS[theme].map(bytes);
    return function (share) {
      const place = Math.min(1, Math.max(0, share)) * (stops.length - 1);
      const low = Math.min(stops.length - 2, Math.floor(place));
      return stops[low].map((one, at) => Math.round(one + (place - low) * (stops[low + 1][at] - one)));
    };
  }

  const css = (rgb) => "rgb(" + rgb.join(",") + ")";
  const shown = (text) => (text.trim() === "" ? "␣" : readable(text));
  const percent = (weight) => (weight >= 0.0995 ? Math.round(100 * weight) : (100 * weight).toPrecision(2)) + "%";
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  /** Which way a sentence runs: as its first letter of a known direction. */
  function direction(words) {
    const letter = words.join(" ").match(/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]|[A-Za-z\u00c0-\u024f\u0370-\u058f\u0900-\u1fff\u3040-\ud7af]/);
    return letter && /[\u0590-\u08ff\ufb1d-\ufefc]/.test(letter[0]) ? "rtl" : "ltr";
  }

  /** The weights of one layer and head, or their mean, as one array of target · source numbers. */
  function matrix(map, layer, head) {
    const rows = map.target.length, columns = map.source.length;
    const values = new Float32Array(rows * columns);
    const layers = layer === "mean" ? map.weights : [map.weights[layer]];
    let count = 0;
    for (const heads of layers) {
      for (const one of head === "mean" ? heads : [heads[head]]) {
        count += 1;
        for (let row = 0; row < rows; row++) {
          const line = one[row];
          for (let column = 0; column < columns; column++) values[row * columns + column] += line[column];
        }
      }
    }
    let top = 0;
    for (let at = 0; at < values.length; at++) top = Math.max(top, (values[at] /= Math.max(count, 1)));
    return { values, rows, columns, top: top || 1, at: (row, column) => values[row * columns + column] };
  }

  function entropies(shownMatrix) {
    const found = new Float32Array(shownMatrix.rows);
    for (let row = 0; row < shownMatrix.rows; row++) {
      for (let column = 0; column < shownMatrix.columns; column++) {
        const weight = shownMatrix.at(row, column);
        if (weight > 0) found[row] -= weight * Math.log(weight);
      }
    }
    return found;
  }

  /** The matrix on a canvas of at most `most` dots a side, each as dark as the darkest cell in it. */
  function thumbnail(canvas, one, most, colours) {
    const height = clamp(one.rows, 1, most), width = clamp(one.columns, 1, most);
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    const largest = new Float32Array(width * height);
    for (let row = 0; row < one.rows; row++) {
      const line = Math.floor((row * height) / one.rows) * width;
      for (let column = 0; column < one.columns; column++) {
        const dot = line + Math.floor((column * width) / one.columns);
        largest[dot] = Math.max(largest[dot], one.at(row, column));
      }
    }
    largest.forEach((weight, dot) => image.data.set([...colours(weight / one.top), 255], 4 * dot));
    context.putImageData(image, 0, 0);
  }

  /** A map as the widget wants it: texts as texts, names for everything, and where the sources lie. */
  function checked(map) {
    const fine = map && Array.isArray(map.source) && Array.isArray(map.target) && Array.isArray(map.weights);
    if (!fine) throw new TypeError("an attention map needs source, target and weights");
    const names = map.names || {};
    const heads = map.weights.length ? map.weights[0].length : 0;
    const numbers = (count) => Array.from({ length: count }, (_, at) => String(at));
    return {
      source: map.source.map(String),
      target: map.target.map(String),
      weights: map.weights,
      layers: names.layers && names.layers.length ? names.layers.map(String) : numbers(map.weights.length),
      heads: names.heads && names.heads.length ? names.heads.map(String) : numbers(heads),
      layout: map.layout || { kind: "line" },
      title: String(map.title || ""),
      kind: map.kind || "cross",
      probabilities: map.probabilities || [],
      tokens: map.tokens ? checked({ ...map, probabilities: [], ...map.tokens, tokens: null }) : null,
    };
  }

  /** Letters that no font of the reader has: they look like one that is no letter at all. */
  function missingLetters(texts, family) {
    const context = make("canvas", { width: 28, height: 28 }).getContext("2d", { willReadFrequently: true });
    context.font = "18px " + family;
    const dots = (letter) => {
      context.clearRect(0, 0, 28, 28);
      context.fillText(letter, 4, 20);
      return context.getImageData(0, 0, 28, 28).data.join();
    };
    const nothing = dots("\u0378"); // no letter in any Unicode so far
    const missing = (letter) => {
      const key = family + letter;
      if (!looked.has(key)) looked.set(key, dots(letter) === nothing);
      return looked.get(key);
    };
    const letters = new Set(Array.from(texts.join("")).filter((letter) => letter > "\u024f" && /[\p{L}\p{N}\p{S}\p{Cn}\p{Co}]/u.test(letter)));
    return Array.from(letters).slice(0, LETTERS).filter(missing);
  }

  const parts = { make, draw, css, shown, percent, clamp, ramp, direction, matrix, entropies, thumbnail, missingLetters, checked, SVG };
  root.Jumok = Object.assign(root.Jumok || {}, { parts });
})(window);
