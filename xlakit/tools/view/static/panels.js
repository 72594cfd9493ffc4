// The panels beside the program: the steps, and the details of what is selected.
"use strict";

/** The timeline of the steps, and below the one that is shown what its pass did. */
class StepsPanel {
  constructor(app) {
    this.app = app;
    this.hidesUnchanged = false;
    this.element = document.getElementById("steps");
    this.list = Dom.make("ol");
    const box = Dom.make("input", { type: "checkbox", id: "hide-unchanged" });
    box.addEventListener("change", () => {
      this.hidesUnchanged = box.checked;
      this.refresh();
    });
    const { two } = app.program;
    this.element.setAttribute("aria-label", two ? "Programs" : "Steps");
    this.element.append(...(two ? [] : [Dom.make("label", {}, box, "Only steps that change lines")]), this.list);
    this.counted = new Map();
    if (app.program.steps.length > 1 && !two) this.count(1);
  }

  /** Count the changed lines of one step after another, when the page has nothing else to do. */
  count(step) {
    const later = window.requestIdleCallback || ((run) => setTimeout(run, 1));
    later(() => {
      this.counted.set(step, this.app.program.changes(step));
      this.tell(step);
      if (step + 1 < this.app.program.steps.length) this.count(step + 1);
      // Counts make names wrap, which moves the step that is shown.
      else if (this.element.scrollTop === this.scrolled) this.reveal();
    });
  }

  /** Write the count of a step where its button is: one that is about to be clicked stays the element that it is. */
  tell(step) {
    const button = this.list.querySelector(`[data-step="${step}"]`);
    if (!button) return;
    button.querySelector(".count").textContent = this.linesOf(step);
    button.classList.toggle("unchanged", this.isUnchanged(step));
    if (this.hidesUnchanged && this.isUnchanged(step)) this.refresh();
  }

  linesOf(step) {
    const count = this.counted.get(step);
    return count ? `${count.toLocaleString("en")} line${count === 1 ? "" : "s"}` : "";
  }

  isUnchanged(step) {
    return step > 0 && this.counted.get(step) === 0;
  }

  refresh() {
    const { steps } = this.app.program;
    const shown = this.app.state.step;
    const items = steps.map((step, at) => {
      if (this.hidesUnchanged && at !== shown && this.isUnchanged(at)) return null;
      return Dom.make("li", {}, this.button(step, at, shown), at === shown ? this.about(step) : null);
    });
    const focused = this.list.contains(document.activeElement);
    this.list.replaceChildren(...items.filter(Boolean));
    const current = this.list.querySelector("[aria-current]");
    if (focused) current.focus();
    if (shown !== this.seen) this.reveal();
    this.seen = shown;
  }

  /** Scroll to the step that is shown. */
  reveal() {
    this.list.querySelector("[aria-current]").parentElement.scrollIntoView({ block: "nearest" });
    this.scrolled = this.element.scrollTop;
  }

  button(step, at, shown) {
    return Dom.make(
      "button",
      {
        type: "button",
        class: `step ${this.isUnchanged(at) ? "unchanged" : ""}`,
        "aria-current": at === shown ? "step" : undefined,
        "data-step": at,
        onclick: () => this.app.go({ step: at }),
      },
      Dom.make("span", { class: "number" }, step.number ? `${step.number}` : ""),
      Dom.make("span", { class: "name" }, step.name),
      Dom.make("span", { class: "count" }, this.linesOf(at)),
    );
  }

  about(step) {
    const { laws } = this.app.program.document;
    const rules = Object.entries(step.rewrites || {}).sort((a, b) => b[1] - a[1]);
    const items = rules.map(([rule, times]) => {
      const law = laws[rule] ? Dom.make("div", {}, laws[rule]) : null;
      return Dom.make("li", {}, Dom.make("span", { class: "rule" }, `${times.toLocaleString("en")} × ${rule}`), law);
    });
    return Dom.make(
      "div",
      { class: "about" },
      step.summary || "",
      step.ms === undefined ? null : Dom.make("div", {}, `${step.ms} ms`),
      step.note ? Dom.make("div", { class: "note" }, step.note) : null,
      items.length ? Dom.make("ul", {}, items) : null,
    );
  }
}

/** What is known of the row that is selected. */
class DetailsPanel {
  constructor(app) {
    this.app = app;
    this.element = document.getElementById("details");
  }

  refresh() {
    const { c, position } = this.app.state;
    const isChosen = c !== undefined && c >= 0;
    const children = !isChosen ? this.overview() : position === Model.HEADER ? this.computation(c) : this.instruction(c, position);
    this.element.replaceChildren(...children.filter(Boolean));
    this.element.scrollTop = 0;
  }

  overview() {
    const { program, state } = this.app;
    const { computations } = program.steps[state.step];
    const count = computations.reduce((sum, c) => sum + program.linesOf(c).length, 0);
    return [
      Dom.make("h2", {}, program.document.title),
      this.facts([["computations", computations.length.toLocaleString("en")], ["instructions", count.toLocaleString("en")]]),
      Dom.make("p", { class: "faint" }, "Select an instruction to see its operands and users; ? lists the keys."),
    ];
  }

  facts(pairs) {
    const known = pairs.filter(([, value]) => value !== "" && value !== undefined && value !== null);
    return Dom.make("dl", {}, known.flatMap(([name, value]) => [Dom.make("dt", {}, name), Dom.make("dd", {}, value)]));
  }

