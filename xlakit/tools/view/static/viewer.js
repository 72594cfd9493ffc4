// The page: its state, which the address keeps, and what keys and controls do.
"use strict";

const KEYS = [
  ["↑ ↓ j k", "previous, next row"],
  ["→ ← Enter", "open, close what an instruction calls"],
  ["o u", "go to the first operand, the first user"],
  ["/ n N", "search; next, previous match"],
  ["[ ]", "previous, next step"],
  ["p c g m r s", "program, changes, graph, memory, roofline, mesh"],
  ["b", "back"],
  ["d", "dark or light"],
  ["?", "this list"],
];

class App {
  constructor(data) {
    this.program = new Model.Program(data);
    this.first = this.firstOf(data);
    this.state = { ...this.first, query: "" };
    this.matches = [];
    this.matchAt = -1;
    this.costs = this.costsOf();
    this.view = document.getElementById("view");
    this.details = new DetailsPanel(this);
    this.steps = new StepsPanel(this);
    this.views = { program: new ProgramView(this), changes: new ChangesView(this), graph: new GraphView(this) };
    if (data.memory) this.views.memory = new MemoryView(this);
    if (data.profile?.roofline) this.views.roofline = new RooflineView(this);
    if (data.mesh) this.views.mesh = new MeshView(this);
    this.controls();
    this.keys();
    // The page of a notebook's frame has no address of its own.
    this.hasAddress = location.protocol !== "about:";
    this.state = { ...this.state, ...this.fromHash() };
    this.search(this.state.query, false);
    this.refresh();
    this.view.querySelector("[tabindex]")?.focus();
    window.addEventListener("popstate", () => this.restore());
  }

  /** What a page shows first: of two programs what differs; of a report its numbers, where they belong. */
  firstOf(data) {
    if (this.program.two) return { step: 1, view: "changes", color: "" };
    const step = data.profile ? this.program.steps.length - 1 : 0;
    return { step, view: "program", color: data.profile ? "time" : data.errors ? "error" : "" };
  }

  costsOf() {
    const { program } = this;
    const { lines } = program;
    const cost = (key, title, scale, value, text) => {
      const most = (step) =>
        program.cached(`most ${key} ${step}`, () => {
          let found = 0;
          for (const c of program.steps[step].computations) {
            for (const line of program.linesOf(c)) found = Math.max(found, value(line, c, step));
          }
          return found || 1;
        });
      return { title, scale, value, text, most };
    };
    const costs = {
      bytes: cost("bytes", "bytes", 1, (line) => lines.bytes[line], (value) => Model.amount(value, "B")),
      flops: cost("flops", "operations", 1, (line) => lines.flops[line], (value) => Model.amount(value, "")),
    };
    const { profile } = program.document;
    if (profile) {
      const sum = (values) => values.reduce((total, value) => total + value, 0);
      const own = (line) => profile.seconds[program.field(line, "name")] || 0;
      const within = (step, c) => program.cached(`seconds ${step} ${c}`, () => sum(Array.from(program.linesOf(c), (line) => seconds(line, c, step))));
      // A loop or a fusion takes what is in it, too, which its row hides.
      const seconds = (line, c, step) => own(line) + sum(program.calleesOf(step, line).map((callee) => within(step, callee)));
      costs.time = cost("time", "time", 1e7, seconds, Model.seconds);
    }
    const { errors } = program.document;
    if (errors) {
      const error = (line) => errors[program.field(line, "name")] || 0;
      // Relative errors of f32 begin at 1e-8.
      costs.error = cost("error", "rounding error", 1e9, error, (value) => (value ? value.toExponential(1) : ""));
    }
    return costs;
  }

  // -- state -----------------------------------------------------------------------------------------

