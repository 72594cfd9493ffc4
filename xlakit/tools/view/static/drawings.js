// What is drawn: the graph around an instruction, and the memory of the program over its schedule.
"use strict";

class GraphView {
  constructor(app) {
    this.app = app;
    this.up = 2;
    this.down = 2;
    this.zoom = 1;
    this.drawing = Dom.make("div", { class: "drawing", tabindex: "0", role: "group", "aria-label": "Graph" });
    const distance = (label, name) => {
      const options = [0, 1, 2, 3, 4, 6, 8].map((n) => Dom.make("option", { value: n, selected: n === this[name] }, `${n}`));
      const select = Dom.make("select", { id: `distance-${name}` }, options);
      select.addEventListener("change", () => {
        this[name] = Number(select.value);
        this.refresh();
      });
      return Dom.make("label", {}, `${label} `, select);
    };
    const zoom = (label, text, factor) => {
      const onclick = () => {
        this.zoom = Math.min(4, Math.max(0.2, this.zoom * factor));
        this.scale();
      };
      return Dom.make("button", { type: "button", "aria-label": label, onclick }, text);
    };
    this.note = Dom.make("span", { role: "status" });
    const controls = [distance("Operands to distance", "up"), distance("Users to distance", "down")];
    const zooms = [zoom("Smaller", "−", 0.8), zoom("Larger", "+", 1.25)];
    this.element = [Dom.make("div", { class: "legend" }, controls, zooms, this.note), this.drawing];
  }

