/* The view of a graph: a node, those it looked at around it, what these looked at in the layer before, and a table. */
(function (root) {
  "use strict";

  const { make, draw, css, shown, percent, matrix, clamp } = root.Jumok.parts;
  const RING = 16, NARROW = 8, BELOW = 3; // nodes drawn around the middle, also on a telephone, and around each of these
  const DISC = 21, SMALL = 7, CENTRE = 27, MARGIN = 26;
  const ROWS = 500; // of the table
  const BARS = 24; // of a small picture

  const dark = (rgb) => 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2] < 140;
  const point = ([x, y], radius, angle) => [x + radius * Math.cos(angle), y + radius * Math.sin(angle)];

  class GraphWidget extends root.Jumok.MapWidget {
    ownTexts() {
      return {
        legend: "Weights, from 0 to the largest in this map.",
        hint: "Point at a node, an edge or a row to see its weight.",
        table: "Nodes that the node attends to. Arrow keys move from row to row.",
        title: (name, label, predicted, share) => `node ${name}: class ${label}` + (predicted ? `, predicted ${predicted} (${share})` : ""),
        columns: ["node", "class", "weight"], itself: "itself", wrong: "wrong", more: (count, share) => `and ${count} more, together ${share}`,
        heads: "A layer with fewer heads shows the average of its heads in place of the missing ones.",
        below: (layer) => `small: attention of these in layer ${layer}`, inLayer: (layer) => `in layer ${layer}`,
        entropy: (nats, nodes) => `entropy ${nats}, equivalent to ${nodes} nodes`,
      };
    }

    stage() {
      this.heading = make("p", { class: "jumok-title", dir: "auto" });
      this.svgNode = draw("svg", { class: "jumok-graph", role: "img" });
      this.table = make("div", { class: "jumok-table", role: "group", "aria-label": this.texts.table });
      this.stageNode = make("div", { class: "jumok-graph-stage" });
      this.stageNode.append(this.svgNode, this.table);
      return [this.heading, this.read, this.stageNode];
    }

    /** The last layer is the one that decides. */
    first() {
      return this.options.layer === "mean" ? this.map.layers.length - 1 : this.options.layer;
    }

    fill() {
      const { predicted, probability, classes } = this.map.layout, wrong = predicted && classes[0] !== "?" && predicted !== classes[0];
      const title = () => this.texts.title(this.map.source[0], classes[0], predicted, `${Math.round(100 * probability)}%`);
      this.heading.textContent = (this.map.title || title()) + (wrong ? ` · ${this.texts.wrong}` : "");
      this.svgNode.setAttribute("aria-label", this.heading.textContent);
      this.gallery.title = this.map.layers.length > 1 && this.map.heads.length > 1 ? this.texts.heads : "";
    }

    /** How much the first node looked at each neighbour, as bars. */
    thumbnail(canvas, layer, head) {
      const one = matrix(this.map, layer, head), count = Math.min(BARS, 1 + this.map.layout.neighbours), wide = Math.floor(72 / count);
      Object.assign(canvas, { width: count * wide, height: 72 });
      const context = canvas.getContext("2d"), weights = Array.from({ length: count }, (_, at) => one.at(0, at));
      const top = Math.max(...weights) || 1;
      weights.forEach((weight, at) => {
        context.fillStyle = css(this.colours(0.25 + (0.75 * weight) / top));
        const high = Math.round((64 * weight) / top);
        context.fillRect(at * wide, 72 - high, wide - (wide > 8 ? 2 : 1), high);
      });
    }

    /** A layer with fewer heads than another has the same average in the place of those it lacks. */
    distinct(layer, head) {
      const [one, before] = [head, head - 1].map((at) => this.map.weights[layer][at]);
      return !head || one.some((row, at) => row.some((weight, source) => weight !== before[at][source]));
    }

    show() {
      this.below = typeof this.layer === "number" && this.layer > 0 ? matrix(this.map, this.layer - 1, this.head) : null;
      this.drawGraph(this.svgNode);
      this.drawTable();
      this.mark();
    }

    room() {
      return this.root.clientWidth < 560 ? NARROW : RING;
    }

    fit() {
      if (this.most !== this.room()) this.show();
    }

    /** The neighbours it looked at most, in the order of the map, so that they stay where they are in every layer. */
    ring() {
      this.most = this.room();
      const all = Array.from({ length: this.map.layout.neighbours }, (_, at) => at + 1);
      const most = all.sort((one, other) => this.one.at(0, other) - this.one.at(0, one)).slice(0, this.most);
      return most.sort((one, other) => one - other);
    }

    /** What a neighbour looked at in the layer before, itself left out. */
    further(target) {
      if (!this.below || target >= this.map.target.length) return [];
      const weight = (at) => this.below.at(target, at);
      const seen = this.map.source.map((_, at) => at).filter((at) => at !== target && weight(at) > 0);
      return seen.sort((one, other) => weight(other) - weight(one)).slice(0, BELOW);
    }

    // ---- the drawing -------------------------------------------------------------------------------------------

    /** Draws it at `top` and gives its size. */
    drawGraph(into, top = 0) {
      const ring = this.ring(), below = ring.map((at) => this.further(at));
      const narrow = this.most === NARROW, outer = below.some((some) => some.length) ? (narrow ? 62 : 96) : 0;
      const radius = Math.max(narrow ? 110 : 138, (ring.length * 2.45 * DISC) / Math.PI);
      const reach = radius + outer + 44, side = Math.max(2 * (reach + MARGIN), narrow ? 320 : 420), middle = [side / 2, top + reach];
      const most = Math.max(...Array.from({ length: 1 + this.map.layout.neighbours }, (_, at) => this.one.at(0, at))) || 1;
      // The largest is dark, but pale where all are looked at a little.
      const ink = (0.35 + 0.65 * Math.sqrt(most)) / most, drawn = { edges: [], nodes: [], words: [] };
      ring.forEach((at, number) => {
        const angle = (2 * Math.PI * number) / ring.length - Math.PI / 2, spread = Math.min(((2 * Math.PI) / ring.length) * 0.78, 0.9);
        this.drawFurther(drawn, at, below[number], middle, radius, outer, angle, spread);
        this.drawNeighbour(drawn, at, middle, radius, angle, ink);
      });
      this.drawCentre(drawn, middle, ink);
      const rest = this.map.layout.neighbours - ring.length;
      if (rest > 0) {
        const left = 1 - ring.reduce((sum, at) => sum + this.one.at(0, at), this.one.at(0, 0));
        this.say(drawn, MARGIN, top + 2 * reach + 12, this.texts.more(rest, percent(Math.max(0, left))), 12, "start", "jumok-small");
      }
      const size = { width: side, height: top + 2 * reach + (rest > 0 ? 24 : 4) };
      Object.entries({ ...size, viewBox: `0 0 ${size.width} ${size.height}` }).forEach(([key, value]) => into.setAttribute(key, value));
      if (into === this.svgNode) into.replaceChildren();
      into.append(...drawn.edges, ...drawn.nodes, ...drawn.words);
      return size;
    }

    drawNeighbour(drawn, source, middle, radius, angle, ink) {
      const weight = this.one.at(0, source), share = weight * ink, [x, y] = point(middle, radius, angle), fill = this.colours(share);
      this.line(drawn, middle, [x, y], [CENTRE + 5, DISC], 1.2 + 7 * share, this.colours(0.18 + 0.82 * share), 0, source);
      this.disc(drawn, x, y, DISC, css(fill), css(this.colours(0.35 + 0.65 * share)), 0, source);
      const on = dark(fill) ? "#fff" : "#10151d", name = shown(this.map.source[source]);
      this.say(drawn, x, y + 1, this.cut(name, 38, 12), 12, "middle", "", on, true);
      this.say(drawn, x, y + 12, this.cut(this.map.layout.classes[source], 36, 8.5), 8.5, "middle", "", on);
      const [wx, wy] = point(middle, CENTRE + (radius - DISC - CENTRE) * 0.56, angle), text = percent(weight);
      const wide = 7 * text.length + 6;
      drawn.words.push(draw("rect", { class: "jumok-patch", x: wx - wide / 2, y: wy - 8, width: wide, height: 16, rx: 8 }));
      this.say(drawn, wx, wy + 4, text, 11.5, "middle", "jumok-weight");
    }

    drawFurther(drawn, target, some, middle, radius, outer, angle, spread) {
      const top = some.length ? this.below.at(target, some[0]) : 1, at = point(middle, radius, angle);
      some.forEach((source, number) => {
        const turn = angle + (some.length === 1 ? 0 : spread * (number / (some.length - 1) - 0.5));
        const weight = this.below.at(target, source), [x, y] = point(middle, radius + outer, turn), share = weight / top;
        this.line(drawn, at, [x, y], [DISC, SMALL], 0.7 + 2.6 * weight, this.colours(0.12 + 0.6 * share), target, source);
        this.disc(drawn, x, y, SMALL, css(this.colours(weight)), css(this.colours(0.2 + 0.5 * share)), target, source);
        const way = Math.cos(turn), anchor = way > 0.4 ? "start" : way < -0.4 ? "end" : "middle";
        const [nx, ny] = point(middle, radius + outer + SMALL + (anchor === "middle" ? 10 : 4), turn);
        this.say(drawn, nx, ny + 3.5, this.cut(shown(this.map.source[source]), 48, 9), 9, anchor, "jumok-small");
      });
    }

    drawCentre(drawn, [x, y], ink) {
      const own = this.one.at(0, 0), style = getComputedStyle(this.root);
      const [paper, text] = ["--jumok-paper", "--jumok-text"].map((name) => style.getPropertyValue(name).trim());
      this.disc(drawn, x, y, CENTRE + 5, paper, css(this.colours(0.18 + 0.82 * own * ink)), 0, 0);
      this.disc(drawn, x, y, CENTRE, text, text, 0, 0);
      this.say(drawn, x, y + (own ? 1 : 5), this.cut(shown(this.map.source[0]), 46, 14), 14, "middle", "", paper, true);
      if (own) this.say(drawn, x, y + 14, `${this.texts.itself} ${percent(own)}`, own < 0.1 ? 7.5 : 8.5, "middle", "", paper);
    }

    /** From the rim of one disc to that of the other, so that nothing shines through a pale one. */
    line(drawn, from, to, [near, far], width, rgb, target, source) {
      const angle = Math.atan2(to[1] - from[1], to[0] - from[0]);
      const [[x1, y1], [x2, y2]] = [point(from, near, angle), point(to, -far, angle)];
      const edge = draw("line", { class: "jumok-edge", x1, y1, x2, y2, stroke: css(rgb), "stroke-width": width });
      drawn.edges.push(this.pointable(edge, target, source));
    }

    disc(drawn, cx, cy, r, fill, stroke, target, source) {
      const node = draw("circle", { class: "jumok-node", cx, cy, r, fill, stroke, "stroke-width": 1.5 });
      drawn.nodes.push(this.pointable(node, target, source));
    }

    say(drawn, x, y, text, size, anchor, name, fill, bold) {
      const node = draw("text", { x, y, "font-size": size, "text-anchor": anchor }, text);
      if (name) node.setAttribute("class", name);
      node.setAttribute("fill", fill || "currentColor");
      if (bold) node.setAttribute("font-weight", 600);
      drawn.words.push(node);
    }

    /** As much of a text as fits. */
    cut(text, width, size) {
      const context = (this.measurer ||= make("canvas").getContext("2d"));
      context.font = `600 ${size}px ${getComputedStyle(this.root).fontFamily}`;
      const letters = Array.from(text).slice(0, 40);
      if (letters.length === Array.from(text).length && context.measureText(text).width <= width) return text;
      while (letters.length > 1 && context.measureText(letters.join("") + "…").width > width) letters.pop();
      return letters.join("") + "…";
    }

    pointable(node, target, source) {
      Object.assign(node.dataset, { target, source });
      node.addEventListener("pointerenter", () => this.pinned || this.set({ target, source }));
      node.addEventListener("pointerleave", () => this.leave());
      node.addEventListener("click", () => this.pin({ target, source }));
      return node;
    }

    // ---- the table ---------------------------------------------------------------------------------------------

    drawTable() {
      const { classes, neighbours } = this.map.layout, weight = (at) => this.one.at(0, at);
      const all = Array.from({ length: 1 + neighbours }, (_, at) => at).filter((at) => at || weight(at) > 0);
      const ranked = all.sort((one, other) => weight(other) - weight(one)).slice(0, ROWS), table = make("table"), body = make("tbody");
      const head = make("tr"), top = weight(ranked[0]) || 1;
      for (const name of this.texts.columns) head.append(make("th", { scope: "col" }, name));
      ranked.forEach((at, number) => {
        const row = make("tr", { tabindex: number ? "-1" : "0" }), cell = make("td", { class: "jumok-number" }), bar = make("i");
        bar.style.cssText = `width: ${(58 * weight(at)) / top}%; background: ${css(this.colours(0.25 + (0.75 * weight(at)) / top))}`;
        cell.append(weight(at).toFixed(3), bar);
        const name = make("td", {}, shown(this.map.source[at]) + (at ? "" : ` (${this.texts.itself})`));
        row.append(name, make("td", {}, classes[at]), cell);
        row.addEventListener("focus", () => this.set({ target: 0, source: at }));
        row.addEventListener("blur", () => this.leave());
        row.addEventListener("keydown", (event) => this.step(event, row));
        body.append(this.pointable(row, 0, at));
      });
      table.append(make("thead"), body);
      table.firstChild.append(head);
      this.table.replaceChildren(table);
      if (all.length > ROWS) this.table.append(make("p", { class: "jumok-quiet" }, this.texts.more(all.length - ROWS, "…")));
    }

    step(event, row) {
      const to = { ArrowUp: row.previousElementSibling, ArrowDown: row.nextElementSibling }[event.key];
      if (event.key === "Escape") this.release();
      if (event.key === "Enter") this.pin({ target: 0, source: Number(row.dataset.source) });
      if (!to) return;
      row.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
      event.preventDefault();
    }

    // ---- looking -----------------------------------------------------------------------------------------------

    mark() {
      const { target, source } = this.hover;
      this.root.classList.toggle("jumok-hovering", source !== null);
      for (const node of this.stageNode.querySelectorAll("[data-source]")) {
        const same = Number(node.dataset.target) === target && Number(node.dataset.source) === source;
        const centre = node.tagName === "circle" && node.dataset.target === "0" && node.dataset.source === "0";
        const other = node.tagName === "circle" && target > 0 && Number(node.dataset.source) === target && node.dataset.target === "0";
        node.classList.toggle("jumok-on", same || (node.tagName === "circle" && ((centre && target === 0) || other)));
      }
      this.tell();
    }

    tell() {
      const { target, source } = this.hover;
      if (target > 0 && this.below) {
        const word = (at) => make("bdi", { class: "jumok-said" }, shown(this.map.source[at]));
        const layer = ` ${this.texts.inLayer(this.map.layers[this.layer - 1])}`;
        const weight = ` ${this.texts.with} ${percent(this.below.at(target, source))}`;
        return this.read.replaceChildren(word(target), ` ${this.texts.lookedAt} `, word(source), weight, layer);
      }
      super.tell();
      if (target !== null) return;
      const nats = this.entropy[0], below = this.below ? `${this.texts.below(this.map.layers[this.layer - 1])}; ` : "";
      const spread = this.texts.entropy(nats.toFixed(2), Math.exp(nats).toFixed(1));
      this.read.append(" ", make("span", { class: "jumok-quiet" }, below + spread));
    }

    picture() {
      const paper = this.paper(0, 0), style = getComputedStyle(this.root);
      const size = this.drawGraph(paper, 48);
      paper.append(draw("text", { x: MARGIN, y: 32, "font-size": 16, "font-weight": 600 }, this.heading.textContent));
      paper.setAttribute("color", style.getPropertyValue("--jumok-text").trim());
      paper.setAttribute("width", clamp(size.width, 1, 1e5));
      for (const node of paper.querySelectorAll("[data-source]")) node.removeAttribute("data-source");
      for (const node of paper.querySelectorAll("[data-target]")) node.removeAttribute("data-target");
      return paper;
    }
  }

  root.Jumok.views.graph = GraphWidget;
})(window);
