// The program as rows, and two steps side by side.
"use strict";

const MOST_SHOWN = 2000;

/** A line as spans; `differs` says which pieces are to be marked. Very long pieces are cut: the details have all. */
function spansOf(program, line, differs = () => false) {
  return program.pieces(line).map(([kind, text], at) => {
    const shown = text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}…` : text;
    const name = `${kind}${differs(at) ? " word-changed" : ""}`.trim();
    return name ? Dom.make("span", { class: name }, shown) : shown;
  });
}

/** The program of a step as a tree: computations, their instructions, and below callers what they call. */
class ProgramView {
  constructor(app) {
    this.app = app;
    this.toggled = new Map();
    this.rows = [];
    this.list = new RowList({ label: "Instructions", role: "tree", className: "program", render: (...of) => this.row(...of) });
    this.list.element.addEventListener("click", (event) => this.click(event));
    this.element = [this.list.element];
  }

  get open() {
    const { step } = this.app.state;
    if (!this.toggled.has(step)) this.toggled.set(step, new Set());
    return this.toggled.get(step);
  }

  /** Show the program; `isJump` where the selection may be in a computation that is closed. */
  refresh(isJump = true) {
    const { program, state } = this.app;
    if (isJump && state.c >= 0 && !this.isShown(state)) state.path = program.reveal(state.step, state.c, this.open);
    const matches = this.app.matches.map(([c, position]) => `${c} ${position}`);
    this.matches = new Set(matches);
    this.rows = program.rows(state.step, this.open);
    this.chosen = this.rows.findIndex((row) => this.isChosen(row));
    this.list.setCount(this.rows.length);
    if (this.chosen >= 0) this.list.show(this.chosen);
    this.mark();
  }

  isShown({ c, position, path }) {
    const rows = this.app.program.rows(this.app.state.step, this.open);
    return rows.some((row) => row.c === c && row.position === position && (path === undefined || row.path === path));
  }

  isChosen(row) {
    const { c, position, path } = this.app.state;
    return row.c === c && row.position === position && (path === undefined || row.path === path);
  }

  mark() {
    this.list.refresh();
    const id = this.chosen >= 0 ? `row-${this.chosen}` : "";
    this.list.element.setAttribute("aria-activedescendant", id);
  }

  row(index, isBrief) {
    const row = this.rows[index];
    const { program } = this.app;
    const isHeader = row.position === Model.HEADER;
    const kind = isHeader ? "" : this.kindOf(row);
    const classes = ["row", kind, isHeader ? "header" : "", index === this.chosen ? "selected" : ""];
    if (this.matches.has(`${row.c} ${row.position}`)) classes.push("match");
    if (isBrief) return this.briefRow(row, { class: classes.filter(Boolean).join(" "), role: "treeitem", "data-index": index });
    const twisty = row.isOpen === undefined ? " " : row.isOpen ? "▾" : "▸";
    const mark = { added: "+", changed: "~", removed: "−", moved: "↕" }[kind] || " ";
    return Dom.make(
      "div",
      {
        class: classes.filter(Boolean).join(" "),
        id: `row-${index}`,
        role: "treeitem",
        "data-index": index,
        "aria-level": row.depth + 1,
        "aria-expanded": row.isOpen === undefined ? undefined : `${row.isOpen}`,
        "aria-selected": `${index === this.chosen}`,
      },
      this.cost(row),
      Dom.make("span", { class: "mark", title: kind || undefined }, mark),
      Dom.make("span", {}, "  ".repeat(row.depth)),
      Dom.make("span", { class: "twisty", "aria-hidden": "true" }, twisty),
      Dom.make("span", { class: "text" }, isHeader ? this.header(row) : this.texts(row)),
    );
  }

  /** The text where it stands in a whole row, behind its costs, mark and twisty. */
  briefRow(row, attributes) {
    const before = " ".repeat((this.app.costs[this.app.state.color] ? 11 : 0) + 4 + 2 * row.depth);
    const text = row.position === Model.HEADER ? this.header(row) : this.texts(row, true);
    return Dom.make("div", attributes, before + text);
  }

  /** How an instruction differs from the step before, or from the other of two programs. */
  kindOf(row) {
    const { program, state } = this.app;
    if (!program.two) return program.mark(state.step, row.c, row.line) || "";
    const kind = program.two.counterpart(state.step, row.c, row.position)?.kind;
    return kind === "same" ? "" : kind || "";
  }

  texts(row, isBrief) {
    const { program } = this.app;
    const root = program.rootOf(row.c) === row.position ? "ROOT " : "";
    return isBrief ? root + program.text(row.line).slice(0, MOST_SHOWN) : [root, ...spansOf(program, row.line)];
  }

  header(row) {
    const { program, state } = this.app;
    const count = program.linesOf(row.c).length;
    const isEntry = program.steps[state.step].entry === row.c;
    return `${isEntry ? "ENTRY " : ""}${program.computationName(row.c)}  (${count.toLocaleString("en")} instruction${count === 1 ? "" : "s"})`;
  }

  cost(row) {
    const cost = this.app.costs[this.app.state.color];
    if (!cost) return null;
    const value = row.line < 0 ? 0 : cost.value(row.line, row.c, this.app.state.step);
    const part = value ? (100 * Math.log1p(value * cost.scale)) / Math.log1p(cost.most(this.app.state.step) * cost.scale) : 0;
    const bar = Dom.make("i", {});
    bar.style.width = `${part}%`;
    return Dom.make("span", { class: "cost" }, bar, Dom.make("span", {}, value ? cost.text(value) : ""));
  }

  // -- what a person does ----------------------------------------------------------------------------

  indexOf(event) {
    const element = event.target.closest(".row");
    return element ? Number(element.dataset.index) : -1;
  }

  click(event) {
    const index = this.indexOf(event);
    if (index < 0) return;
    if (event.target.classList.contains("twisty")) this.toggle(index);
    else if (event.target.classList.contains("operand")) this.follow(this.rows[index], event.target.textContent);
    // A double click is counted here: its second half meets another element, since rows are made anew.
    else if (event.detail === 2) this.toggle(index);
    else this.select(index);
  }

  follow(row, name) {
    const position = this.app.program.positionOf(row.c, name);
    if (position >= 0) this.app.go({ c: row.c, position, path: row.path });
  }

  select(index) {
    const row = this.rows[Math.min(Math.max(index, 0), this.rows.length - 1)];
    if (!row) return;
    this.app.go({ c: row.c, position: row.position, path: row.path }, { isStep: true });
  }

  toggle(index) {
    const row = this.rows[index];
    if (!row || row.isOpen === undefined) return;
    const path = row.position === Model.HEADER ? row.path : `${row.path}/${row.position}`;
    if (!this.open.delete(path)) this.open.add(path);
    this.app.state = { ...this.app.state, c: row.c, position: row.position, path: row.path };
    this.refresh(false);
    this.app.details.refresh();
  }

  /** What a key does; whether it does anything. */
  key(key) {
    const at = this.chosen;
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: this.list.page, PageUp: -this.list.page };
    if (key in moves) this.select(at < 0 ? 0 : at + moves[key]);
    else if (key === "Home") this.select(0);
    else if (key === "End") this.select(this.rows.length - 1);
    else if (at < 0) return false;
    else if (key === "Enter" || key === " ") this.toggle(at);
    else if (key === "ArrowRight" && this.rows[at].isOpen === false) this.toggle(at);
    else if (key === "ArrowLeft") this.left(at);
    else return false;
    return true;
  }

  left(at) {
    if (this.rows[at].isOpen) this.toggle(at);
    else {
      const { depth } = this.rows[at];
      let above = at;
      while (above > 0 && this.rows[above].depth >= depth) above--;
      this.select(above);
    }
  }
}

/** What a step changes: two steps side by side, without the lines that are the same. */
class ChangesView {
  constructor(app) {
    this.app = app;
    this.before = undefined;
    this.opened = new Set();
    this.list = new RowList({ label: "Changes", role: "table", className: "sides", render: (...of) => this.row(...of) });
    this.list.element.addEventListener("click", (event) => this.click(event));
    this.select = Dom.make("select", { id: "before" });
    this.select.addEventListener("change", () => {
      this.before = Number(this.select.value);
      this.refresh();
    });
    this.note = Dom.make("span", { role: "status" });
    const { program } = app;
    const names = program.two ? ["only in A", "only in B", "changed", "moved"] : ["removed", "added", "changed", "moved"];
    const counted = (name) => (program.two ? `${name}: ${program.two.counts[name].toLocaleString("en")}` : name);
    const kinds = ["removed", "added", "changed", "moved"].map((kind, n) => Dom.make("span", { class: kind }, counted(names[n])));
    const label = program.two ? null : Dom.make("label", {}, "Compared with ", this.select);
    this.legend = Dom.make("div", { class: "legend" }, label ? [label, ...kinds] : kinds, this.note);
    this.empty = Dom.make("p", { class: "empty" });
    this.element = [this.legend, this.empty, this.list.element];
  }

  refresh() {
    const { program, state } = this.app;
    if (this.shown !== state.step) this.before = undefined;
    this.shown = state.step;
    const before = this.before ?? Math.max(0, state.step - 1);
    const options = program.steps.map((step, at) => {
      const text = `${step.number ? `${step.number} ` : ""}${step.name}`;
      return Dom.make("option", { value: at, selected: at === before }, text);
    });
    this.select.replaceChildren(...options);
    this.rows = [];
    let count = 0;
    for (const { a, b, rows, what } of program.comparison(before, state.step)) {
      count += rows.reduce((sum, r) => sum + (r.kind === "same" ? 0 : 1), 0);
      this.rows.push({ a, b, what });
      for (const row of Model.folded(rows, 3)) {
        const key = `${a} ${b} ${row.from}`;
        if (row.fold && (row.fold < 3 || this.opened.has(key))) this.rows.push(...rows.slice(row.from, row.from + row.fold));
        else this.rows.push(row.fold ? { ...row, key } : row);
      }
    }
    this.note.textContent = count ? `${count.toLocaleString("en")} lines differ` : "";
    const isFirst = before === state.step;
    const nothing = program.two ? "The instructions of the two programs do not differ." : "This step changes nothing.";
    this.empty.replaceChildren(isFirst && !program.two ? "This is the program as it was given." : nothing, ...this.next());
    this.empty.hidden = this.rows.length > 0;
    this.list.element.hidden = !this.empty.hidden;
    this.list.setCount(this.rows.length);
  }

  /** A button for the next step that changes lines, or the last one before where there is none. */
  next() {
    const { program, state } = this.app;
    if (program.two) return [];
    const later = program.steps.findIndex((step, n) => n > state.step && program.changes(n));
    const at = later < 0 ? program.steps.findLastIndex((step, n) => n < state.step && n > 0 && program.changes(n)) : later;
    if (at < 0) return [];
    const { number, name } = program.steps[at];
    const go = Dom.make("button", { type: "button", class: "link" }, number ? `${number} ${name}` : name);
    go.addEventListener("click", () => this.app.go({ step: at }));
    return [` The ${later < 0 ? "last" : "next"} step that changes lines is `, go, "."];
  }

  row(index, isBrief) {
    const { program } = this.app;
    const row = this.rows[index];
    const attributes = { class: "row", role: "row", "data-index": index };
    if (row.fold) {
      const text = `⋯ ${row.fold.toLocaleString("en")} lines that are the same`;
      const button = Dom.make("button", { type: "button", class: "fold" }, text);
      return Dom.make("div", attributes, Dom.make("span", { role: "cell" }, button));
    }
    if (row.kind === undefined) {
      const about = row.what ? `  (${row.what})` : "";
      const name = (c) => Dom.make("span", { class: "side", role: "cell" }, c < 0 ? "" : `${program.computationName(c)}${about}`);
      return Dom.make("div", { ...attributes, class: "row header" }, name(row.a), name(row.b));
    }
    return Dom.make("div", attributes, this.side(row, "left", "right", isBrief), this.side(row, "right", "left", isBrief));
  }

  side(row, own, other, isBrief) {
    const { program } = this.app;
    const line = row[own];
    if (line < 0) return Dom.make("span", { class: "side", role: "cell" });
    const alone = own === "left" ? "removed" : "added";
    const kind = { same: "", replaced: alone }[row.kind] ?? row.kind;
    if (isBrief) return Dom.make("span", { class: `side ${kind}`, role: "cell" }, program.text(line).slice(0, MOST_SHOWN));
    const pieces = row.kind === "changed" ? program.pieces(row[other]).map((piece) => piece[1]) : null;
    const differs = pieces ? (at) => program.pieces(line)[at][1] !== pieces[at] : undefined;
    const attributes = { class: `side ${kind}`, role: "cell", "data-line": line, "data-side": own, title: row.what || undefined };
    return Dom.make("span", attributes, spansOf(program, line, differs));
  }

  click(event) {
    const element = event.target.closest(".row");
    if (!element) return;
    const row = this.rows[Number(element.dataset.index)];
    if (row.fold) {
      this.opened.add(row.key);
      this.refresh();
      return;
    }
    const side = event.target.closest("[data-line]");
    if (side && row.at) this.chooseOfTwo(row, side.dataset.side === "left" ? 0 : 1);
    else if (side) this.choose(Number(side.dataset.line));
  }

  /** Show the details of a line of one of two programs. */
  chooseOfTwo(row, step) {
    this.app.go({ step, ...this.app.program.two.place(row, step), path: undefined }, { isStep: true });
  }

  /** Show the details of a line that the step has. */
  choose(line) {
    const { program, state } = this.app;
    for (const c of program.steps[state.step].computations) {
      const position = program.linesOf(c).indexOf(line);
      if (position >= 0) {
        this.app.go({ c, position, path: undefined }, { isStep: true, isKept: true });
        return;
      }
    }
  }

  key(key) {
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: this.list.page, PageUp: -this.list.page };
    if (!(key in moves)) return false;
    this.list.element.scrollTop += moves[key] * this.list.height;
    return true;
  }
}
