// The roofline: operations per byte of each step of a profile against the rate that it achieved, below the machine's roofs.
"use strict";

const Roofline = (() => {
  /**
   * What the axes and the table show of the steps of a report, the most expensive first. `intensity` (operations per
   * byte) and `rate` (operations per nanosecond) are 0 where a step has no operations or moves nothing.
   */
  function points({ steps, roofs }) {
    const each = roofs?.flops_per_transcendental ?? 1;
    const found = steps.map((step) => {
      const operations = step.flops + step.transcendentals * each;
      const isPlaced = operations > 0 && step.bytes > 0;
      return {
        ...step,
        operations,
        intensity: isPlaced ? operations / step.bytes : 0,
        rate: isPlaced ? operations / step.nanoseconds : 0,
        bandwidth: step.bytes / step.nanoseconds,
      };
    });
    return found.sort((a, b) => b.nanoseconds - a.nanoseconds);
  }

  /** The whole decades around positive numbers, as exponents of ten; at least one decade. */
  function decades(numbers) {
    const logs = numbers.filter((number) => number > 0).map(Math.log10);
    const low = Math.floor(logs.reduce((a, b) => Math.min(a, b), Infinity));
    const high = Math.ceil(logs.reduce((a, b) => Math.max(a, b), -Infinity));
    return logs.length ? [low, Math.max(high, low + 1)] : [0, 1];
  }

  /** The roofs from one intensity to another, each a list of corners: a slope for each memory, a level for each type. */
  function roofs({ bytes_per_nanosecond: memories, flops_per_nanosecond: peaks }, low, high) {
    const top = Math.max(...Object.values(peaks));
    const slopes = Object.entries(memories).map(([name, bandwidth]) => {
      const ridge = Math.min(Math.max(top / bandwidth, low), high);
      const at = (x) => [x, Math.min(top, x * bandwidth)];
      return { name: `${name}, ${bandwidth.toPrecision(3)} GB/s`, corners: [at(low), at(ridge)] };
    });
    const levels = Object.entries(peaks).map(([name, peak]) => {
      const ridge = Math.min(Math.max(peak / Math.max(...Object.values(memories)), low), high);
      return { name: `${name}, ${peak.toPrecision(3)} Gflop/s`, corners: [[ridge, peak], [high, peak]], isLevel: true };
    });
    return [...slopes, ...levels];
  }

  return { decades, points, roofs };
})();

class RooflineView {
  constructor(app) {
    this.app = app;
    this.data = app.program.document.profile.roofline;
    this.points = Roofline.points(this.data);
    this.total = this.points.reduce((sum, point) => sum + point.nanoseconds, 0) || 1;
    this.drawing = Dom.make("div", { class: "drawing", tabindex: "0", role: "group", "aria-label": "Roofline" });
    this.note = Dom.make("span", { role: "status" });
    this.element = [Dom.make("div", { class: "legend" }, this.note), this.drawing];
  }

  /** Where the instructions of the steps are in the optimized program, by their names. */
  get places() {
    const { program } = this.app;
    return program.cached("roofline", () => {
      const names = new Set(this.points.map((point) => point.name));
      const found = new Map();
      for (const c of program.ordered(program.steps.length - 1)) {
        program.linesOf(c).forEach((line, position) => {
          const name = program.field(line, "name");
          if (names.has(name) && !found.has(name)) found.set(name, { c, position, path: undefined });
        });
      }
      return found;
    });
  }

  refresh() {
    const most = 500;
    const shown = this.points.slice(0, most);
    const placed = shown.filter((point) => point.rate > 0);
    const cut = this.points.length > most ? `, the ${most} that take the most time of ${this.points.length}` : "";
    const machine = this.data.roofs ? "" : "; the report has no roofs of its machine";
    this.note.textContent = `${placed.length} steps with operations${cut}; larger circles take more of the time${machine}`;
    if (!shown.length) {
      this.drawing.replaceChildren(Dom.make("p", { class: "empty" }, "The report has no step that computes or moves anything."));
      return;
    }
    this.drawing.replaceChildren(...(placed.length ? [this.chart(placed)] : []), this.table(shown));
  }

