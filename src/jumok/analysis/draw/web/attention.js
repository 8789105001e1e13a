/* An attention map to look into: Jumok.attentionMap(element, map, options).
 *
 * map      {source: [text], target: [text], weights: [layer][head][target][source],
 *           names: {layers: [text], heads: [text]} (optional), layout, title, kind ("encoder" or "decoder" for self-attention),
 *           probabilities (optional) of the target words,
 *           tokens: {source, target, weights, probabilities} (optional), the same between tokens}, as AttentionMap.to_json() of jumok writes it.
 * options  layer, head   which to show first: a number counted from 0, or "mean" (the default; of a graph the last layer)
 *          tokens        true shows tokens first, where the map has them
 *          sentences     false leaves out the two sentences above a matrix
 *          gallery       false leaves out the small pictures of every layer and head
 *          onHover       called with {target, source}, the numbers of what is looked at, null where there is none
 *          onSelect      called with {layer, head, tokens} when others are chosen
 *          texts         what the widget says, in another language: any of TEXTS below; korean.js has them in Korean
 * returns  {update(map), select({layer, head, tokens}), highlight({target, source}), weight(target, source) and largest() of what is
 *           shown, svg(), redraw(), destroy()}
 *
 * This file has what all maps share: the choice of layer and head, what is pointed at, what is said of it, copying. How a
 * map is drawn follows from where its sources lie (map.layout.kind) and has a file of its own: matrix.js ("line", words beside
 * each other), image.js, graph.js. A page needs parts.js, this file, one of those and attention.css; nothing is ever fetched.
 * Words are inserted as text, never as markup.
 */