  /**
   * Change the state, show it, and keep it in the address. `isStep`: it is a small move, which takes no entry of the
   * history; `isKept`: the view stays as it is.
   */
  go(change, { isStep = false, isKept = false } = {}) {
    const before = this.state;
    this.state = { ...before, ...change };
    if (change.step !== undefined && change.step !== before.step) {
      if (change.c === undefined) this.state = { ...this.state, ...this.sameIn(change.step, before) };
      this.search(this.state.query, false);
    }
    if (change.c !== undefined && change.path === undefined) this.state.path = undefined;
    this.save(isStep);
    if (isKept) this.details.refresh();
    else this.refresh();
  }

  /** The selection in another step: what has the same name there. */
  sameIn(step, { step: before, c, position }) {
    const none = { c: undefined, position: undefined, path: undefined };
    if (c === undefined) return none;
    if (this.program.two) {
      const found = this.program.two.counterpart(before, c, position);
      return { ...none, c: found?.c, position: found?.position };
    }
    const other = this.program.named(step, this.program.computationName(c));
    if (other === undefined) return none;
    if (position === Model.HEADER) return { ...none, c: other, position };
    const name = this.program.lines.name[this.program.linesOf(c)[position]];
    const at = this.program.positions(other).get(name);
    return at === undefined ? none : { ...none, c: other, position: at };
  }

  /** Where an instruction of the last step is, by its name; undefined if there is none. */
  find(name) {
    const step = this.program.steps.length - 1;
    for (const c of name ? this.program.ordered(step) : []) {
      const position = this.program.positionOf(c, name);
      if (position >= 0) return { c, position, path: undefined };
    }
    return undefined;
  }

  save(isStep) {
    if (!this.hasAddress) return;
    const { step, view, c, position, query, color } = this.state;
    let at;
    if (c !== undefined) {
      const line = position >= 0 ? this.program.linesOf(c)[position] : undefined;
      at = this.program.computationName(c) + (line === undefined ? "" : `/${this.program.field(line, "name")}`);
    }
    const hash = Model.formatHash({ step: `${step}`, view, at, q: query, color: color || (this.first.color && "nothing") });
    if (isStep) history.replaceState(null, "", hash);
    else if (hash !== location.hash) history.pushState(null, "", hash);
  }

  fromHash() {
    const { step, view, at, q, color } = Model.parseHash(location.hash);
    const last = this.program.steps.length - 1;
    const given = Number.parseInt(step, 10);
    const number = Number.isNaN(given) ? this.first.step : Math.min(Math.max(given, 0), last);
    const state = { step: number, view: view in this.views ? view : this.first.view, query: q || "", color: color in this.costs ? color : color ? "" : this.first.color };
    if (!at) return { ...state, c: undefined, position: undefined, path: undefined };
    const slash = at.indexOf("/");
    const c = this.program.named(number, slash < 0 ? at : at.slice(0, slash));
    if (c === undefined) return { ...state, c, position: undefined, path: undefined };
    const position = slash < 0 ? Model.HEADER : this.program.positionOf(c, at.slice(slash + 1));
    return { ...state, c, position, path: undefined };
  }

  restore() {
    this.state = { ...this.state, ...this.fromHash() };
    this.search(this.state.query, false);
    this.refresh();
  }

  refresh() {
    const { view, color, query } = this.state;
    const shown = this.views[view];
    for (const tab of document.querySelectorAll("#tabs [role=tab]")) {
      const isShown = tab.dataset.view === view;
      tab.setAttribute("aria-selected", `${isShown}`);
      if (isShown) this.view.setAttribute("aria-label", tab.textContent);
    }
    if (this.view.firstChild !== shown.element[0]) this.view.replaceChildren(...shown.element);
    document.getElementById("color").value = color;
    const box = document.getElementById("search");
    if (document.activeElement !== box) box.value = query;
    shown.refresh();
    this.steps.refresh();
    this.details.refresh();
  }

  // -- search ----------------------------------------------------------------------------------------

  search(query, isNew = true) {
    this.state.query = query;
    this.matches = this.program.search(this.state.step, query);
    if (isNew) this.matchAt = -1;
    this.tellMatches();
  }

