// The image in its colours where a word looked, dark and greyer elsewhere. Words are shown as text, never as markup.
(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const large = document.getElementById("image");
  const read = document.getElementById("read");
  const words = [], panels = [];
  let pixels = null; // of the image, once it is decoded
  let pinned = -1, shown = -2;

  document.getElementById("theme").addEventListener("click", function () {
    const page = document.documentElement;
    const dark = page.dataset.theme ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    page.dataset.theme = dark ? "light" : "dark";
  });

  // The four numbers that a cubic curve through neighbouring regions gives their weights (Keys 1981, a = -0.75).
  function cubic(t) {
    const a = -0.75, s = 1 - t;
    const far = (x) => ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    const near = (x) => ((a + 2) * x - (a + 3)) * x * x + 1;
    return [far(t + 1), near(t), near(s), far(s + 1)];
  }

  // For each pixel along an axis, the first of its four regions and their numbers.
  function stretched(regions, length) {
    return Array.from({ length }, function (_, at) {
      const place = (at + 0.5) * regions / length - 0.5, first = Math.floor(place);
      return { first: first - 1, parts: cubic(place - first) };
    });
  }

  function light(grid, width, height) {
    const rows = grid.length, cols = grid[0].length, found = new Float32Array(width * height);
    const inside = (at, count) => Math.min(count - 1, Math.max(0, at));
    const across = stretched(cols, width), down = stretched(rows, height);
    const wide = grid.map((row) => across.map((one) =>
      one.parts.reduce((sum, part, i) => sum + part * row[inside(one.first + i, cols)], 0)));
    let most = 1e-12;
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const sum = down[y].parts.reduce((sum, part, i) => sum + part * wide[inside(down[y].first + i, rows)][x], 0);
        found[y * width + x] = Math.max(0, sum);
        most = Math.max(most, sum);
      }
    }
    return found.map((one) => one / most);
  }

  function paint(canvas, word) {
    const width = data.image.width, height = data.image.height;
    canvas.width = width;
    canvas.height = height;
    const painted = new ImageData(new Uint8ClampedArray(pixels.data), width, height);
    if (word >= 0) {
      const bright = light(data.weights[word], width, height), to = painted.data;
      for (let i = 0; i < bright.length; i++) {
        const at = 4 * i, b = bright[i];
        const grey = 0.299 * to[at] + 0.587 * to[at + 1] + 0.114 * to[at + 2];
        for (let c = 0; c < 3; c++) to[at + c] = b * to[at + c] + (1 - b) * data.dim * (to[at + c] + grey) / 2;
      }
    }
    canvas.getContext("2d", { willReadFrequently: true }).putImageData(painted, 0, 0);
  }

  function place(word) {
    const grid = data.weights[word], rows = grid.length, cols = grid[0].length;
    let best = [0, 0];
    grid.forEach((row, y) => row.forEach((one, x) => { if (one > grid[best[0]][best[1]]) best = [y, x]; }));
    const third = (at, count) => Math.min(2, Math.floor(3 * (at + 0.5) / count));
    const vertical = ["upper", "", "lower"][third(best[0], rows)], side = ["left", "", "right"][third(best[1], cols)];
    const name = [vertical, side].filter(Boolean).join(" ");
    const part = !name ? "in the middle" : vertical && side ? "at the " + name : vertical ? "at the " + (vertical === "upper" ? "top" : "bottom") : "on the " + side;
    return part + ": " + Math.round(100 * grid[best[0]][best[1]]) + "% in one of " + rows * cols + " regions, where " +
      Math.round(100 / rows / cols) + "% would be even";
  }

  function show(word) {
    if (word === shown || !pixels) return;
    shown = word;
    paint(large, word);
    const nothing = data.words.length ? "" : "The caption is empty.";
    read.textContent = word < 0 ? nothing : data.words[word] + " looked most " + place(word) + ".";
    large.setAttribute("aria-label", word < 0 ? data.caption : "Where " + data.words[word] + " looked, " + place(word));
    [words, panels].forEach((list) => list.forEach((button, at) => button.setAttribute("aria-pressed", String(at === word))));
  }

  function button(word, parent, list) {
    const made = document.createElement("button");
    made.type = "button";
    made.setAttribute("aria-pressed", "false");
    made.addEventListener("mouseenter", () => show(word));
    made.addEventListener("mouseleave", () => show(pinned));
    made.addEventListener("focus", () => show(word));
    made.addEventListener("click", function () {
      pinned = pinned === word ? -1 : word;
      show(word);
    });
    parent.append(made);
    list.push(made);
    return made;
  }

  document.addEventListener("keydown", function (event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step && words.length) {
      const next = shown < 0 ? (step > 0 ? 0 : words.length - 1) : (shown + step + words.length) % words.length;
      words[next].focus();
      event.preventDefault();
    } else if (event.key === "Escape") {
      pinned = -1;
      if (document.activeElement) document.activeElement.blur();
      show(-1);
    }
  });

  const caption = document.getElementById("caption"), all = document.getElementById("all");
  data.words.forEach(function (text, word) {
    button(word, caption, words).textContent = text;
    caption.append(" ");
    const panel = button(word, all, panels), label = document.createElement("span");
    panel.tabIndex = -1; // the caption's words are reached by the keyboard
    label.textContent = text;
    panel.append(label, document.createElement("canvas"));
  });

  const image = new Image();
  image.onload = function () {
    const canvas = document.createElement("canvas");
    canvas.width = data.image.width;
    canvas.height = data.image.height;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    pixels = context.getImageData(0, 0, canvas.width, canvas.height);
    show(-1);
    panels.forEach((panel, word) => paint(panel.querySelector("canvas"), word));
    document.body.dataset.ready = "yes";
  };
  image.src = data.image.href;
})();
