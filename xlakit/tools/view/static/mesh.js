// The mesh: the devices of the program, with the tiles that they have of a value, or the groups in which they communicate.
"use strict";

const Mesh = (() => {
  /** The devices as rows: the last axis goes to the right, the others downwards; one axis in rows of at most 16. */
  function grid({ axes, devices }) {
    const last = axes[axes.length - 1][1];
    const columns = axes.length > 1 ? last : Math.min(16, last);
    const rows = [];
    for (let at = 0; at < devices.length; at += columns) rows.push(devices.slice(at, at + columns));
    return rows;
  }

  /** The coordinates of each row along all axes but the last, as texts. */
  function labels({ axes }, count) {
    const outer = axes.slice(0, -1);
    return Array.from({ length: count }, (_, row) => {
      let rest = row;
      const texts = [...outer].reverse().map(([name, size]) => {
        const index = rest % size;
        rest = Math.floor(rest / size);
        return `${name} ${index}`;
      });
      return texts.reverse().join(", ");
    });
  }

  /** In how many parts each dimension is, such as "4×1". */
  function partsOf(sharding) {
    return sharding.map((numbers) => (numbers ? Math.max(...numbers) + 1 : 1)).join("×") || "1";
  }

  /** For each device the tile that it has, as a text: `*` for a dimension of which it has all. */
  function tilesOf(sharding, count) {
    return Array.from({ length: count }, (_, device) => `[${sharding.map((numbers) => (numbers ? numbers[device] : "*")).join(", ")}]`);
  }

  /** What devices have in common: for each device the number of its group, -1 without one, and the text in its square. */
  function groupsOf(mesh, name) {
    const count = mesh.devices.length;
    const sent = mesh.collectives[name];
    if (sent) {
      const group = Array(count).fill(-1);
      sent.groups.forEach((devices, number) => devices.forEach((device) => (group[device] = number)));
      return { group, texts: group.map((number) => (number < 0 ? "" : `group ${number}`)), pairs: sent.pairs };
    }
    const [value] = mesh.values[name] || [];
    if (!value) return undefined;
    const texts = tilesOf(mesh.shardings[value[1]], count);
    const numbers = new Map([...new Set(texts)].map((text, number) => [text, number]));
    return { group: texts.map((text) => numbers.get(text)), texts, pairs: [] };
  }

  return { grid, groupsOf, labels, partsOf, tilesOf };
})();

class MeshView {
  constructor(app) {
    this.app = app;
    this.mesh = app.program.document.mesh;
    this.drawing = Dom.make("div", { class: "drawing", tabindex: "0", role: "group", "aria-label": "Mesh" });
    this.note = Dom.make("span", { role: "status" });
    this.element = [Dom.make("div", { class: "legend" }, this.note), this.drawing];
  }

  get chosen() {
    const { program, state } = this.app;
    if (state.c === undefined || state.c < 0 || state.position < 0) return undefined;
    return program.field(program.linesOf(state.c)[state.position], "name");
  }

  refresh() {
    const { mesh } = this;
    const name = this.chosen;
    const axes = mesh.axes.map(([axis, size]) => `${axis} ${size}`).join(" × ");
    const found = Mesh.groupsOf(mesh, name);
    const what = found ? this.about(name) : "choose a value with a sharding, or a collective";
    this.note.textContent = `${mesh.devices.length} devices, ${axes}: ${what}`;
    this.drawing.replaceChildren(this.picture(found), ...this.tables());
  }

  about(name) {
    const sent = this.mesh.collectives[name];
    if (sent) return sent.pairs.length ? `${name} sends along the arrows` : `${name} runs among the devices of each color`;
    const [[shape, number], ...others] = this.mesh.values[name];
    const more = others.length ? `, the first of ${others.length + 1} arrays` : "";
    return `${name}, ${shape}${more}, is in ${Mesh.partsOf(this.mesh.shardings[number])} tiles; devices of one color have the same tile`;
  }

