// The document as the viewer reads it. Nothing here knows of the page, so that all of it is tested without a browser.
"use strict";

const Model = (() => {
  const HEADER = -1; // The position of a row that is the header of a computation.
  const Two = typeof require === "undefined" ? Matching : require("./matching.js");

  /** A document with what is derived from it; derived tables are made when they are first asked for. */
  class Program {
    constructor(document) {
      this.document = document;
      this.strings = document.strings;
      this.lines = document.lines;
      this.steps = document.steps;
      this.cache = new Map();
    }

    cached(key, make) {
      let found = this.cache.get(key);
      if (found === undefined) this.cache.set(key, (found = make()));
      return found;
    }

    /** Where the operands of each line begin. */
    get starts() {
      return this.cached("starts", () => starts(this.lines.operand_counts));
    }

    /** A text field of a line: name, shape, opcode, rest, source or op_name. */
    field(line, name) {
      return this.strings[this.lines[name][line]];
    }

    /** The numbers of the names of a line's operands. */
    operandNames(line) {
      const start = this.starts[line];
      return this.lines.operands.slice(start, start + this.lines.operand_counts[line]);
    }

    /** The pieces of a line, in order: a kind and a text each. */
    pieces(line) {
      const rest = this.field(line, "rest");
      const found = [["name", this.field(line, "name")], ["", " = "], ["shape", this.field(line, "shape")], ["", " "]];
      found.push(["opcode", this.field(line, "opcode")]);
      if (rest[0] === ")") {
        found.push(["", "("]);
        this.operandNames(line).forEach((name, number) => {
          if (number) found.push(["", ", "]);
          found.push(["operand", this.strings[name]]);
        });
      }
      found.push(["rest", rest]);
      return found;
    }

    text(line) {
      return this.pieces(line).map((piece) => piece[1]).join("");
    }

    isSameText(a, b) {
      if (a === b) return true;
      const fields = ["name", "shape", "opcode", "rest", "operand_counts"];
      if (fields.some((field) => this.lines[field][a] !== this.lines[field][b])) return false;
      const other = this.operandNames(b);
      return this.operandNames(a).every((name, number) => name === other[number]);
    }

    // -- computations -------------------------------------------------------------------------------

    computationName(c) {
      return this.strings[this.document.computations[c][0]];
    }

    rootOf(c) {
      return this.document.computations[c][1];
    }

    linesOf(c) {
      return this.cached(`lines ${c}`, () => expand(this.document.computations[c][3]));
    }

    /** Position by the number of a name. */
    positions(c) {
      return this.cached(`positions ${c}`, () => {
        const found = new Map();
        this.linesOf(c).forEach((line, position) => found.set(this.lines.name[line], position));
        return found;
      });
    }

    positionOf(c, name) {
      return this.linesOf(c).findIndex((line) => this.field(line, "name") === name);
    }

    /** The positions of the operands of an instruction, and of its control predecessors. */
    operandsOf(c, position) {
      const line = this.linesOf(c)[position];
      const known = this.positions(c);
      const names = [...this.operandNames(line), ...(this.lines.predecessors[line] || [])];
      return [...new Set(names.map((name) => known.get(name)).filter((found) => found !== undefined))];
    }

    usersOf(c, position) {
      const users = this.cached(`users ${c}`, () => {
        const found = Array.from({ length: this.linesOf(c).length }, () => []);
        found.forEach((_, user) => this.operandsOf(c, user).forEach((operand) => found[operand].push(user)));
        return found;
      });
      return users[position];
    }

    // -- steps --------------------------------------------------------------------------------------

    /** A computation of a step by its name, or undefined. */
    named(step, name) {
      const names = this.cached(`names ${step}`, () => {
        return new Map(this.steps[step].computations.map((c) => [this.computationName(c), c]));
      });
      return names.get(name);
    }

    calleesOf(step, line) {
      const names = this.lines.calls[line] || [];
      return names.map((name) => this.named(step, this.strings[name])).filter((c) => c !== undefined);
    }

    /** For each computation that another calls: the first caller, as [computation, position, which callee]. */
    callers(step) {
      return this.cached(`callers ${step}`, () => {
        const found = new Map();
        const queue = [this.steps[step].entry];
        for (const c of queue) {
          this.linesOf(c).forEach((line, position) => {
            if (this.lines.calls[line] === undefined) return;
            this.calleesOf(step, line).forEach((callee, number) => {
              if (found.has(callee) || callee === this.steps[step].entry) return;
              found.set(callee, [c, position, number]);
              queue.push(callee);
            });
          });
        }
        return found;
      });
    }

    /** The entry and the computations that are not reached from it. */
    roots(step) {
      const { entry, computations } = this.steps[step];
      return [entry, ...computations.filter((c) => c !== entry && !this.callers(step).has(c))];
    }

    /** Computations in the order in which their rows stand: the entry, then those that are called. */
    ordered(step) {
      const [entry, ...others] = this.roots(step);
      return [...new Set([entry, ...this.callers(step).keys(), ...others])];
    }

    // -- rows ---------------------------------------------------------------------------------------

    /** The path of a computation's header row; the callers above it are first ones. */
    pathOf(step, c) {
      const caller = this.callers(step).get(c);
      return caller === undefined ? `${c}` : `${this.pathOf(step, caller[0])}/${caller[1]}.${caller[2]}`;
    }

    /**
     * The rows that are visible: a header for each computation, a row for each instruction, and below a caller that is
     * open what it calls. `toggled` has the paths that are not as they are at first: headers open, callers closed.
     */
    rows(step, toggled) {
      const rows = [];
      const header = (c, path, depth) => {
        const isOpen = !toggled.has(path);
        rows.push({ c, position: HEADER, depth, path, isOpen, line: -1 });
        if (isOpen) inside(c, path, depth);
      };
      const inside = (c, path, depth) => {
        const lines = this.linesOf(c);
        for (let position = 0; position < lines.length; position++) {
          const line = lines[position];
          const calls = this.lines.calls[line] !== undefined;
          const isOpen = calls && toggled.has(`${path}/${position}`);
          rows.push({ c, position, depth: depth + 1, path, isOpen: calls ? isOpen : undefined, line });
          if (!isOpen) continue;
          this.calleesOf(step, line).forEach((callee, k) => header(callee, `${path}/${position}.${k}`, depth + 2));
        }
      };
      this.roots(step).forEach((c) => header(c, `${c}`, 0));
      return rows;
    }

    /** Change `toggled` so that the row of a position is visible; gives the path of its computation. */
    reveal(step, c, toggled) {
      const path = this.pathOf(step, c);
      const names = path.split("/");
      let above = names[0];
      toggled.delete(above);
      for (const name of names.slice(1)) {
        toggled.add(`${above}/${name.split(".")[0]}`);
        above = `${above}/${name}`;
        toggled.delete(above);
      }
      return path;
    }

    // -- search -------------------------------------------------------------------------------------

    /** All instructions of a step that have every term of a query, as [computation, position]. */
    search(step, query) {
      const terms = parseQuery(query);
      if (!terms.length) return [];
      const tests = terms.map((term) => this.tester(term));
      const found = [];
      for (const c of this.ordered(step)) {
        this.linesOf(c).forEach((line, position) => {
          if (tests.every((test) => test(line))) found.push([c, position]);
        });
      }
      return found;
    }

    tester({ field, text }) {
      // Each text is looked at once, however many lines have it.
      const known = new Int8Array(this.strings.length);
      const has = (number) => {
        if (!known[number]) known[number] = this.strings[number].toLowerCase().includes(text) ? 1 : -1;
        return known[number] === 1;
      };
      const fields = FIELDS[field];
      const lines = this.lines;
      return (line) =>
        fields.some((name) => has(lines[name][line])) || (field === "any" && this.operandNames(line).some(has));
    }

    // -- differences --------------------------------------------------------------------------------

    /** Pairs of computations of two steps: entries, those of one name, and those that only one has (-1). */
    pairs(before, after) {
      return this.cached(`pairs ${before} ${after}`, () => this.pairsOf(before, after));
    }

    pairsOf(before, after) {
      const [a, b] = [this.steps[before], this.steps[after]];
      const taken = new Set([a.entry]);
      const found = b.computations.filter((c) => c !== b.entry).map((c) => {
        let other = this.named(before, this.computationName(c));
        if (other === undefined || other === a.entry) other = -1;
        taken.add(other);
        return [other, c];
      });
      const gone = a.computations.filter((c) => !taken.has(c)).map((c) => [c, -1]);
      return [[a.entry, b.entry], ...found, ...gone];
    }

    /** The rows of two computations side by side; a line is -1 where there is none. */
    diff(a, b) {
      const [left, right] = [a < 0 ? [] : this.linesOf(a), b < 0 ? [] : this.linesOf(b)];
      if (a === b) return Array.from(left, (line) => row(line, line, "same"));
      const known = a < 0 ? new Map() : this.positions(a);
      const partner = Array.from(right, (line) => known.get(this.lines.name[line]) ?? -1);
      return merged(left, right, partner, (one, other) => (this.isSameText(one, other) ? "same" : "changed"));
    }

    /** What differs between two steps: computations side by side, with their rows. */
    comparison(before, after) {
      if (this.two) return this.two.differing();
      const pairs = this.pairs(before, after).filter(([a, b]) => a !== b);
      const found = pairs.map(([a, b]) => ({ a, b, rows: this.diff(a, b) }));
      return found.filter(({ rows }) => rows.some((r) => r.kind !== "same"));
    }

    /** How many lines of a step are not as they were in the step before. */
    changes(step) {
      if (step === 0) return 0;
      const count = (rows) => rows.reduce((sum, r) => sum + (r.kind === "same" ? 0 : 1), 0);
      return this.cached(`changes ${step}`, () => {
        return this.comparison(step - 1, step).reduce((sum, { rows }) => sum + count(rows), 0);
      });
    }

    /** How each line of a computation differs from the step before: "added", "changed", or nothing. */
    mark(step, c, line) {
      const marks = this.cached(`marks ${step} ${c}`, () => {
        if (step === 0 || this.steps[step - 1].computations.includes(c)) return new Map();
        const pair = this.pairs(step - 1, step).find(([, b]) => b === c);
        const before = pair[0] < 0 ? null : this.linesOf(pair[0]);
        const known = before && this.positions(pair[0]);
        const found = new Map();
        for (const each of this.linesOf(c)) {
          const at = known ? known.get(this.lines.name[each]) : undefined;
          if (at === undefined) found.set(each, "added");
          else if (!this.isSameText(before[at], each)) found.set(each, "changed");
        }
        return found;
      });
      return marks.get(line);
    }

    /** The steps in which an instruction appears, changes or goes, by the names of it and its computation. */
    history(computation, name) {
      const found = [];
      let before;
      this.steps.forEach((_, step) => {
        const c = this.named(step, computation);
        const at = c === undefined ? undefined : this.positions(c).get(name);
        const line = at === undefined ? undefined : this.linesOf(c)[at];
        if (line === undefined && before !== undefined) found.push([step, "gone"]);
        else if (line !== undefined && before === undefined) found.push([step, "new"]);
        else if (line !== undefined && !this.isSameText(before, line)) found.push([step, "changed"]);
        before = line;
      });
      return found;
    }

    /**
     * The rules that made or changed an instruction in a step, as [rule, number of the name of what it was applied to]:
     * those of the instruction itself, then those of the operands that it has lost. Of a pass that does not tell them by
     * line it is the pass's only rule, or nothing.
     */
    rulesOf(step, computation, name) {
      const { rules, rewrites } = this.steps[step];
      if (!rules) {
        const applied = Object.keys(rewrites || {});
        return applied.length === 1 ? [[applied[0], name]] : [];
      }
      const [before, after] = [step - 1, step].map((at) => this.named(at, computation));
      const known = rules[this.document.computations[after ?? before]?.[0]] || {};
      const operands = (c) => {
        const at = c === undefined ? undefined : this.positions(c).get(name);
        return at === undefined ? undefined : this.operandNames(this.linesOf(c)[at]);
      };
      const kept = operands(after);
      const lost = kept ? (operands(before) || []).filter((operand) => !kept.includes(operand)) : [];
      const from = (own) => (known[own] || []).map((rule) => [this.strings[rule], own]);
      return [name, ...new Set(lost)].flatMap(from);
    }

    // -- two programs -------------------------------------------------------------------------------

    /** The matched instructions where the steps are two programs, else undefined. */
    get two() {
      return this.document.diff && this.cached("two", () => new Two(this));
    }

    // -- graphs -------------------------------------------------------------------------------------

    /** The instructions around one, at most `limit`, those that are near first: {nodes, edges, isCut}. */
    neighborhood(c, position, up, down, limit) {
      const nodes = new Set([position]);
      let isCut = false;
      const spread = (next, distance) => {
        let edge = [position];
        for (let i = 0; i < distance; i++) {
          const reached = [];
          for (const at of edge) {
            for (const other of next(at)) {
              if (nodes.has(other)) continue;
              if (nodes.size >= limit) isCut = true;
              else {
                nodes.add(other);
                reached.push(other);
              }
            }
          }
          edge = reached;
        }
      };
      spread((at) => this.operandsOf(c, at), up);
      spread((at) => this.usersOf(c, at), down);
      const edges = [];
      for (const at of nodes) {
        for (const operand of this.operandsOf(c, at)) if (nodes.has(operand)) edges.push([operand, at]);
      }
      return { nodes: [...nodes].sort((x, y) => x - y), edges, isCut };
    }
  }

  const FIELDS = {
    any: ["name", "opcode", "shape", "rest", "source", "op_name"],
    name: ["name"],
    op: ["opcode"],
    shape: ["shape"],
    source: ["source", "op_name"],
  };

  /** The terms of a query: words, or field:word with a field of FIELDS. */
  function parseQuery(query) {
    return query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
      const at = word.indexOf(":");
      const field = word.slice(0, at);
      const isField = at > 0 && field !== "any" && Object.hasOwn(FIELDS, field);
      return isField ? { field, text: word.slice(at + 1) } : { field: "any", text: word };
    }).filter((term) => term.text);
  }

  function starts(counts) {
    let sum = 0;
    return counts.map((count) => (sum += count) - count);
  }

  function expand(runs) {
    let size = 0;
    for (let i = 1; i < runs.length; i += 2) size += runs[i];
    const found = new Int32Array(size);
    let at = 0;
    for (let i = 0; i < runs.length; i += 2) {
      for (let k = 0; k < runs[i + 1]; k++) found[at++] = runs[i] + k;
    }
    return found;
  }

  function row(left, right, kind) {
    return { left, right, kind };
  }

  /**
   * Two lists side by side. `partner` has for each line of the right its position on the left, or -1. Lines that stand
   * in the same order on both sides are in one row; others that have a partner are moved.
   */
  function merged(left, right, partner, compare) {
    const anchors = increasing(partner);
    const moved = new Set(partner.filter((position, at) => position >= 0 && !anchors.has(at)));
    const rows = [];
    let [l, r] = [0, 0];
    const leave = (toLeft, toRight) => {
      // What only one side has stands side by side, too.
      while (l < toLeft || r < toRight) {
        const [one, other] = [l < toLeft ? l++ : -1, r < toRight ? r++ : -1];
        const isMoved = (one < 0 || moved.has(one)) && (other < 0 || partner[other] >= 0);
        const kind = isMoved ? "moved" : one < 0 ? "added" : other < 0 ? "removed" : "replaced";
        rows.push(row(one < 0 ? -1 : left[one], other < 0 ? -1 : right[other], kind));
      }
    };
    for (const at of [...anchors].sort((x, y) => x - y)) {
      leave(partner[at], at);
      rows.push(row(left[l], right[r], compare(left[l], right[r])));
      l++;
      r++;
    }
    leave(left.length, right.length);
    return rows;
  }

  /** The indices of a longest increasing subsequence of the numbers that are not negative. */
  function increasing(numbers) {
    const [tails, before] = [[], new Int32Array(numbers.length).fill(-1)];
    numbers.forEach((number, at) => {
      if (number < 0) return;
      let [low, high] = [0, tails.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (numbers[tails[middle]] < number) low = middle + 1;
        else high = middle;
      }
      if (low) before[at] = tails[low - 1];
      tails[low] = at;
    });
    const found = new Set();
    for (let at = tails.length ? tails[tails.length - 1] : -1; at >= 0; at = before[at]) found.add(at);
    return found;
  }

  /** Rows with those that are the same left out, but for some around each difference: {fold} has how many. */
  function folded(rows, context) {
    const shown = new Uint8Array(rows.length);
    rows.forEach((r, at) => {
      if (r.kind === "same") return;
      for (let near = Math.max(0, at - context); near <= Math.min(rows.length - 1, at + context); near++) shown[near] = 1;
    });
    const found = [];
    for (let at = 0; at < rows.length; at++) {
      if (shown[at]) found.push(rows[at]);
      else if (at && !shown[at - 1]) found[found.length - 1].fold++;
      else found.push({ fold: 1, from: at });
    }
    return found;
  }

  /** A number of bytes (unit "B") or of something else as a person reads it. */
  function amount(value, unit) {
    const scale = unit === "B" ? 1024 : 1000;
    const names = unit === "B" ? ["B", "KiB", "MiB", "GiB", "TiB"] : ["", "k", "M", "G", "T"];
    let at = 0;
    while (value >= scale && at < names.length - 1) {
      value /= scale;
      at++;
    }
    const digits = at === 0 || value >= 100 ? 0 : 1;
    return `${value.toFixed(digits)}${unit === "B" || names[at] ? " " : ""}${names[at]}`;
  }

  function seconds(value) {
    if (value >= 1) return `${value.toFixed(2)} s`;
    return value >= 1e-3 ? `${(value * 1e3).toFixed(2)} ms` : `${(value * 1e6).toFixed(1)} us`;
  }

  const parseHash = (hash) => Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));

  function formatHash(state) {
    const entries = Object.entries(state).filter(([, value]) => value !== "" && value !== undefined);
    return `#${new URLSearchParams(entries)}`;
  }

  return { HEADER, Program, amount, expand, folded, formatHash, increasing, merged, parseHash, parseQuery, seconds };
})();

if (typeof module !== "undefined") module.exports = Model;
