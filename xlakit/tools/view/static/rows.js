// A list of rows of one height, of which only those that are in view are elements.
"use strict";

const Dom = {
  /** An element with attributes; texts among the children become text, never markup. */
  make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    Dom.set(element, attributes);
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  },

  set(element, attributes) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
  },

  svg(tag, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Dom.set(element, attributes);
    element.append(...children);
    return element;
  },

  link(text, onclick, attributes = {}) {
    return Dom.make("button", { type: "button", class: "link", onclick, ...attributes }, text);
  },
};

// Milliseconds without a jump after which the scroll bar counts as released.
const SETTLED = 120;

class RowList {
  /** `render(index, isBrief)` gives the element of a row; a brief one has its text alone, and is made fast. */
  constructor({ label, role, className, render, keydown }) {
    this.height = 20;
    this.count = 0;
    this.first = 0;
    this.isBrief = false;
    this.settling = 0;
    this.render = render;
    this.window = Dom.make("div", { class: "window", role: "presentation" });
    this.space = Dom.make("div", { class: "space", role: "presentation" }, this.window);
    this.element = Dom.make("div", { class: `rows ${className}`, role, "aria-label": label, tabindex: "0" }, this.space);
    this.element.addEventListener("scroll", () => this.schedule(), { passive: true });
    if (keydown) this.element.addEventListener("keydown", keydown);
    this.observer = new ResizeObserver(() => this.refresh());
    this.observer.observe(this.element);
  }

  setCount(count) {
    this.count = count;
    this.space.style.height = `${count * this.height}px`;
    this.refresh();
  }

  schedule() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      // Sideways, and within a row, there is nothing new to see.
      if (this.element.isConnected && this.first !== this.firstInView) this.scrolled();
    });
  }

  get page() {
    return Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
  }

  get firstInView() {
    return Math.max(0, Math.floor(this.element.scrollTop / this.height) - this.margin);
  }

  /** Rows above and below those in view that are made, too. */
  get margin() {
    return this.isBrief ? 0 : 10;
  }

  /** Rows are brief while the scroll bar is dragged, from page to page with each frame; then they are made as a whole. */
  scrolled() {
    const isJump = Math.abs(this.firstInView - this.first) > this.page;
    if (isJump && this.settling) this.isBrief = true;
    if (isJump || this.isBrief) {
      clearTimeout(this.settling);
      this.settling = setTimeout(() => this.settled(), SETTLED);
    }
    this.follow();
  }

  settled() {
    this.settling = 0;
    if (this.isBrief) this.refresh();
  }

  /** Make the rows in view. */
  refresh() {
    this.isBrief = false;
    this.window.replaceChildren();
    this.follow();
  }

  /** Make the rows that have come into view, and drop those that have left it. */
  follow() {
    const { children } = this.window;
    const before = this.first;
    const end = before + children.length;
    const first = (this.first = this.firstInView);
    const last = Math.min(this.count, first + this.page + 2 + 2 * this.margin);
    this.window.style.top = `${first * this.height}px`;
    const made = (from, to) => Array.from({ length: Math.max(0, to - from) }, (_, at) => this.render(from + at, this.isBrief));
    if (last <= before || first >= end) {
      this.window.replaceChildren(...made(first, last));
      return;
    }
    for (let index = before; index < first; index++) children[0].remove();
    for (let index = last; index < end; index++) this.window.lastChild.remove();
    this.window.prepend(...made(first, before));
    this.window.append(...made(end, last));
  }

  /** Scroll as little as it takes to see a row; to the middle where it is far away. */
  show(index) {
    const top = index * this.height;
    const { scrollTop, clientHeight } = this.element;
    if (top >= scrollTop && top + this.height <= scrollTop + clientHeight) return;
    const isNear = Math.abs(top - scrollTop - (top < scrollTop ? 0 : clientHeight)) < 3 * this.height;
    if (!isNear) this.element.scrollTop = top - clientHeight / 2;
    else this.element.scrollTop = top < scrollTop ? top : top + this.height - clientHeight;
  }
}
