/* The view of an image: its colours where a word looked, dark and greyer elsewhere, and a small panel for every word. */
(function (root) {
  "use strict";

  const { make, draw, shown, clamp, matrix, thumbnail, percent } = root.Jumok.parts;
  const PANEL = 168, GAP = 16, MARGIN = 20, LABEL = 24; // of a copied picture

  /** The shares of four neighbouring regions in a pixel between them: those of cubic B-splines, as in draw/image.py. */
  function cubic(t) {
    const s = 1 - t, near = (x) => ((3 * x - 6) * x * x + 4) / 6;
    return [s ** 3 / 6, near(t), near(s), t ** 3 / 6];
  }

  /** For each pixel along an axis, the first of its four regions and their numbers. */
  function stretched(regions, length, [centre, step]) {
    return Array.from({ length }, (_, at) => {
      const place = ((at + 0.5) / length - centre) / step, first = Math.floor(place);
      return { first: first - 1, parts: cubic(place - first) };
    });
  }

  /** The centre of the first of `count` regions along an axis and the distance to the next, as fractions of what the model saw. */
  const centres = (layout, count) => layout.centres || [0.5 / count, 1 / count];

  /** Where a region begins and ends along an axis; the first and the last reach to the edges. */
  function extent(layout, at, count) {
    const [centre, step] = centres(layout, count);
    return [at ? centre + (at - 0.5) * step : 0, at < count - 1 ? centre + (at + 0.5) * step : 1];
  }

  /** How bright each pixel is, from 0 to 1: weight(row, column) of the regions, blended smoothly. */
  function light(weight, layout, width, height) {
    const { rows, columns } = layout, found = new Float32Array(width * height);
    const across = stretched(columns, width, centres(layout, columns)), down = stretched(rows, height, centres(layout, rows));
    const inside = (at, count) => clamp(at, 0, count - 1);
    const wide = Array.from({ length: rows }, (_, row) =>
      across.map((one) => one.parts.reduce((sum, part, at) => sum + part * weight(row, inside(one.first + at, columns)), 0)));
    let most = 1e-12;
    for (let y = 0; y < height; y++) {
      const lines = down[y].parts.map((part, at) => [part, wide[inside(down[y].first + at, rows)]]);
      for (let x = 0; x < width; x++) {
        const sum = lines.reduce((so_far, [part, line]) => so_far + part * line[x], 0);
        found[y * width + x] = Math.max(0, sum);
        most = Math.max(most, sum);
      }
    }
    return found.map((one) => one / most);
  }

  /** A pixel's part as bright as it is looked at, from 0 to 1: dark and greyer where it is not. */
  const lit = (part, grey, share, dim) => share * part + ((1 - share) * dim * (part + grey)) / 2;
  const greyOf = (red, green, blue) => 0.299 * red + 0.587 * green + 0.114 * blue;

  /** A canvas as text that stands for its file: a JPEG where that is shorter, as it is for photos, else a PNG. */
  function embedded(canvas) {
    const [png, jpeg] = [canvas.toDataURL("image/png"), canvas.toDataURL("image/jpeg", 0.88)];
    return jpeg.length < png.length ? jpeg : png;
  }

  class ImageWidget extends root.Jumok.MapWidget {
    ownTexts() {
      return {
        legend: "Weights: dark where a word does not attend, in full colour where it attends most.",
        eachLargest: "largest of each word", cut: "The darkest edges were cropped before the model saw the image.",
        hint: "Point at a word or the image, tap, or use the arrow keys to see where words attend.",
        empty: "The caption is empty.",
        entropy: (nats, regions) => `entropy ${nats}, equivalent to ${regions} regions`,
        parts: [
          ["at the upper left", "at the top", "at the upper right"],
          ["on the left", "in the middle", "on the right"],
          ["at the lower left", "at the bottom", "at the lower right"],
        ],
        most: (part, share, regions, even) => `attends most ${part}: ${share} in one of ${regions} regions (uniform attention: ${even})`,
      };
    }

    stage() {
      this.large = make("canvas", { class: "jumok-image", role: "img" });
      this.caption = make("div", { class: "jumok-caption" });
      this.panels = make("div", { class: "jumok-panels" });
      const side = make("div", { class: "jumok-beside" }), stage = make("div", { class: "jumok-image-stage" });
      side.append(this.caption, this.read);
      stage.append(this.large, side);
      return [stage, this.panels];
    }

    watch() {
      this.large.addEventListener("pointermove", (event) => this.pinned || this.set({ source: this.regionAt(event) }));
      this.large.addEventListener("pointerleave", () => this.leave());
      this.large.addEventListener("click", (event) => this.pin({ source: this.regionAt(event) }));
      super.watch();
    }

    fill() {
      const { width, height, image } = this.map.layout;
      this.pixels = null; // of the image, once it is decoded
      delete this.root.dataset.ready;
      this.caption.replaceChildren(this.sentence("target"));
      this.fillPanels();
      const picture = new Image();
      picture.onload = () => {
        const canvas = make("canvas", { width, height }), context = canvas.getContext("2d", { willReadFrequently: true });
        context.drawImage(picture, 0, 0);
        this.pixels = context.getImageData(0, 0, width, height);
        this.show();
        this.root.dataset.ready = "yes";
      };
      picture.src = image;
    }

    fillPanels() {
      this.panels.replaceChildren();
      this.canvases = this.map.target.map((text, at) => {
        // The words of the caption are reached by the keyboard; these need not be again.
        const button = make("button", { type: "button", class: "jumok-panel", tabindex: "-1" }), canvas = make("canvas");
        button.append(make("span", { dir: "auto" }, shown(text)), canvas);
        button.addEventListener("pointerenter", () => this.pinned || this.set({ target: at }));
        button.addEventListener("pointerleave", () => this.leave());
        button.addEventListener("click", () => this.pin({ target: at }));
        this.panels.append(button);
        return canvas;
      });
    }

    /** As dark and bright as the image; in the colours of words while it is asked who looked at a region. */
    drawLegend() {
      const { target, source } = this.hover, byWord = source === null || target !== null;
      const largest = target === null ? this.texts.eachLargest : percent(this.grid(this.one).top);
      this.drawRamp(byWord ? this.lightColours() : this.colours, byWord ? largest : percent(this.one.top));
    }

    /** What becomes of white where it is looked at with a share. */
    lightColours() {
      const { dim } = this.map.layout;
      return (share) => [255, 255, 255].map((white) => Math.round(lit(white, white, share, dim)));
    }

    /** Of the word pointed at, else of all words on average: one number for every region. */
    grid(one) {
      const { rows, columns } = this.map.layout, { target } = this.hover, count = Math.max(1, one.rows);
      const values = Array.from({ length: rows * columns }, (_, source) => {
        if (target !== null) return one.at(target, source);
        let sum = 0;
        for (let row = 0; row < one.rows; row++) sum += one.at(row, source);
        return sum / count;
      });
      return { rows, columns, top: Math.max(...values) || 1, at: (row, column) => values[row * columns + column] };
    }

    thumbnail(canvas, layer, head) {
      thumbnail(canvas, this.grid(matrix(this.map, layer, head)), 48, this.lightColours());
    }

    show() {
      this.canvases.forEach((canvas, at) => this.paint(canvas, at));
      this.mark();
    }

    /** The image on a canvas, lit where a word looked; null for the image as it is. */
    paint(canvas, word) {
      if (!this.pixels) return;
      const { width, height, columns, dim, unseen } = this.map.layout, [top, left, bottom, right] = this.box();
      Object.assign(canvas, { width, height });
      const painted = new ImageData(new Uint8ClampedArray(this.pixels.data), width, height), to = painted.data;
      if (word !== null) {
        const wide = right - left;
        const bright = light((row, column) => this.one.at(word, row * columns + column), this.map.layout, wide, bottom - top);
        for (let y = 0; y < height; y++) {
          for (let x = 0; x < width; x++) {
            const seen = y >= top && y < bottom && x >= left && x < right, share = seen ? bright[(y - top) * wide + x - left] : 0;
            const at = 4 * (y * width + x), grey = greyOf(to[at], to[at + 1], to[at + 2]);
            for (let part = at; part < at + 3; part++) to[part] = lit(to[part], grey, share, seen ? dim : unseen);
          }
        }
      }
      canvas.getContext("2d", { willReadFrequently: true }).putImageData(painted, 0, 0);
    }

    mark() {
      const { target, source } = this.hover;
      this.paint(this.large, target);
      if (source !== null) this.frame(source);
      this.canvases.forEach((canvas, at) => canvas.parentNode.setAttribute("aria-pressed", String(at === target)));
      this.colourWords();
      this.drawLegend();
      if (!this.gallery.hidden && this.pixels) this.drawGallery();
      this.tell();
      this.large.setAttribute("aria-label", this.read.textContent);
    }

    /** A line round the region that is pointed at. */
    frame(source) {
      const { layout } = this.map, context = this.large.getContext("2d"), [top, left, bottom, right] = this.box();
      const [x, end] = extent(layout, source % layout.columns, layout.columns).map((share) => left + share * (right - left));
      const [y, below] = extent(layout, Math.floor(source / layout.columns), layout.rows).map((share) => top + share * (bottom - top));
      for (const [colour, line] of [["rgba(0,0,0,.55)", 4], ["#fff", 2]]) {
        Object.assign(context, { strokeStyle: colour, lineWidth: line });
        context.strokeRect(x, y, end - x, below - y);
      }
    }

    /** The part of the picture that the model saw: top, left, bottom and right. */
    box() {
      const { box, width, height } = this.map.layout;
      return box || [0, 0, height, width];
    }

    wasCut() {
      const { width, height } = this.map.layout, [top, left, bottom, right] = this.box();
      return (bottom - top) * (right - left) < width * height;
    }

    /** The region that is pointed at; none outside of what the model saw. */
    regionAt(event) {
      const drawn = this.large.getBoundingClientRect(), { layout } = this.map, { rows, columns, width, height } = layout;
      const [top, left, bottom, right] = this.box();
      const down = (((event.clientY - drawn.top) / drawn.height) * height - top) / (bottom - top);
      const across = (((event.clientX - drawn.left) / drawn.width) * width - left) / (right - left);
      if (down < 0 || down >= 1 || across < 0 || across >= 1) return null;
      const region = (share, count, [centre, step]) => clamp(Math.round((share - centre) / step), 0, count - 1);
      return region(down, rows, centres(layout, rows)) * columns + region(across, columns, centres(layout, columns));
    }

    /** Where a word looked most, in words. */
    part(word) {
      const { layout } = this.map, { rows, columns } = layout;
      let best = 0;
      for (let at = 1; at < rows * columns; at++) if (this.one.at(word, at) > this.one.at(word, best)) best = at;
      const third = (at, count) => Math.min(2, Math.floor(3 * (centres(layout, count)[0] + at * centres(layout, count)[1])));
      const up = third(Math.floor(best / columns), rows), across = third(best % columns, columns);
      const even = percent(1 / (rows * columns));
      return ` ${this.texts.most(this.texts.parts[up][across], percent(this.one.at(word, best)), rows * columns, even)} `;
    }

    tell() {
      const { target } = this.hover;
      if (!this.map.target.length) return this.read.replaceChildren(this.texts.empty);
      super.tell();
      if (target === null) return this.wasCut() && this.read.append(` ${this.texts.cut}`);
      const [word, entropy] = [this.read.firstChild, this.read.lastChild];
      this.read.replaceChildren(word, this.part(target), entropy);
    }

    /** The image, and a panel for every word. */
    picture() {
      const { width, height } = this.map.layout, scale = PANEL / Math.max(width, height);
      const wide = width * scale, high = height * scale, count = 1 + this.canvases.length;
      const columns = Math.min(count, [4, 5, 6].reduce((best, one) => ((one - (count % one)) % one <= (best - (count % best)) % best ? one : best)));
      const paper = this.paper(2 * MARGIN + columns * (wide + GAP) - GAP, 62 + Math.ceil(count / columns) * (high + LABEL + GAP));
      paper.append(draw("text", { x: MARGIN, y: 36, "font-size": 17, "font-weight": 600 }, this.map.title || this.map.target.join(" ")));
      const whole = make("canvas");
      this.paint(whole, null);
      [whole, ...this.canvases].forEach((canvas, at) => {
        const x = MARGIN + (at % columns) * (wide + GAP), y = 54 + LABEL + Math.floor(at / columns) * (high + LABEL + GAP);
        if (at) paper.append(draw("text", { x, y: y - 7 }, shown(this.map.target[at - 1])));
        paper.append(draw("image", { x, y, width: wide, height: high, href: embedded(canvas) }));
      });
      return paper;
    }
  }

  root.Jumok.views.image = ImageWidget;
})(window);
