// The form that documents have in pages. Nothing here knows of the page.
"use strict";

const Packing = (() => {
  /** A field that is made when it is first asked for. */
  function later(object, field, make) {
    const get = () => {
      const value = make();
      Object.defineProperty(object, field, { value });
      return value;
    };
    Object.defineProperty(object, field, { get, configurable: true, enumerable: true });
  }

  /** The values of numbers; costs may be larger than integers of 32 bits. */
  function column(numbers, values) {
    const found = new Float64Array(numbers.length);
    for (let at = 0; at < numbers.length; at++) found[at] = values[numbers[at]];
    return found;
  }

  /** A document as pages have it (`packed` in page.py) with its table of lines written out. */
  function unpacked(document) {
    const { names, tables, ...lines } = document.lines;
    lines.name = new Int32Array(names.length);
    let name = 0;
    for (let line = 0; line < names.length; line++) lines.name[line] = name += names[line];
    for (const [numbers, table] of tables) {
      for (const [field, values] of Object.entries(table)) later(lines, field, () => column(numbers, values));
    }
    const distances = lines.operands;
    later(lines, "operands", () => {
      const counts = lines.operand_counts;
      const found = new Int32Array(distances.length);
      let at = 0;
      for (let line = 0; line < names.length; line++) {
        for (let k = 0; k < counts[line]; k++, at++) found[at] = lines.name[line] - distances[at];
      }
      return found;
    });
    return { ...document, lines };
  }

  return { unpacked };
})();

if (typeof module !== "undefined") module.exports = Packing;
