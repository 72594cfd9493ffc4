// Two programs whose instructions were matched. Nothing here knows of the page.
"use strict";

const Matching = (() => {
  // The kinds of rows by the numbers that documents have for them.
  const KINDS = ["same", "changed", "moved", "removed", "added"];
  const HEADER = -1;

  const placed = (c, position) => (c < 0 || c === undefined ? { c: undefined, position: undefined } : { c, position });

  return class {
    /** `program` is the Model.Program of a document that has `diff`: step 0 is the first program, step 1 the second. */
    constructor(program) {
      this.counts = program.document.diff.counts;
      this.pairs = program.document.diff.pairs.map((pair) => rowsOf(program, pair));
      this.sides = [0, 1].map((step) => new Map(this.pairs.map((pair) => [[pair.a, pair.b][step], this.side(pair, step)])));
    }

    /** The pairs of computations that differ: {a, b, what, rows}, with -1 for a computation that there is not. */
    differing() {
      return this.pairs.filter(({ what, rows }) => what || rows.some((row) => row.kind !== "same"));
    }

    /** The rows of one computation by the position in it, and its partner. */
    side({ a, b, what, rows }, step) {
      const known = new Map([[HEADER, { kind: "same", what, ...placed(step ? a : b, HEADER) }]]);
      for (const { kind, what: text, at } of rows) {
        const other = at[1 - step];
        if (at[step] >= 0) known.set(at[step], { kind, what: text, ...placed(other < 0 ? -1 : step ? a : b, other) });
      }
      return known;
    }

    /**
     * What corresponds to an instruction in the other program: {kind, what, c, position}, where c and position are
     * undefined if nothing does. A header corresponds to that of the other computation.
     */
    counterpart(step, c, position) {
      return this.sides[step].get(c)?.get(position);
    }

    /** Where a row stands in one of the programs, as {c, position}. */
    place(row, step) {
      const pair = this.pairs.find(({ rows }) => rows.includes(row));
      return placed(step ? pair.b : pair.a, row.at[step]);
    }
  };

  function rowsOf(program, { a, b, what, runs, rows: texts }) {
    const [left, right] = [a, b].map((c) => (c < 0 ? [] : program.linesOf(c)));
    const rows = [];
    for (let from = 0; from < runs.length; from += 4) {
      const [kind, first, second, count] = runs.slice(from, from + 4);
      for (let n = 0; n < count; n++) {
        const at = [first < 0 ? -1 : first + n, second < 0 ? -1 : second + n];
        const lines = { left: at[0] < 0 ? -1 : left[at[0]], right: at[1] < 0 ? -1 : right[at[1]] };
        rows.push({ ...lines, kind: KINDS[kind], at, what: texts[rows.length] || "" });
      }
    }
    return { a, b, what, rows };
  }
})();

if (typeof module !== "undefined") module.exports = Matching;