(function (root) {
  "use strict";

  const { make, draw, css, shown, percent, ramp, direction, matrix, entropies, missingLetters, checked, SVG } = root.Jumok.parts;
  const THUMBNAILS = 256;
  const TEXTS = {
    words: "Words", tokens: "Tokens", unit: "Rows and columns", layer: "Layer", head: "Head", all: "average of all", gallery: "Every layer and head",
    matrix: "Attention matrix. Arrow keys move from cell to cell, Escape leaves.",
    overview: "Overview of the map. Click to scroll there.",
    legend: "Weights, from 0 to the largest in this map. The line beside a word shows how spread its attention is.",
    hint: "Point at a word or use the arrow keys to see what it attends to.",
    probability: (share) => `probability ${share}`,
    lookedAt: "attends to", lookedAtBy: "is attended to by", with: "with",
    entropy: (nats, count, tokens) => `entropy ${nats}, equivalent to ${count} ${tokens ? "tokens" : "words"}`,
    thumb: (layer, head) => `layer ${layer}` + (head === null ? "" : `, head ${head}`),
    source: "source", target: "target", attendedTo: "attended to", attends: "attends", copy: "Copy as SVG", copied: "Copied", notCopied: "The browser does not allow copying",
    letters: (some) => `No installed font has ${some}, so they appear as empty boxes. Install a font that has them, such as a Noto font.`,
  };

  // ---- what all maps share -------------------------------------------------------------------------------------

  /** A view extends it with stage(), a place to draw in; fill(), after another map; show(), draw what is chosen; fit(), after a
   *  change of width; mark(), after another place is pointed at; thumbnail(canvas, layer, head); picture(), to be copied. */
  class MapWidget {
    constructor(element, map, options) {
      this.options = Object.assign({ layer: "mean", head: "mean", sentences: true, gallery: true }, options);
      this.texts = Object.assign({}, TEXTS, this.ownTexts(), this.options.texts);
      this.element = element;
      this.hover = { target: null, source: null };
      this.pinned = null;
      this.build();
      this.watch();
      this.update(map);
    }

    ownTexts() {
      return {};
    }

    build() {
      this.root = make("div", { class: "jumok-map" });
      this.bar = make("div", { class: "jumok-bar" });
      this.layerSelect = make("select", { "aria-label": this.texts.layer });
      this.headSelect = make("select", { "aria-label": this.texts.head });
      this.copyButton = make("button", { type: "button", class: "jumok-copy" }, this.texts.copy);
      this.layerLabel = this.labelled(this.texts.layer, this.layerSelect);
      this.headLabel = this.labelled(this.texts.head, this.headSelect);
      this.legend = make("span", { class: "jumok-legend" });
      this.bar.append(this.buildUnit(), this.layerLabel, this.headLabel, this.legend, this.copyButton);
      this.note = make("p", { class: "jumok-note", role: "note", hidden: "" });
      this.read = make("p", { class: "jumok-read", role: "status", "aria-live": "polite" });
      this.gallery = make("div", { class: "jumok-gallery", role: "group", "aria-label": this.texts.gallery });
      this.root.append(this.bar, this.note, ...this.stage(), this.gallery);
      this.element.append(this.root);
    }

    /** The switch between words and tokens. */
    buildUnit() {
      this.unit = make("span", { class: "jumok-unit", role: "group", "aria-label": this.texts.unit, hidden: "" });
      for (const name of ["words", "tokens"]) {
        const button = make("button", { type: "button", "data-unit": name }, this.texts[name]);
        button.addEventListener("click", () => this.select({ tokens: name === "tokens" }));
        this.unit.append(button);
      }
      return this.unit;
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
      this.scheme = root.matchMedia("(prefers-color-scheme: dark)");
      this.repaint = () => this.redraw();
      this.scheme.addEventListener("change", this.repaint);
      this.themed = new MutationObserver(this.repaint);
      this.themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
      this.resized = new ResizeObserver(() => this.one && this.fit());
      this.resized.observe(this.root);
    }

    /** Show another map. */
    update(map) {
      this.given = this.map = checked(map);
      this.layer = this.legal(this.first(), this.map.layers);
      this.head = this.legal(this.options.head, this.map.heads);
      this.fillSelect(this.layerSelect, this.layerLabel, this.map.layers, this.layer);
      this.fillSelect(this.headSelect, this.headLabel, this.map.heads, this.head);
      this.use(Boolean(this.options.tokens));
      this.redraw();
      this.tellMissing();
    }

    /** Rows and columns are tokens from now on, where the map has them, or words. */
    use(tokens) {
      this.tokens = tokens && this.given.tokens !== null;
      this.map = this.tokens ? this.given.tokens : this.given;
      this.hover = { target: null, source: null };
      this.pinned = null;
      this.words = { source: [], target: [] };
      this.unit.hidden = this.given.tokens === null;
      for (const button of this.unit.children) button.setAttribute("aria-pressed", String((button.dataset.unit === "tokens") === this.tokens));
      this.fill();
    }

    /** The layer to begin with. */
    first() {
      return this.options.layer;
    }

    tellMissing() {
      const { source, target, title, layout } = this.map;
      const texts = [...target, title, ...(layout.kind === "image" ? [] : source), ...(layout.classes || [])];
      const missing = missingLetters(texts, getComputedStyle(this.root).fontFamily);
      const names = missing.slice(0, 4).map((letter) => `${letter} (U+${letter.codePointAt(0).toString(16).toUpperCase()})`);
      this.note.hidden = !missing.length;
      this.note.textContent = missing.length ? this.texts.letters(names.join(" ") + (missing.length > 4 ? " …" : "")) : "";
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

    /** A sentence whose words can be pointed at, walked through with the arrow keys, and kept with a click. */
    sentence(side) {
      const own = { source: this.texts.attendedTo, target: this.texts.attends }; // self-attention: both are the same text
      const name = this.map.kind === "cross" ? this.texts[side] : own[side];
      const line = make("p", { class: "jumok-sentence", dir: direction(this.map[side]), role: "group", "aria-label": name });
      line.append(make("span", { class: "jumok-side", dir: "ltr" }, name));
      this.words[side] = this.map[side].map((text, at) => {
        const word = make("span", { class: "jumok-word", role: "button", dir: "auto", tabindex: at ? "-1" : "0" }, shown(text));
        word.addEventListener("pointerenter", () => this.pinned || this.visit(side, at));
        word.addEventListener("pointerleave", () => this.leave());
        word.addEventListener("focus", () => this.visit(side, at));
        word.addEventListener("blur", () => this.leave());
        word.addEventListener("click", () => this.pin({ [side]: at }));
        word.addEventListener("keydown", (event) => this.walk(event, side, at));
        line.append(word, " ");
        return word;
      });
      return line;
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

    /** Show another layer or head, a number counted from 0 or "mean", or tokens instead of words. */
    select(choice) {
      if (choice.tokens !== undefined && choice.tokens !== this.tokens) this.use(choice.tokens);
      if (choice.layer !== undefined) this.layer = this.legal(choice.layer, this.map.layers);
      if (choice.head !== undefined) this.head = this.legal(choice.head, this.map.heads);
      this.layerSelect.value = String(this.layer);
      this.headSelect.value = String(this.head);
      this.redraw();
      if (this.options.onSelect) this.options.onSelect({ layer: this.layer, head: this.head, tokens: this.tokens });
    }

    /** Draw everything anew, after a change of theme or fonts, too. */
    redraw() {
      this.theme = getComputedStyle(this.root).getPropertyValue("--jumok-theme").trim() === "dark" ? "dark" : "light";
      this.colours = ramp(this.theme);
      this.one = matrix(this.map, this.layer, this.head);
      this.entropy = entropies(this.one);
      this.drawLegend();
      this.drawGallery();
      this.show();
    }

    /** The page has become wider or narrower. */
    fit() {}

    drawLegend() {
      this.drawRamp(this.colours, percent(this.one.top));
    }

    /** From no weight to the largest in these colours. */
    drawRamp(colours, largest) {
      const bar = make("canvas", { class: "jumok-ramp", width: 64, height: 1, "aria-hidden": "true" });
      const context = bar.getContext("2d");
      for (let x = 0; x < 64; x++) {
        context.fillStyle = css(colours(x / 63));
        context.fillRect(x, 0, 1, 1);
      }
      this.legend.replaceChildren("0", bar, largest);
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
          if (!this.distinct(layer, head)) return;
          const name = this.texts.thumb(layerName, heads.length > 1 ? headName : null);
          const button = make("button", { type: "button", class: "jumok-thumb", title: name, "aria-label": name });
          button.dataset.at = `${layer}.${head}`;
          if (!head && heads.length > 1) button.style.gridColumnStart = 1;
          button.setAttribute("aria-pressed", String(this.layer === layer && this.head === head));
          const canvas = make("canvas");
          this.thumbnail(canvas, layer, head);
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

    /** Whether a head is worth a small picture of its own. */
    distinct() {
      return true;
    }

    // ---- looking -----------------------------------------------------------------------------------------------

    /** Light up what a target word looked at, who looked at a source word, or one cell. */
    highlight(place) {
      this.pinned = null;
      this.set(place || {});
    }

    /** Light up a word of a sentence. */
    visit(side, at) {
      this.set({ [side]: at });
    }

    set(place) {
      const number = (value) => (Number.isInteger(value) ? value : null);
      const hover = { target: number(place.target), source: number(place.source) };
      if (hover.target === this.hover.target && hover.source === this.hover.source) return;
      this.hover = hover;
      this.mark();
      if (this.options.onHover) this.options.onHover({ ...hover });
    }

    /** Keep a place lit, whatever is pointed at, or let it go if it is the one that is kept. */
    pin(place) {
      const { target = null, source = null } = place;
      const same = this.pinned && this.pinned.target === target && this.pinned.source === source;
      this.set(same ? {} : place);
      this.pinned = same ? null : { target, source };
    }

    release() {
      this.pinned = null;
      this.set({});
    }

    leave() {
      if (!this.pinned) this.set({});
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
        const nats = this.entropy[target], share = this.map.probabilities[target];
        const probable = share === undefined ? "" : `${this.texts.probability(percent(share))}; `;
        this.read.append(make("span", { class: "jumok-quiet" }, probable + this.texts.entropy(nats.toFixed(2), Math.exp(nats).toFixed(1), this.tokens)));
      }
    }

    list(side, weight) {
      const ranked = this.map[side].map((_, at) => at).sort((one, other) => weight(other) - weight(one)).slice(0, 3);
      ranked.filter((at, place) => !place || weight(at) >= 0.01).forEach((at, place) => {
        this.read.append(place ? ", " : "", make("bdi", { class: "jumok-named" }, shown(this.map[side][at])), ` ${percent(weight(at))}`);
      });
      this.read.append(" ");
    }

    // ---- copying -----------------------------------------------------------------------------------------------

    /** An empty picture in the colours of the page. */
    paper(width, height) {
      const style = getComputedStyle(this.root), colour = (name) => style.getPropertyValue(name).trim();
      const picture = draw("svg", {
        xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}`,
        "font-family": style.fontFamily, "font-size": 13, fill: colour("--jumok-text"),
      });
      picture.append(draw("rect", { width: "100%", height: "100%", fill: colour("--jumok-paper") }));
      return picture;
    }

    /** What is shown as a picture of its own. */
    svg() {
      const style = getComputedStyle(this.root), picture = this.picture();
      const colours = { "jumok-track": "--jumok-line", "jumok-entropy": "--jumok-quiet", "jumok-small": "--jumok-quiet", "jumok-patch": "--jumok-paper" };
      for (const [name, colour] of Object.entries(colours)) {
        for (const node of picture.querySelectorAll("." + name)) node.setAttribute("fill", style.getPropertyValue(colour).trim());
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
      this.copyButton.textContent = done ? this.texts.copied : this.texts.notCopied;
      setTimeout(() => (this.copyButton.textContent = this.texts.copy), 1600);
    }

    destroy() {
      this.scheme.removeEventListener("change", this.repaint);
      this.themed.disconnect();
      this.resized.disconnect();
      this.root.remove();
    }
  }

  const views = {};

  function attentionMap(element, map, options) {
    const kind = (map && map.layout && map.layout.kind) || "line";
    if (!views[kind]) throw new TypeError(`a map of kind "${kind}" needs its file beside attention.js`);
    const widget = new views[kind](element, map, options || {});
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

  Object.assign(root.Jumok, { attentionMap, views, MapWidget });
})(window);
