/* The view of words beside each other: two sentences, and the matrix between them seen through a window. */
(function (root) {
  "use strict";

  const { make, draw, css, shown, clamp, matrix, thumbnail } = root.Jumok.parts;
  const GUTTER = 30; // where the entropy of a row is drawn
  const LEAST = 22, MOST = 44; // sizes of a cell
  const LONGEST_LABEL = 170;
  const SHORT = 17; // pixels up to which the label of a column stands upright: a Hangul letter, or two Latin ones
  const FADE = "32px"; // at an edge of the window beyond which there is more
  const WHOLE = 120; // a copied picture shows everything up to so many words a side, then what is in the window

  class MatrixWidget extends root.Jumok.MapWidget {
    stage() {
      this.sentences = make("div", { class: "jumok-sentences" });
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
      const stage = make("div", { class: "jumok-stage" });
      stage.append(this.scroll, this.overviewBox);
      return [this.sentences, this.read, stage];
    }

    watch() {
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
      super.watch();
    }

    fill() {
      this.sentences.replaceChildren();
      this.sentences.hidden = !this.options.sentences;
      this.sentences.classList.toggle("jumok-long", Math.max(this.map.source.length, this.map.target.length) > 60);
      if (this.options.sentences) this.sentences.append(this.sentence("source"), this.sentence("target"));
      this.scroll.scrollTo(0, 0);
    }

    thumbnail(canvas, layer, head) {
      thumbnail(canvas, matrix(this.map, layer, head), 48, this.colours);
    }

    // ---- drawing -----------------------------------------------------------------------------------------------

    show() {
      this.layout = this.measure();
      this.drawOverview();
      this.paint();
    }

    measure() {
      const style = getComputedStyle(this.root);
      const context = document.createElement("canvas").getContext("2d");
      context.font = "13px " + style.fontFamily;
      const width = (text) => Math.min(LONGEST_LABEL, context.measureText(shown(text)).width);
      const longest = (texts) => texts.reduce((most, text) => Math.max(most, width(text)), 8);
      this.upright = this.map.source.map((text) => width(text.replace(/^▁/, "")) <= SHORT);
      const lean = longest(this.map.source.filter((_, at) => !this.upright[at])) * 0.71, left = longest(this.map.target) + 14 + GUTTER;
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

    fit() {
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
      this.svgNode.style.setProperty("--jumok-right", scrollLeft + width < this.layout.width - 1 ? FADE : "0px");
      this.svgNode.style.setProperty("--jumok-below", scrollTop + height < this.layout.height - 1 ? FADE : "0px");
      this.cells = this.window(this.svgNode, { x: scrollLeft, y: scrollTop, width, height });
      this.outline = this.svgNode.lastChild.appendChild(draw("rect", { class: "jumok-outline", rx: 6 }));
      this.place();
      this.mark();
    }

    /** The words and cells seen through a window on the matrix; gives the cells back. */
    window(into, seen) {
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
      const turn = this.upright[column] ? { "text-anchor": "middle" } : { transform: `rotate(-45 ${x} ${y})` };
      into.append(draw("text", { class: "jumok-label", x, y, ...turn, "data-source": column }, this.cut(this.map.source[column])));
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

    visit(side, at) {
      super.visit(side, at);
      this.follow();
    }

    highlight(place) {
      super.highlight(place);
      this.follow();
    }

    /** Bring what the word that is lit has to do with into the window. */
    follow() {
      const { target, source } = this.hover, lookedAt = this.strongest();
      if ((target === null) === (source === null) || lookedAt === null) return; // a cell, or nothing
      if (target !== null) this.reveal(target, lookedAt, 3);
      else this.reveal(lookedAt, source, 3);
      const word = this.words[target !== null ? "source" : "target"][lookedAt];
      if (!word) return; // the sentences are elsewhere
      const line = word.parentNode;
      if (line.scrollHeight > line.clientHeight) line.scrollTop = word.offsetTop - line.offsetTop - line.clientHeight / 2;
    }

    /** The word of the other side with the largest weight. */
    strongest() {
      const { target, source } = this.hover, { rows, columns } = this.one;
      if (target === null && source === null) return null;
      let best = null, most = -1;
      for (let at = 0; at < (target !== null ? columns : rows); at++) {
        const weight = target !== null ? this.one.at(target, at) : this.one.at(at, source);
        if (weight > most) [best, most] = [at, weight];
      }
      return best;
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

    cellAt(event) {
      const box = this.svgNode.getBoundingClientRect(), { cell, left, top } = this.layout;
      const x = event.clientX - box.left, y = event.clientY - box.top;
      const column = Math.floor((x - left + this.scroll.scrollLeft) / cell);
      const row = Math.floor((y - top + this.scroll.scrollTop) / cell);
      const inside = (at, count) => (at >= 0 && at < count ? at : null);
      if (x < left) return { target: y < top ? null : inside(row, this.one.rows), source: null };
      if (y < top) {
        const below = inside(column, this.one.columns);
        if (this.upright[below] && y > top - 24) return { target: null, source: below };
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
      this.set({ target, source });
      this.pinned = { target, source };
    }

    /** Scroll as little as is needed to show a cell with a margin of some more. */
    reveal(row, column, margin = 0) {
      const { cell, left, top } = this.layout;
      const into = (offset, size, at) => clamp(offset, (at + 1 + margin) * cell - size, (at - margin) * cell);
      const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroll;
      this.scroll.scrollTo(into(scrollLeft, clientWidth - left - cell, column), into(scrollTop, clientHeight - top, row));
    }

    /** All of the matrix, or what is in the window if it is very large. */
    picture() {
      const whole = Math.max(this.one.rows, this.one.columns) <= WHOLE;
      const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroll;
      const seen = whole
        ? { x: 0, y: 0, width: Math.ceil(this.layout.width), height: Math.ceil(this.layout.height) }
        : { x: scrollLeft, y: scrollTop, width: clientWidth, height: clientHeight };
      const picture = this.paper(seen.width, seen.height);
      this.window(picture, seen);
      return picture;
    }

    destroy() {
      cancelAnimationFrame(this.waiting);
      super.destroy();
    }
  }

  root.Jumok.views.line = MatrixWidget;
})(window);
