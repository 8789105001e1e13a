/* An attention map to look into: Jumok.attentionMap(element, map, options).
 *
 * map      {source: [text], target: [text], weights: [layer][head][target][source],
 *           names: {layers: [text], heads: [text]} (optional)}, as AttentionMap.to_json() of jumok writes it.
 * options  layer, head   which to show first: a number counted from 0, or "mean" (the default)
 *          sentences     false leaves out the two sentences above the matrix
 *          gallery       false leaves out the small pictures of every layer and head
 *          onHover       called with {target, source}, the numbers of the words looked at, null where there is none
 *          onSelect      called with {layer, head} when others are chosen
 *          texts         what the widget says, in another language: any of TEXTS below
 * returns  {update(map), select({layer, head}), highlight({target, source}), weight(target, source) and largest() of what is
 *           shown, svg(), redraw(), destroy()}
 *
 * No other file is needed but attention.css, and nothing is ever fetched. Words are inserted as text, never as markup.
 */
(function (root) {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";
  const RAMPS = {
    light: ["#f3f6fb", "#cfe1f3", "#82b4de", "#2f78bc", "#0a3a78"],
    dark: ["#1d2534", "#1f4570", "#2a74b8", "#67b7f0", "#dcf1ff"],
  };
  const GUTTER = 30; // where the entropy of a row is drawn
  const LEAST = 22, MOST = 44; // sizes of a cell
  const LONGEST_LABEL = 170;
  const WHOLE = 120; // a copied picture shows everything up to so many words a side, then what is in the window
  const THUMBNAILS = 256;
  const TEXTS = {
    layer: "Layer", head: "Head", all: "all, averaged", gallery: "Every layer and head",
    matrix: "Attention matrix. Arrow keys move from cell to cell, Escape leaves.",
    overview: "The whole map; click to go there",
    legend: "Weights, from none to the largest of this map. The line beside a word: how spread its look is.",
    hint: "Point at a word, or use the arrow keys: where did it look?",
    lookedAt: "looked at", lookedAtBy: "was looked at by", with: "with",
    entropy: (nats, words) => `entropy ${nats}, as if at ${words} words`,
    thumb: (layer, head) => `layer ${layer}` + (head === null ? "" : `, head ${head}`),
  };

  // ---- small helpers -------------------------------------------------------------------------------------------

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
  const shown = (text) => (text.trim() === "" ? "␣" : text);
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
    };
  }

  // ---- the widget ----------------------------------------------------------------------------------------------

  class AttentionWidget {
    constructor(element, map, options) {
      this.options = Object.assign({ layer: "mean", head: "mean", sentences: true, gallery: true }, options);
      this.texts = Object.assign({}, TEXTS, this.options.texts);
      this.element = element;
      this.hover = { target: null, source: null };
      this.pinned = false;
      this.build();
      this.watch();
      this.update(map);
    }

    build() {
      this.root = make("div", { class: "jumok-map" });
      this.bar = make("div", { class: "jumok-bar" });
      this.layerSelect = make("select", { "aria-label": this.texts.layer });
      this.headSelect = make("select", { "aria-label": this.texts.head });
      this.copyButton = make("button", { type: "button", class: "jumok-copy" }, "Copy as SVG");
      this.layerLabel = this.labelled(this.texts.layer, this.layerSelect);
      this.headLabel = this.labelled(this.texts.head, this.headSelect);
      this.legend = make("span", { class: "jumok-legend" });
      this.bar.append(this.layerLabel, this.headLabel, this.legend, this.copyButton);
      this.sentences = make("div", { class: "jumok-sentences" });
      this.read = make("p", { class: "jumok-read", role: "status", "aria-live": "polite" });
      this.scroll = make("div", {
        class: "jumok-scroll", tabindex: "0", role: "application",
        "aria-label": this.texts.matrix,
      });
      this.sizer = make("div", { class: "jumok-sizer" });
      this.svgNode = draw("svg", { class: "jumok-matrix", "aria-hidden": "true" });
      this.sizer.append(this.svgNode);
      this.scroll.append(this.sizer);
      this.overview = make("canvas", { class: "jumok-overview", "aria-hidden": "true" });
      this.frame = make("div", { class: "jumok-frame" });
      this.overviewBox = make("div", { class: "jumok-overview-box", title: this.texts.overview });
      this.overviewBox.append(this.overview, this.frame);
      this.gallery = make("div", { class: "jumok-gallery", role: "group", "aria-label": this.texts.gallery });
      const stage = (this.stage = make("div", { class: "jumok-stage" }));
      stage.append(this.scroll, this.overviewBox);
      this.root.append(this.bar, this.sentences, this.read, stage, this.gallery);
      this.element.append(this.root);
    }

    labelled(text, control) {
      const label = make("label", { class: "jumok-choice" });
      label.append(make("span", {}, text), control);
      return label;
    }

    watch() {
      this.layerSelect.addEventListener("change", () => this.select({ layer: this.layerSelect.value }));
      this.headSelect.addEventListener("change", () => this.select({ head: this.headSelect.value }));
      this.copyButton.addEventListener("click", () => this.copy());
      this.scroll.addEventListener("scroll", () => this.later(), { passive: true });
      this.scroll.addEventListener("keydown", (event) => this.key(event));
      this.svgNode.addEventListener("pointermove", (event) => this.point(event, false));
      this.svgNode.addEventListener("click", (event) => this.point(event, true));
      this.svgNode.addEventListener("pointerleave", () => this.leave());
      const seek = (event) => {
        if (event.type === "pointermove" && !event.buttons) return;
        const box = this.overviewBox.getBoundingClientRect();
        const { cell, left, top } = this.layout;
        const across = ((event.clientX - box.left) / box.width) * this.one.columns * cell;
        const down = ((event.clientY - box.top) / box.height) * this.one.rows * cell;
        this.scroll.scrollTo(across - (this.scroll.clientWidth - left) / 2, down - (this.scroll.clientHeight - top) / 2);
      };
      this.overviewBox.addEventListener("pointerdown", seek);
      this.overviewBox.addEventListener("pointermove", seek);
      this.scheme = root.matchMedia("(prefers-color-scheme: dark)");
      this.repaint = () => this.redraw();
      this.scheme.addEventListener("change", this.repaint);
      this.themed = new MutationObserver(this.repaint);
      this.themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
      this.resized = new ResizeObserver(() => this.fit());
      this.resized.observe(this.root);
    }

    /** Show another map. */
    update(map) {
      this.map = checked(map);
      this.hover = { target: null, source: null };
      this.pinned = false;
      this.layer = this.legal(this.options.layer, this.map.layers);
      this.head = this.legal(this.options.head, this.map.heads);
      this.fillSelect(this.layerSelect, this.layerLabel, this.map.layers, this.layer);
      this.fillSelect(this.headSelect, this.headLabel, this.map.heads, this.head);
      this.fillSentences();
      this.scroll.scrollTo(0, 0);
      this.redraw();
    }

    legal(choice, names) {
      if (names.length === 1) return 0;
      const number = Number(choice);
      return choice === "mean" || !Number.isInteger(number) || number < 0 || number >= names.length ? "mean" : number;
    }

    fillSelect(select, label, names, chosen) {
      select.replaceChildren();
      label.hidden = names.length < 2;
      if (names.length > 1) select.append(make("option", { value: "mean" }, this.texts.all));
      names.forEach((name, at) => select.append(make("option", { value: at }, name)));
      select.value = String(chosen);
    }

    fillSentences() {
      this.words = { source: [], target: [] };
      this.sentences.replaceChildren();
      this.sentences.hidden = !this.options.sentences;
      this.sentences.classList.toggle("jumok-long", Math.max(this.map.source.length, this.map.target.length) > 60);
      if (!this.options.sentences) return;
      for (const side of ["source", "target"]) {
        const line = make("p", { class: "jumok-sentence", dir: direction(this.map[side]), role: "group", "aria-label": side });
        line.append(make("span", { class: "jumok-side", dir: "ltr" }, side));
        this.map[side].forEach((text, at) => {
          const word = make("span", { class: "jumok-word", role: "button", dir: "auto", tabindex: at ? "-1" : "0" }, shown(text));
          word.addEventListener("pointerenter", () => this.pinned || this.visit(side, at));
          word.addEventListener("pointerleave", () => this.leave());
          word.addEventListener("focus", () => this.visit(side, at));
          word.addEventListener("blur", () => this.leave());
          word.addEventListener("click", () => this.pin({ [side]: at }));
          word.addEventListener("keydown", (event) => this.walk(event, side, at));
          this.words[side].push(word);
          line.append(word, " ");
        });
        this.sentences.append(line);
      }
    }

    /** Arrow keys from word to word of a sentence. */
    walk(event, side, at) {
      const words = this.words[side];
      const back = getComputedStyle(words[at].parentNode).direction === "rtl" ? "ArrowRight" : "ArrowLeft";
      const on = back === "ArrowLeft" ? "ArrowRight" : "ArrowLeft";
      const to = { [back]: at - 1, [on]: at + 1, Home: 0, End: words.length - 1 }[event.key];
      if (event.key === "Escape") this.release();
      if (event.key === "Enter" || event.key === " ") this.pin({ [side]: at });
      if (to !== undefined && words[to]) {
        words[at].tabIndex = -1;
        words[to].tabIndex = 0;
        words[to].focus();
      }
      if (to !== undefined || event.key === " ") event.preventDefault();
    }

    /** Show another layer or head: a number counted from 0, or "mean". */
    select(choice) {
      if (choice.layer !== undefined) this.layer = this.legal(choice.layer, this.map.layers);
      if (choice.head !== undefined) this.head = this.legal(choice.head, this.map.heads);
      this.layerSelect.value = String(this.layer);
      this.headSelect.value = String(this.head);
      this.redraw();
      if (this.options.onSelect) this.options.onSelect({ layer: this.layer, head: this.head });
    }

    // ---- drawing -----------------------------------------------------------------------------------------------

    /** Draw everything anew, after a change of theme or fonts, too. */
    redraw() {
      this.theme = getComputedStyle(this.root).getPropertyValue("--jumok-theme").trim() === "dark" ? "dark" : "light";
      this.colours = ramp(this.theme);
      this.one = matrix(this.map, this.layer, this.head);
      this.entropy = entropies(this.one);
      this.layout = this.measure();
      this.drawLegend();
      this.drawGallery();
      this.drawOverview();
      this.paint();
    }

    measure() {
      const style = getComputedStyle(this.root);
      const context = document.createElement("canvas").getContext("2d");
      context.font = "13px " + style.fontFamily;
      const width = (text) => Math.min(LONGEST_LABEL, context.measureText(shown(text)).width);
      const longest = (texts) => texts.reduce((most, text) => Math.max(most, width(text)), 8);
      const lean = longest(this.map.source) * 0.71, left = longest(this.map.target) + 14 + GUTTER;
      // As large as the page allows, within reason; a long map scrolls instead of becoming small.
      const room = (this.root.clientWidth - left - lean * 0.9 - 16) / Math.max(1, this.one.columns);
      const cell = clamp(Math.floor(Math.min(room, 440 / Math.max(1, this.one.rows))), LEAST, MOST);
      const layout = { cell, lean, left, top: lean + 22, context };
      layout.width = layout.left + cell * this.one.columns + lean * 0.9 + 12;
      layout.height = layout.top + cell * this.one.rows + 6;
      this.sizer.style.width = Math.ceil(layout.width) + "px";
      this.sizer.style.height = Math.ceil(layout.height) + "px";
      return layout;
    }

    cut(text) {
      let kept = shown(text);
      const { context } = this.layout;
      if (context.measureText(kept).width <= LONGEST_LABEL) return kept;
      const letters = Array.from(kept).slice(0, 80);
      do letters.pop();
      while (letters.length > 1 && context.measureText(letters.join("") + "…").width > LONGEST_LABEL);
      return letters.join("") + "…";
    }

    /** The page has become wider or narrower. */
    fit() {
      if (!this.one) return;
      this.layout = this.measure();
      this.later();
    }

    later() {
      if (this.waiting) return;
      this.waiting = requestAnimationFrame(() => {
        this.waiting = 0;
        if (this.one) this.paint();
      });
    }

    /** Draw the part of the matrix that can be seen. */
    paint() {
      const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroll;
      const width = Math.min(Math.ceil(this.layout.width), Math.max(clientWidth, 1));
      const height = Math.min(Math.ceil(this.layout.height), Math.max(clientHeight, 1));
      this.svgNode.setAttribute("width", width);
      this.svgNode.setAttribute("height", height);
      this.svgNode.replaceChildren();
      this.cells = this.picture(this.svgNode, { x: scrollLeft, y: scrollTop, width, height });
      this.outline = this.svgNode.lastChild.appendChild(draw("rect", { class: "jumok-outline", rx: 6 }));
      this.place();
      this.mark();
    }

    /** The words and cells seen through a window on the matrix; gives the cells back. */
    picture(into, seen) {
      const { cell, left, top } = this.layout, { rows, columns } = this.one;
      const first = (offset) => Math.max(0, Math.floor(offset / cell));
      const last = (offset, size, count) => Math.min(count, Math.ceil((offset + size) / cell));
      const columnRange = [first(seen.x), last(seen.x, seen.width - left, columns)];
      const rowRange = [first(seen.y), last(seen.y, seen.height - top, rows)];
      const box = (x, y, width, height) =>
        into.appendChild(draw("svg", { x, y, width: Math.max(0, width), height: Math.max(0, height) }));
      const heads = box(left, 0, seen.width - left, top);
      const sides = box(0, top, left, seen.height - top);
      const inside = box(left, top, seen.width - left, seen.height - top);
      const cells = [];
      for (let column = columnRange[0]; column < columnRange[1]; column++) {
        this.columnLabel(heads, column, (column + 0.5) * cell - seen.x);
      }
      for (let row = rowRange[0]; row < rowRange[1]; row++) {
        const y = row * cell - seen.y;
        this.rowLabel(sides, row, y);
        for (let column = columnRange[0]; column < columnRange[1]; column++) {
          const fill = css(this.colours(this.one.at(row, column) / this.one.top));
          const node = draw("rect", {
            class: "jumok-cell", x: column * cell - seen.x + 1, y: y + 1, width: cell - 2, height: cell - 2, rx: 4,
            fill, "data-target": row, "data-source": column,
          });
          cells.push({ node, target: row, source: column });
          inside.append(node);
        }
      }
      return cells;
    }

    columnLabel(into, column, x) {
      const y = this.layout.top - 8;
      into.append(draw("text", {
        class: "jumok-label", x, y, transform: `rotate(-45 ${x} ${y})`, "data-source": column,
      }, this.cut(this.map.source[column])));
    }

    rowLabel(into, row, y) {
      const { cell, left } = this.layout;
      into.append(draw("text", {
        class: "jumok-label", x: left - GUTTER - 6, y: y + cell / 2 + 4.5, "text-anchor": "end", "data-target": row,
      }, this.cut(this.map.target[row])));
      const most = Math.log(Math.max(2, this.one.columns));
      const share = clamp(this.entropy[row] / most, 0, 1) * (GUTTER - 8);
      into.append(
        draw("rect", { class: "jumok-track", x: left - GUTTER, y: y + cell / 2 - 1.5, width: GUTTER - 8, height: 3, rx: 1.5 }),
        draw("rect", { class: "jumok-entropy", x: left - GUTTER, y: y + cell / 2 - 1.5, width: share, height: 3, rx: 1.5 }),
      );
    }

    drawLegend() {
      const bar = make("canvas", { class: "jumok-ramp", width: 64, height: 1, "aria-hidden": "true" });
      const context = bar.getContext("2d");
      for (let x = 0; x < 64; x++) {
        context.fillStyle = css(this.colours(x / 63));
        context.fillRect(x, 0, 1, 1);
      }
      this.legend.replaceChildren("0", bar, percent(this.one.top));
      this.legend.title = this.texts.legend;
    }

    drawGallery() {
      const { layers, heads } = this.map, count = layers.length * heads.length;
      this.gallery.hidden = !this.options.gallery || count < 2 || count > THUMBNAILS;
      if (this.gallery.hidden) return this.gallery.replaceChildren();
      const focused = this.gallery.contains(document.activeElement) ? document.activeElement.dataset.at : null;
      this.gallery.replaceChildren();
      this.gallery.style.setProperty("--jumok-heads", String(heads.length));
      layers.forEach((layerName, layer) => {
        heads.forEach((headName, head) => {
          const name = this.texts.thumb(layerName, heads.length > 1 ? headName : null);
          const button = make("button", { type: "button", class: "jumok-thumb", title: name, "aria-label": name });
          button.dataset.at = `${layer}.${head}`;
          button.setAttribute("aria-pressed", String(this.layer === layer && this.head === head));
          const canvas = make("canvas");
          thumbnail(canvas, matrix(this.map, layer, head), 48, this.colours);
          button.append(canvas, make("span", {}, heads.length > 1 ? `${layerName}·${headName}` : layerName));
          button.addEventListener("click", () => {
            const same = this.layer === layer && this.head === head;
            this.select(same ? { layer: "mean", head: "mean" } : { layer, head });
          });
          this.gallery.append(button);
          if (focused === button.dataset.at) button.focus();
        });
      });
    }

    drawOverview() {
      this.overviewBox.hidden = Math.max(this.one.rows, this.one.columns) <= 60;
      if (this.overviewBox.hidden) return;
      const longest = Math.max(this.one.rows, this.one.columns);
      this.overviewBox.style.width = Math.max(24, (132 * this.one.columns) / longest) + "px";
      this.overviewBox.style.height = Math.max(24, (132 * this.one.rows) / longest) + "px";
      thumbnail(this.overview, this.one, 264, this.colours);
    }

    /** The frame on the overview: what of the whole is in the window. */
    place() {
      if (this.overviewBox.hidden) return;
      const { cell, left, top } = this.layout, { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroll;
      const share = (value, count) => clamp((100 * value) / (cell * Math.max(1, count)), 0, 100) + "%";
      this.frame.style.left = share(scrollLeft, this.one.columns);
      this.frame.style.top = share(scrollTop, this.one.rows);
      this.frame.style.width = share(clientWidth - left, this.one.columns);
      this.frame.style.height = share(clientHeight - top, this.one.rows);
    }

    // ---- looking -----------------------------------------------------------------------------------------------

    /** Light up what a target word looked at, who looked at a source word, or one cell. */
    highlight(place) {
      this.pinned = false;
      this.set(place || {});
    }

    /** Light up a word of a sentence, and bring what it has to do with into the window. */
    visit(side, at) {
      this.set({ [side]: at });
      const lookedAt = this.strongest();
      if (lookedAt === null) return;
      if (side === "target") this.reveal(at, lookedAt, 3);
      else this.reveal(lookedAt, at, 3);
      const word = this.words[side === "target" ? "source" : "target"][lookedAt], line = word.parentNode;
      if (line.scrollHeight > line.clientHeight) line.scrollTop = word.offsetTop - line.offsetTop - line.clientHeight / 2;
    }

    /** The word of the other side with the largest weight. */
    strongest() {
      const { target, source } = this.hover, { rows, columns } = this.one;
      let best = null, most = -1;
      for (let at = 0; at < (target !== null ? columns : rows); at++) {
        const weight = target !== null ? this.one.at(target, at) : this.one.at(at, source);
        if (weight > most) [best, most] = [at, weight];
      }
      return best;
    }

    set(place) {
      const number = (value) => (Number.isInteger(value) ? value : null);
      const hover = { target: number(place.target), source: number(place.source) };
      if (hover.target === this.hover.target && hover.source === this.hover.source) return;
      this.hover = hover;
      this.mark();
      if (this.options.onHover) this.options.onHover({ ...hover });
    }

    pin(place) {
      const { target = null, source = null } = place;
      const same = this.pinned && this.hover.target === target && this.hover.source === source;
      this.pinned = false;
      this.set(same ? {} : place);
      this.pinned = !same;
    }

    release() {
      this.pinned = false;
      this.set({});
    }

    leave() {
      if (!this.pinned) this.set({});
    }

    mark() {
      const { target, source } = this.hover, any = target !== null || source !== null;
      this.svgNode.classList.toggle("jumok-hovering", any);
      for (const one of this.cells || []) {
        const on = (target === null || one.target === target) && (source === null || one.source === source);
        const line = any && (one.target === target || one.source === source);
        one.node.classList.toggle("jumok-on", any && on);
        one.node.classList.toggle("jumok-line", line);
      }
      for (const label of this.svgNode.querySelectorAll(".jumok-label")) {
        const { target: row, source: column } = label.dataset;
        const on = row !== undefined ? Number(row) === target : Number(column) === source;
        label.classList.toggle("jumok-on", on);
      }
      this.drawOutline();
      this.colourWords();
      this.tell();
    }

    /** One frame round the row, the column or the cell that is lit. */
    drawOutline() {
      const { target, source } = this.hover, { cell } = this.layout, { rows, columns } = this.one;
      const size = { x: -this.scroll.scrollLeft, y: -this.scroll.scrollTop, width: columns * cell, height: rows * cell };
      if (source !== null) Object.assign(size, { x: size.x + source * cell, width: cell });
      if (target !== null) Object.assign(size, { y: size.y + target * cell, height: cell });
      for (const [name, value] of Object.entries(size)) this.outline.setAttribute(name, value);
    }

    /** The words of a sentence as dark as they were looked at by, or looked at, the word under the pointer. */
    colourWords() {
      const { target, source } = this.hover;
      const weight = {
        source: (at) => (target === null ? null : this.one.at(target, at)),
        target: (at) => (source === null || target !== null ? null : this.one.at(at, source)),
      };
      const chosen = { source, target };
      for (const side of ["source", "target"]) {
        this.words[side].forEach((word, at) => {
          const share = weight[side](at) === null ? null : weight[side](at) / this.one.top;
          const back = share === null ? null : this.colours(share);
          word.style.backgroundColor = back ? css(back) : "";
          word.style.color = back ? (0.3 * back[0] + 0.59 * back[1] + 0.11 * back[2] > 140 ? "#10151d" : "#fff") : "";
          word.classList.toggle("jumok-on", chosen[side] === at);
        });
      }
    }

    tell() {
      this.read.replaceChildren();
      const { target, source } = this.hover;
      const word = (side, at) => make("bdi", { class: "jumok-said" }, shown(this.map[side][at]));
      if (target !== null && source !== null) {
        this.read.append(word("target", target), ` ${this.texts.lookedAt} `, word("source", source), ` ${this.texts.with} ${percent(this.one.at(target, source))} `);
      } else if (target !== null) {
        this.read.append(word("target", target), ` ${this.texts.lookedAt} `);
        this.list("source", (at) => this.one.at(target, at));
      } else if (source !== null) {
        this.read.append(word("source", source), ` ${this.texts.lookedAtBy} `);
        this.list("target", (at) => this.one.at(at, source));
      } else {
        this.read.append(this.texts.hint);
      }
      if (target !== null) {
        const nats = this.entropy[target];
        this.read.append(make("span", { class: "jumok-quiet" }, this.texts.entropy(nats.toFixed(2), Math.exp(nats).toFixed(1))));
      }
    }

    list(side, weight) {
      const ranked = this.map[side].map((_, at) => at).sort((one, other) => weight(other) - weight(one)).slice(0, 3);
      ranked.filter((at, place) => !place || weight(at) >= 0.01).forEach((at, place) => {
        this.read.append(place ? ", " : "", make("bdi", {}, shown(this.map[side][at])), ` ${percent(weight(at))}`);
      });
      this.read.append(" ");
    }

    cellAt(event) {
      const box = this.svgNode.getBoundingClientRect(), { cell, left, top } = this.layout;
      const x = event.clientX - box.left, y = event.clientY - box.top;
      const column = Math.floor((x - left + this.scroll.scrollLeft) / cell);
      const row = Math.floor((y - top + this.scroll.scrollTop) / cell);
      const inside = (at, count) => (at >= 0 && at < count ? at : null);
      if (x < left) return { target: y < top ? null : inside(row, this.one.rows), source: null };
      if (y < top) {
        const leaning = Math.floor((x - left + this.scroll.scrollLeft - (top - 8 - y)) / cell);
        return { target: null, source: inside(leaning, this.one.columns) };
      }
      const found = { target: inside(row, this.one.rows), source: inside(column, this.one.columns) };
      return found.target === null || found.source === null ? { target: null, source: null } : found;
    }

    point(event, pinning) {
      if (pinning) this.pin(this.cellAt(event));
      else if (!this.pinned) this.set(this.cellAt(event));
    }

    /** Arrow keys from cell to cell; the window follows. */
    key(event) {
      const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      const { rows, columns } = this.one;
      let { target, source } = this.hover;
      if (event.key === "Escape") return this.release();
      if (!rows || !columns) return;
      if (steps[event.key]) {
        const [down, right] = target === null && source === null ? [0, 0] : steps[event.key];
        target = clamp((target ?? 0) + down, 0, rows - 1);
        source = clamp((source ?? 0) + right, 0, columns - 1);
      } else if (event.key === "Home" || event.key === "End") {
        target ??= 0;
        source = event.key === "Home" ? 0 : columns - 1;
      } else return;
      event.preventDefault();
      this.reveal(target, source);
      this.pinned = false;
      this.set({ target, source });
      this.pinned = true;
    }

    /** Scroll as little as is needed to show a cell with a margin of some more. */
    reveal(row, column, margin = 0) {
      const { cell, left, top } = this.layout;
      const into = (offset, size, at) => clamp(offset, (at + 1 + margin) * cell - size, (at - margin) * cell);
      const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroll;
      this.scroll.scrollTo(into(scrollLeft, clientWidth - left - cell, column), into(scrollTop, clientHeight - top, row));
    }

    // ---- copying -----------------------------------------------------------------------------------------------

    /** The picture as a file of its own: all of it, or what is in the window if it is very large. */
    svg() {
      const whole = Math.max(this.one.rows, this.one.columns) <= WHOLE;
      const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroll;
      const seen = whole
        ? { x: 0, y: 0, width: Math.ceil(this.layout.width), height: Math.ceil(this.layout.height) }
        : { x: scrollLeft, y: scrollTop, width: clientWidth, height: clientHeight };
      const style = getComputedStyle(this.root);
      const colour = (name) => style.getPropertyValue(name).trim();
      const picture = draw("svg", {
        xmlns: SVG, width: seen.width, height: seen.height, viewBox: `0 0 ${seen.width} ${seen.height}`,
        "font-family": style.fontFamily, "font-size": 13, fill: colour("--jumok-text"),
      });
      picture.append(draw("rect", { width: "100%", height: "100%", fill: colour("--jumok-paper") }));
      this.picture(picture, seen);
      const fills = { "jumok-track": "--jumok-line", "jumok-entropy": "--jumok-quiet" };
      for (const [name, fill] of Object.entries(fills)) {
        for (const node of picture.querySelectorAll("." + name)) node.setAttribute("fill", colour(fill));
      }
      for (const node of picture.querySelectorAll("[class]")) node.removeAttribute("class");
      return new XMLSerializer().serializeToString(picture);
    }

    async copy() {
      const text = this.svg();
      let done = true;
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        const area = make("textarea", { class: "jumok-away" });
        area.value = text;
        this.root.append(area);
        area.select();
        done = document.execCommand("copy");
        area.remove();
      }
      this.copyButton.textContent = done ? "Copied" : "Copying is not allowed here";
      setTimeout(() => (this.copyButton.textContent = "Copy as SVG"), 1600);
    }

    destroy() {
      cancelAnimationFrame(this.waiting);
      this.scheme.removeEventListener("change", this.repaint);
      this.themed.disconnect();
      this.resized.disconnect();
      this.root.remove();
    }
  }

  function attentionMap(element, map, options) {
    const widget = new AttentionWidget(element, map, options || {});
    return {
      update: (other) => widget.update(other),
      select: (choice) => widget.select(choice),
      highlight: (place) => widget.highlight(place),
      weight: (target, source) => widget.one.at(target, source),
      largest: () => widget.one.top,
      svg: () => widget.svg(),
      redraw: () => widget.redraw(),
      destroy: () => widget.destroy(),
    };
  }

  root.Jumok = Object.assign(root.Jumok || {}, { attentionMap });
})(window);