  picture(found) {
    const rows = Mesh.grid(this.mesh);
    const labels = Mesh.labels(this.mesh, rows.length);
    const [side, tall, left, top] = [96, 52, 16 + 7.4 * Math.max(...labels.map((label) => label.length)), 28];
    const width = left + side * rows[0].length + 16;
    const height = top + tall * rows.length + 16;
    const svg = Dom.svg("svg", { width, height, role: "group", "aria-label": "Devices" });
    svg.append(Dom.svg("text", { x: left, y: 16, class: "faint" }, `${this.mesh.axes.at(-1)[0]} →`));
    const centers = new Map();
    rows.forEach((row, down) => {
      svg.append(Dom.svg("text", { x: 8, y: top + tall * down + 28, class: "faint" }, labels[down]));
      row.forEach((device, right) => {
        const [x, y] = [left + side * right, top + tall * down];
        centers.set(device, [x + side / 2, y + tall / 2]);
        svg.append(this.device(device, x, y, side, tall, found));
      });
    });
    if (found?.pairs.length) {
      const arrow = Dom.svg("marker", { id: "sends", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
      arrow.append(Dom.svg("path", { d: "M0 0L8 4L0 8z", fill: "var(--link)" }));
      svg.append(Dom.svg("defs", {}, arrow), ...found.pairs.filter(([a, b]) => a !== b).map((pair) => this.arrow(...pair.map((d) => centers.get(d)))));
    }
    return svg;
  }

  device(device, x, y, side, tall, found) {
    const number = found ? found.group[device] : -1;
    const text = found ? found.texts[device] : "";
    // Hues as far apart as there are groups; the text says the same without color.
    const hue = number < 0 ? "" : `fill: hsl(${(number * 137.5) % 360} 65% 50% / 0.3)`;
    const box = Dom.svg("rect", { class: "device", x: x + 2, y: y + 2, width: side - 4, height: tall - 4, rx: 4, style: hue });
    const group = Dom.svg("g", { role: "img", "aria-label": `device ${device}${text ? `: ${text}` : ""}`, "data-device": device });
    group.append(box, Dom.svg("text", { x: x + 10, y: y + 20 }, `${device}`), Dom.svg("text", { x: x + 10, y: y + 40, class: "faint" }, text));
    return group;
  }

  /** A curve, so that arrows there and back are two. */
  arrow([x, y], [u, v]) {
    const [mx, my] = [(x + u) / 2 + (v - y) / 6, (y + v) / 2 - (u - x) / 6];
    return Dom.svg("path", { class: "sends", d: `M${x} ${y}Q${mx} ${my} ${u} ${v}`, "marker-end": "url(#sends)" });
  }

  /** The rows of both tables that the last steps show, each with the place of its instruction. */
  get places() {
    const { program } = this.app;
    return program.cached("mesh", () => {
      const found = new Map();
      const wanted = (name) => (name in this.mesh.values || name in this.mesh.collectives) && !found.has(name);
      program.steps.forEach((_, step) => {
        for (const c of program.ordered(step)) {
          program.linesOf(c).forEach((line, position) => {
            const name = program.field(line, "name");
            if (wanted(name)) found.set(name, { step, c, position, path: undefined });
          });
        }
      });
      return found;
    });
  }

  tables() {
    const { values, collectives, shardings } = this.mesh;
    const tiles = Object.entries(values).map(([name, [[shape, number]]]) => [name, shape, `${Mesh.partsOf(shardings[number])} tiles`]);
    const sent = Object.entries(collectives).map(([name, { groups, pairs }]) => {
      const place = this.places.get(name);
      const opcode = place ? this.app.program.field(this.app.program.linesOf(place.c)[place.position], "opcode") : "";
      const how = pairs.length ? pairs.map((pair) => pair.join(" → ")) : groups.map((group) => `{${group.join(", ")}}`);
      return [name, opcode, how.length > 8 ? `${how.slice(0, 8).join(", ")} … (${how.length})` : how.join(", ")];
    });
    const made = [];
    if (sent.length) made.push(this.table("Collectives", ["instruction", "opcode", "devices"], sent));
    if (tiles.length) made.push(this.table("Shardings", ["instruction", "shape", "split"], tiles));
    return made;
  }

  table(title, heads, rows) {
    const most = 500;
    const body = rows.slice(0, most).map(([name, ...texts]) => {
      const place = this.places.get(name);
      const shown = place ? Dom.link(name, () => this.app.go({ ...place, view: "mesh" })) : name;
      const current = name === this.chosen ? { "aria-current": "true" } : {};
      return Dom.make("tr", current, Dom.make("th", { scope: "row" }, shown), texts.map((text) => Dom.make("td", {}, text)));
    });
    const cut = rows.length > most ? `, the first ${most} of ${rows.length}` : "";
    const head = Dom.make("thead", {}, Dom.make("tr", {}, heads.map((text) => Dom.make("th", { scope: "col" }, text))));
    return Dom.make("table", { class: "listed" }, Dom.make("caption", {}, `${title}${cut}`), head, Dom.make("tbody", {}, body));
  }
}

if (typeof module !== "undefined") module.exports = Mesh;