  chart(placed) {
    const [width, height] = [Math.max(560, this.drawing.clientWidth - 20), Math.max(320, Math.min(560, this.drawing.clientHeight * 0.65))];
    const { roofs } = this.data;
    const [left, right] = Roofline.decades(placed.map((point) => point.intensity));
    const lines = roofs ? Roofline.roofs(roofs, 10 ** left, 10 ** right) : [];
    const [low, high] = Roofline.decades([...placed.map((point) => point.rate), ...lines.flatMap(({ corners }) => corners.map((at) => at[1]))]);
    const x = (value) => 70 + ((width - 90) * (Math.log10(value) - left)) / (right - left);
    const y = (value) => height - 40 - ((height - 56) * (Math.log10(value) - low)) / (high - low);
    const svg = Dom.svg("svg", { width, height, role: "group", "aria-label": "Operations per byte to the right, Gflop/s upwards" });
    for (let exponent = left; exponent <= right; exponent++) {
      const at = x(10 ** exponent);
      svg.append(Dom.svg("path", { class: "grid", d: `M${at} 16V${height - 40}` }));
      svg.append(Dom.svg("text", { class: "faint", x: at, y: height - 24, "text-anchor": "middle" }, this.power(exponent)));
    }
    for (let exponent = low; exponent <= high; exponent++) {
      const at = y(10 ** exponent);
      svg.append(Dom.svg("path", { class: "grid", d: `M70 ${at}H${width - 20}` }));
      svg.append(Dom.svg("text", { class: "faint", x: 64, y: at + 4, "text-anchor": "end" }, this.power(exponent)));
    }
    svg.append(Dom.svg("text", { x: width / 2, y: height - 6, "text-anchor": "middle" }, "operations per byte"));
    svg.append(Dom.svg("text", { x: 76, y: 12 }, "Gflop/s"));
    lines.forEach((line, number) => svg.append(...this.roof(line, number, x, y)));
    // Small circles last, so that none is below a larger one.
    for (const point of placed) svg.append(this.point(point, x, y));
    return svg;
  }

  power(exponent) {
    return exponent >= -3 && exponent <= 4 ? `${Number((10 ** exponent).toPrecision(1))}` : `1e${exponent}`;
  }

  roof({ name, corners, isLevel }, number, x, y) {
    const d = corners.map(([a, b], at) => `${at ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
    const [from, to] = corners;
    const place = isLevel ? { x: x(to[0]) - 4, y: y(to[1]) - 4, "text-anchor": "end" } : this.along(from, to, number, x, y);
    return [Dom.svg("path", { class: "roof", d }), Dom.svg("text", { class: "faint", ...place }, name)];
  }

  /** Where the name of a slope stands: along it, each further on, as those of caches are near each other. */
  along(from, to, number, x, y) {
    const [width, height] = [x(to[0]) - x(from[0]), y(to[1]) - y(from[1])];
    const part = Math.min(0.05 + 0.2 * number, 0.65);
    const at = [x(from[0]) + part * width, y(from[1]) + part * height].map((value) => value.toFixed(1));
    const angle = ((Math.atan2(height, width) * 180) / Math.PI).toFixed(1);
    // The first is the fastest, with nothing above it.
    return { transform: `translate(${at.join(" ")}) rotate(${angle})`, dy: number ? 13 : -5 };
  }

  point(point, x, y) {
    const text = this.textOf(point);
    const go = () => this.go(point);
    const circle = Dom.svg("circle", {
      class: `point ${this.isChosen(point) ? "selected" : ""}`,
      cx: x(point.intensity).toFixed(1),
      cy: y(point.rate).toFixed(1),
      r: (4 + 12 * Math.sqrt(point.nanoseconds / this.total)).toFixed(1),
      "aria-label": text,
      ...(this.places.has(point.name) ? { tabindex: "0", role: "button", onclick: go, onkeydown: (event) => event.key === "Enter" && go() } : { role: "img" }),
    });
    circle.append(Dom.svg("title", {}, text));
    return circle;
  }

  isChosen({ name }) {
    const { program, state } = this.app;
    return state.c >= 0 && state.position >= 0 && program.field(program.linesOf(state.c)[state.position], "name") === name;
  }

  /** Show the instruction in the optimized program, of which the report is. */
  go(point) {
    this.app.go({ ...this.places.get(point.name), step: this.app.program.steps.length - 1, view: "program" });
  }

  textOf(point) {
    const [place, rate] = [point.intensity.toPrecision(3), point.rate.toPrecision(3)];
    const roof = point.roofline === null ? "" : `, ${(100 * point.roofline).toFixed(0)}% of the roof`;
    return `${point.name}: ${place} operations per byte, ${rate} Gflop/s${roof}, ${Model.seconds(point.nanoseconds * 1e-9)}`;
  }

  table(shown) {
    const cell = (text) => Dom.make("td", {}, text);
    const number = (value) => (value ? value.toPrecision(3) : "–");
    const rows = shown.map((point) => {
      const name = this.places.has(point.name) ? Dom.link(point.name, () => this.go(point)) : point.name;
      const roof = point.roofline === null ? "–" : `${(100 * point.roofline).toFixed(0)}% (${point.bound})`;
      const numbers = [number(point.intensity), number(point.rate), number(point.bandwidth), roof];
      const time = `${Model.seconds(point.nanoseconds * 1e-9)} (${((100 * point.nanoseconds) / this.total).toFixed(1)}%)`;
      return Dom.make("tr", {}, Dom.make("th", { scope: "row" }, name), cell(point.opcode), numbers.map(cell), cell(time));
    });
    const titles = ["instruction", "opcode", "operations per byte", "Gflop/s", "GB/s", "of the roof", "time of all runs"];
    const head = Dom.make("thead", {}, Dom.make("tr", {}, titles.map((title) => Dom.make("th", { scope: "col" }, title))));
    const caption = Dom.make("caption", {}, "Steps of the profile, the most expensive first");
    return Dom.make("table", { id: "roofline" }, caption, head, Dom.make("tbody", {}, rows));
  }
}

if (typeof module !== "undefined") module.exports = Roofline;