  computation(c) {
    const { program, state } = this.app;
    const caller = program.callers(state.step).get(c);
    const lines = program.linesOf(c);
    return [
      Dom.make("h2", {}, program.computationName(c)),
      this.facts([
        ["computation of", `${lines.length.toLocaleString("en")} instructions`],
        ["root", this.toInstruction(c, program.rootOf(c))],
        ["called by", caller && this.toInstruction(caller[0], caller[1])],
        ["thread", program.strings[program.document.computations[c][2]]],
      ]),
    ];
  }

  toInstruction(c, position) {
    const { program } = this.app;
    const line = program.linesOf(c)[position];
    const text = `${program.field(line, "name")} ${program.field(line, "opcode")}`;
    return Dom.link(text, () => this.app.go({ c, position }), { title: program.field(line, "shape") });
  }

  instruction(c, position) {
    const { program, state } = this.app;
    const line = program.linesOf(c)[position];
    const { lines } = program;
    const costs = this.app.costs;
    const seconds = costs.time ? costs.time.value(line, c, state.step) : 0;
    const callees = program.calleesOf(state.step, line);
    const toHeader = (callee) => Dom.link(program.computationName(callee), () => this.app.go({ c: callee, position: Model.HEADER }));
    return [
      Dom.make("h2", {}, program.field(line, "name")),
      this.facts([
        ["opcode", program.field(line, "opcode")],
        ["shape", program.field(line, "shape")],
        ["computation", toHeader(c)],
        ["source", program.field(line, "source") && Dom.link(program.field(line, "source"), () => this.app.look(`source:${program.field(line, "source")}`))],
        ["op_name", program.field(line, "op_name")],
        ["reads and writes", Model.amount(lines.bytes[line], "B")],
        ["operations", lines.flops[line] ? `${Model.amount(lines.flops[line], "")} flop` : ""],
        ["transcendentals", lines.transcendentals[line] ? Model.amount(lines.transcendentals[line], "") : ""],
        ["time", seconds ? Model.seconds(seconds) : ""],
      ]),
      Dom.make("button", { type: "button", id: "to-graph", onclick: () => this.app.go({ view: "graph" }) }, "Graph around it"),
      ...this.links("operands", program.operandsOf(c, position).map((at) => this.toInstruction(c, at))),
      ...this.links("users", program.usersOf(c, position).map((at) => this.toInstruction(c, at))),
      ...this.links("calls", callees.map(toHeader)),
      ...(program.two ? [] : this.rules(c, line)),
      ...(program.two ? this.counterpart(c, position) : this.links("changed in", this.history(c, line))),
      Dom.make("h3", {}, "text"),
      Dom.make("pre", { tabindex: "0", "aria-label": "The whole instruction" }, program.text(line)),
    ];
  }

  links(title, found) {
    if (!found.length) return [];
    const most = 60;
    const items = found.slice(0, most).map((link) => Dom.make("li", {}, link));
    if (found.length > most) items.push(Dom.make("li", {}, `and ${(found.length - most).toLocaleString("en")} more`));
    return [Dom.make("h3", {}, `${title} (${found.length.toLocaleString("en")})`), Dom.make("ul", { id: title.replace(" ", "-") }, items)];
  }

  /** What corresponds to an instruction in the other of two programs. */
  counterpart(c, position) {
    const { program, state } = this.app;
    const found = program.two.counterpart(state.step, c, position);
    const [own, other] = state.step ? ["B", "A"] : ["A", "B"];
    if (!found || found.c === undefined) return [Dom.make("h3", {}, `only in ${own}`)];
    const line = program.linesOf(found.c)[found.position];
    const text = `${program.field(line, "name")} ${program.field(line, "opcode")}`;
    const go = () => this.app.go({ step: 1 - state.step, c: found.c, position: found.position });
    const about = found.what ? `${found.kind}: ${found.what}` : found.kind;
    return [
      Dom.make("h3", {}, `in ${other}`),
      Dom.make("ul", { id: "counterpart" }, Dom.make("li", {}, Dom.link(text, go)), Dom.make("li", { class: "faint" }, about)),
    ];
  }

  /** The rules that made or changed the line in the step that is shown, and what they say. */
  rules(c, line) {
    const { program, state } = this.app;
    if (!program.mark(state.step, c, line)) return [];
    const step = program.steps[state.step];
    const own = program.lines.name[line];
    const found = program.rulesOf(state.step, program.computationName(c), own);
    const items = found.map(([rule, name]) => {
      const law = program.document.laws[rule];
      const where = name === own ? "" : ` applied to ${program.strings[name]}`;
      return Dom.make("li", {}, `${rule}${where}`, law ? Dom.make("div", { class: "faint" }, law) : null);
    });
    const several = Object.keys(step.rewrites || {}).length > 1 && !step.rules;
    const none = several ? `${step.name}, which does not tell its rules by line` : `${step.name}, without a rule of its own`;
    if (!items.length) items.push(Dom.make("li", { class: "faint" }, none));
    return [Dom.make("h3", {}, "made by"), Dom.make("ul", { id: "made-by" }, items)];
  }

  /** Links to the steps in which an instruction of this name appears, changes or goes. */
  history(c, line) {
    const { program } = this.app;
    const own = [program.computationName(c), program.lines.name[line]];
    return program.history(...own).map(([step, kind]) => {
      const { name, number } = program.steps[step];
      const rules = [...new Set(step ? program.rulesOf(step, ...own).map(([rule]) => rule) : [])];
      const by = rules.length ? ` by ${rules.slice(0, 3).join(", ")}${rules.length > 3 ? ", …" : ""}` : "";
      return Dom.link(`${number ? `${number} ` : ""}${name}: ${kind}${by}`, () => this.app.go({ step, view: step ? "changes" : "program" }));
    });
  }
}