  refresh() {
    const { program, state } = this.app;
    const { c, position } = state;
    if (c === undefined || c < 0 || position < 0) {
      this.note.textContent = "";
      this.drawing.replaceChildren(Dom.make("p", { class: "empty" }, "Select an instruction in the program: the graph shows what is around it."));
      return;
    }
    const { nodes, edges, isCut } = program.neighborhood(c, position, this.up, this.down, 120);
    this.note.textContent = `${nodes.length} instructions${isCut ? ", the nearest" : ""}`;
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ nodesep: 16, ranksep: 34, marginx: 16, marginy: 16 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const at of nodes) {
      const texts = this.texts(program.linesOf(c)[at]);
      graph.setNode(`${at}`, { width: Math.max(...texts.map((t) => t.length)) * 7.4 + 16, height: 40, texts });
    }
    edges.forEach(([from, to]) => graph.setEdge(`${from}`, `${to}`));
    dagre.layout(graph);
    this.draw(graph, c, position);
  }

  texts(line) {
    const { program } = this.app;
    const short = (text) => (text.length > 44 ? `${text.slice(0, 42)}…` : text);
    return [short(`${program.field(line, "opcode")} ${program.field(line, "name")}`), short(program.field(line, "shape"))];
  }

  draw(graph, c, center) {
    const { width, height } = graph.graph();
    const arrow = Dom.svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
    arrow.append(Dom.svg("path", { d: "M0 0L8 4L0 8z", fill: "var(--faint)" }));
    this.svg = Dom.svg("svg", { viewBox: `0 0 ${width} ${height}` }, Dom.svg("defs", {}, arrow));
    for (const edge of graph.edges()) {
      const { points } = graph.edge(edge);
      const d = points.map(({ x, y }, at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
      this.svg.append(Dom.svg("path", { class: "edge", d, "marker-end": "url(#arrow)" }));
    }
    for (const name of graph.nodes()) this.svg.append(this.node(graph.node(name), c, Number(name), center));
    this.size = [width, height];
    this.drawing.replaceChildren(this.svg);
    this.scale();
    const { x, y } = graph.node(`${center}`);
    this.drawing.scrollTo(x * this.zoom - this.drawing.clientWidth / 2, y * this.zoom - this.drawing.clientHeight / 2);
  }

  node({ x, y, width, height, texts }, c, at, center) {
    const choose = () => this.app.go({ c, position: at });
    const group = Dom.svg("g", {
      class: `node ${at === center ? "center" : ""}`,
      transform: `translate(${x - width / 2} ${y - height / 2})`,
      tabindex: "0",
      role: "button",
      "aria-label": texts.join(", "),
      onclick: choose,
      onkeydown: (event) => event.key === "Enter" && choose(),
    });
    const [name, shape] = texts;
    const first = Dom.svg("text", { x: 8, y: 16 }, name);
    const second = Dom.svg("text", { x: 8, y: 32, class: "faint" }, shape);
    group.append(Dom.svg("rect", { width, height, rx: 4 }), first, second);
    return group;
  }

  scale() {
    if (!this.svg) return;
    this.svg.setAttribute("width", this.size[0] * this.zoom);
    this.svg.setAttribute("height", this.size[1] * this.zoom);
  }
}

/** The arena: a rectangle for each slice, over the steps of the program in which it is in use. */
class MemoryView {
  constructor(app) {
    this.app = app;
    this.memory = app.program.document.memory;
    this.drawing = Dom.make("div", { class: "drawing", tabindex: "0", role: "group", "aria-label": "Memory" });
    this.note = Dom.make("span", { role: "status" });
    this.element = [Dom.make("div", { class: "legend" }, this.note), this.drawing];
  }

  refresh() {
    const { arena_bytes: total, slices, points } = this.memory;
    const most = 4000;
    const shown = [...slices].sort((a, b) => b.size * (b.last - b.first + 1) - a.size * (a.last - a.first + 1)).slice(0, most);
    const left = shown.length < slices.length ? `, the ${most} largest of ${slices.length}` : "";
    this.about = `arena of ${Model.amount(total, "B")}: offset downwards, steps of the program to the right${left}`;
    this.note.textContent = this.chosen ? this.textOf(this.chosen) : this.about;
    if (!slices.length) {
      this.drawing.replaceChildren(Dom.make("p", { class: "empty" }, "The program needs no memory beside arguments, results and constants."));
      return;
    }
    const [width, height] = [Math.max(600, this.drawing.clientWidth - 20), Math.max(300, this.drawing.clientHeight - 20)];
    const [x, y] = [(point) => 70 + ((width - 80) * point) / (points + 1), (offset) => 10 + ((height - 40) * offset) / Math.max(1, total)];
    const svg = Dom.svg("svg", { width, height, role: "group", "aria-label": "Slices of the arena" });
    const unit = 2 ** Math.ceil(Math.log2(Math.max(1, total / 6)));
    for (let offset = 0; offset <= total; offset += unit) {
      svg.append(Dom.svg("path", { class: "grid", d: `M70 ${y(offset)}H${width - 10}` }));
      svg.append(Dom.svg("text", { x: 62, y: y(offset) + 4, class: "faint", "text-anchor": "end" }, Model.amount(offset, "B")));
    }
    const power = 10 ** Math.floor(Math.log10(Math.max(1, points / 8)));
    const every = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= points / 8);
    for (let point = 0; point <= points; point += every) {
      svg.append(Dom.svg("text", { x: x(point), y: height - 8, class: "faint" }, `${point}`));
    }
    for (const slice of shown) svg.append(this.slice(slice, x, y));
    for (const slice of shown) svg.append(...this.label(slice, x, y));
    this.drawing.replaceChildren(svg);
  }

  textOf({ values, size, offset, first, last }) {
    const names = values.map((value) => value.name).join(", ");
    return `${names}: ${Model.amount(size, "B")} at ${offset}, steps ${first} to ${last}`;
  }

  /** The names of a slice's values and its size, where its rectangle has the room. */
  label({ values, size, first, last, offset }, x, y) {
    const letter = 7.3, line = 16;
    const [room, lines] = [Math.floor((x(last + 1) - x(first) - 12) / letter), Math.floor((y(offset + size) - y(offset)) / line)];
    if (room < 4 || lines < 1) return [];
    const names = values.map((value) => value.name).join(", ");
    const texts = lines > 1 ? [names, Model.amount(size, "B")] : [`${names}  ${Model.amount(size, "B")}`];
    return texts.map((text, n) => {
      const shown = text.length > room ? `${text.slice(0, room - 1)}…` : text;
      return Dom.svg("text", { x: x(first) + 6, y: y(offset) + 13 + n * line, class: "inside", "aria-hidden": "true" }, shown);
    });
  }

  slice(slice, x, y) {
    const from = x(slice.first);
    const text = this.textOf(slice);
    const choose = () => {
      this.chosen = slice;
      const value = slice.values.find((v) => this.app.find(v.instruction));
      const found = value && { ...this.app.find(value.instruction), step: this.app.program.steps.length - 1 };
      this.app.go(found || {});
    };
    const rect = Dom.svg("rect", {
      class: `slice ${slice === this.chosen ? "selected" : ""}`,
      x: from,
      y: y(slice.offset),
      width: Math.max(1, x(slice.last + 1) - from),
      height: Math.max(1, y(slice.offset + slice.size) - y(slice.offset)),
      tabindex: "0",
      role: "button",
      "aria-label": text,
      onclick: choose,
      onkeydown: (event) => event.key === "Enter" && choose(),
    });
    rect.append(Dom.svg("title", {}, text));
    return rect;
  }
}