  tellMatches() {
    const count = this.matches.length.toLocaleString("en");
    const at = this.matchAt >= 0 ? `${(this.matchAt + 1).toLocaleString("en")} of ` : "";
    document.getElementById("matches").textContent = this.state.query ? `${at}${count} found` : "";
  }

  /** Go to another match: from the selection, where it is one. */
  match(distance) {
    if (!this.matches.length) return;
    const { c, position } = this.state;
    const at = this.matches.findIndex((match) => match[0] === c && match[1] === position);
    const from = at >= 0 ? at : distance > 0 ? -1 : 0;
    this.matchAt = (from + distance + this.matches.length) % this.matches.length;
    const [other, place] = this.matches[this.matchAt];
    this.go({ c: other, position: place, path: undefined, view: this.state.view === "graph" ? "graph" : "program" });
    this.tellMatches();
  }

  /** Search for something that a link names. */
  look(query) {
    document.getElementById("search").value = query;
    this.search(query);
    this.go({ view: "program" });
  }

  // -- controls --------------------------------------------------------------------------------------

  controls() {
    const get = (id) => document.getElementById(id);
    for (const tab of document.querySelectorAll("#tabs [role=tab]")) {
      tab.hidden = !(tab.dataset.view in this.views);
      tab.addEventListener("click", () => this.go({ view: tab.dataset.view }));
    }
    if (this.program.two) get("tab-changes").textContent = "Differences";
    const box = get("search");
    box.addEventListener("input", () => {
      this.search(box.value);
      this.save(true);
      if (this.state.view === "program") this.views.program.refresh(false);
    });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.match(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.view.querySelector("[tabindex]")?.focus();
    });
    get("next").addEventListener("click", () => this.match(1));
    get("previous").addEventListener("click", () => this.match(-1));
    const color = get("color");
    for (const [name, { title }] of Object.entries(this.costs)) color.append(Dom.make("option", { value: name }, title));
    color.addEventListener("change", () => this.go({ color: color.value }));
    get("theme").addEventListener("click", () => this.theme());
    get("help").addEventListener("click", () => get("keys").showModal());
    if (matchMedia("(prefers-color-scheme: dark)").matches) this.theme();
    const texts = KEYS.flatMap(([key, text]) => [Dom.make("dt", {}, Dom.make("kbd", {}, key)), Dom.make("dd", {}, text)]);
    document.querySelector("#keys dl").append(...texts);
  }

  theme() {
    const button = document.getElementById("theme");
    const isDark = document.documentElement.dataset.theme !== "dark";
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    button.textContent = isDark ? "Light" : "Dark";
  }

  keys() {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const { target } = event;
      if (target.matches("input, select, textarea, dialog *")) return;
      // Enter and space are the button's own.
      if (target.matches("button, [role=button]") && (event.key === "Enter" || event.key === " ")) return;
      if (this.key(event.key)) event.preventDefault();
    });
  }

  key(key) {
    const to = { p: "program", c: "changes", g: "graph", m: "memory", r: "roofline", s: "mesh" }[key];
    if (to in this.views) this.go({ view: to });
    else if (key === "]" || key === "[") this.step(key === "]" ? 1 : -1);
    else if (key === "o" || key === "u") this.follow(key === "o" ? "operandsOf" : "usersOf");
    else if (key === "n" || key === "N") this.match(key === "n" ? 1 : -1);
    else if (key === "/") document.getElementById("search").focus();
    else if (key === "?") document.getElementById("keys").showModal();
    else if (key === "d") this.theme();
    else if (key === "b") history.back();
    else return this.views[this.state.view].key?.(key) ?? false;
    return true;
  }

  step(distance) {
    const step = this.state.step + distance;
    if (step >= 0 && step < this.program.steps.length) this.go({ step });
  }

  follow(what) {
    const { c, position } = this.state;
    if (c === undefined || position < 0) return;
    const [first] = this.program[what](c, position);
    if (first !== undefined) this.go({ c, position: first, path: this.state.path });
  }
}

const app = new App(Packing.unpacked(JSON.parse(document.getElementById("document").textContent)));
document.documentElement.dataset.ready = "true";
