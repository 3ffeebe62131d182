// Rows of cells that scroll over any number of records, with as many elements as are seen.
//
// A browser draws nothing below some ten million pixels. The scrolled element is never taller than TALLEST; where the
// rows need more, a place of the scroll bar stands for a top of the rows:
//
//   place  0 ... ENDS ........................ room - ENDS ... room      pixels of the element
//   top    0 ... ENDS ........ linear ........ most - ENDS ... most      pixels of all rows
//
// A small step of the scroll bar moves the rows by the same step, and the browser scrolls them; when it rests, the
// place is set to what stands for the top. A long step (the bar is dragged, or clicked) goes to the top of its place.
import { el } from "./app.js";

const TALLEST = 8_000_000, ENDS = 30_000, REST_MS = 120;

export class GridScroll {
  /**
   * make() gives a cell; fill(cell, position) shows a record in it, position null: none.
   * rested(): the rows stand still. moved(isJump): they were drawn at another top.
   */
  constructor({ make, fill, rested, moved }) {
    Object.assign(this, { make, fill, rested, moved, total: 0, columns: 1, height: 0, top: 0, place: 0, wanted: 160 });
    this.extra = 0;
    this.spacer = el("div", { class: "grid-spacer", role: "presentation" });
    this.box = el("div", { class: "grid", role: "grid", tabindex: 0, "aria-label": "Records",
      "aria-multiselectable": "true" }, this.spacer);
    this.lines = new Map();
    this.box.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.observer = new ResizeObserver(() => this.arrange());
    this.observer.observe(this.box);
  }

  close() {
    this.observer.disconnect();
    clearTimeout(this.timer);
  }

  /** Set the number of records and the size of cells; the first record that is seen stays where it is. */
  arrange({ total = this.total, wanted = this.wanted, extra = this.extra, refill = false } = {}) {
    const anchor = this.first;
    const width = this.box.clientWidth;
    this.height = this.box.clientHeight;
    if (!width) return;
    const style = getComputedStyle(this.box);
    const margin = parseFloat(style.getPropertyValue("--margin")) || 16, gap = 8;
    const room = width - 2 * margin + gap;
    Object.assign(this, { total, wanted, extra, gap, margin });
    const columns = Math.max(1, Math.round(room / (wanted + gap)));
    this.side = Math.floor(room / columns) - gap;
    const line = Math.ceil(room / columns - gap + extra + gap);
    const isSame = columns === this.columns && line === this.line;
    this.columns = columns;
    this.line = line;
    this.rows = Math.ceil(total / columns);
    this.all = this.rows * line + 2 * gap;
    this.most = Math.max(0, this.all - this.height);
    const tall = Math.min(this.all, TALLEST);
    this.spacer.style.height = `${tall}px`;
    this.room = Math.max(0, tall - this.height);
    this.box.setAttribute("aria-rowcount", this.rows);
    this.box.setAttribute("aria-colcount", columns);
    if (!isSame || refill) {
      for (const each of this.lines.values()) each.remove();
      this.lines.clear();
    }
    this.moveTo(isSame || !anchor ? this.top : Math.floor(anchor / columns) * line);
  }

  /** The first record that is seen, and the last. */
  get first() { return this.line ? Math.max(0, Math.floor((this.top - this.gap + this.line / 2) / this.line)) * this.columns : 0; }
  get last() { return Math.min(this.total, Math.ceil((this.top + this.height) / this.line) * this.columns) - 1; }

  /** Scroll by whole rows of one screen, up (-1) or down (1); gives the number of records. */
  turn(direction) {
    const rows = Math.max(1, Math.floor(this.height / this.line));
    this.moveTo(this.top + direction * rows * this.line);
    return rows * this.columns;
  }

  moveTo(top) {
    this.top = Math.min(Math.max(top, 0), this.most);
    this.place = Math.round(this.#toPlace(this.top));
    this.box.scrollTop = this.place;
    this.draw();
    this.#rest();
  }

  /** Scroll as far as is needed for a record to be seen. */
  reveal(position) {
    const start = Math.floor(position / this.columns) * this.line;
    if (start < this.top) this.moveTo(start);
    else if (start + this.line + this.gap > this.top + this.height) this.moveTo(start + this.line + 2 * this.gap - this.height);
  }

  cell(position) {
    return this.lines.get(Math.floor(position / this.columns))?.children[position % this.columns];
  }

  *cells() { for (const line of this.lines.values()) yield* line.children; }

  /** Show each record anew, after what is known of them has changed. */
  refill() { for (const [row, line] of this.lines) this.#fillLine(line, row); }

  /** The record at a point of the window, or at the nearest edge: {row, column}, counted from all rows. */
  find(x, y) {
    const box = this.box.getBoundingClientRect();
    const row = Math.floor((y - box.top + this.top - this.gap) / this.line);
    const column = Math.floor((x - box.left - this.margin) / (this.side + this.gap));
    return { row: Math.min(Math.max(row, 0), this.rows - 1), column: Math.min(Math.max(column, 0), this.columns - 1) };
  }

  draw() {
    if (!this.line) return;
    const from = Math.max(0, Math.floor((this.top - this.gap) / this.line) - 1);
    const to = Math.min(this.rows - 1, Math.floor((this.top + this.height) / this.line) + 1);
    const spare = [];
    for (const [row, line] of this.lines) {
      if (row >= from && row <= to) continue;
      this.lines.delete(row);
      spare.push(line);
    }
    const shift = this.place - this.top + this.gap;
    for (let row = from; row <= to; row++) {
      let line = this.lines.get(row);
      if (!line) {
        line = spare.pop() ?? this.#makeLine();
        this.lines.set(row, line);
        this.#fillLine(line, row);
      }
      line.style.transform = `translateY(${row * this.line + shift}px)`;
    }
    for (const line of spare) {
      for (const cell of line.children) this.fill(cell, null);
      line.remove();
    }
  }

  #makeLine() {
    const line = el("div", { class: "grid-row", role: "row" }, Array.from({ length: this.columns }, this.make));
    line.style.gridTemplateColumns = `repeat(${this.columns}, minmax(0, 1fr))`;
    this.box.append(line);
    return line;
  }

  #fillLine(line, row) {
    line.setAttribute("aria-rowindex", row + 1);
    let column = 0;
    for (const cell of line.children) {
      const position = row * this.columns + column++;
      cell.setAttribute("aria-colindex", column);
      this.fill(cell, position < this.total ? position : null);
    }
  }

  #scrolled() {
    const place = this.box.scrollTop;
    const step = place - this.place;
    if (Math.abs(step) < 1) return;
    this.place = place;
    const isJump = Math.abs(step) > 2 * this.height;
    if (place <= 0) this.top = 0;
    else if (place >= this.room - 1) this.top = this.most;
    else this.top = isJump ? this.#toTop(place) : Math.min(Math.max(this.top + step, 0), this.most);
    this.moved(isJump);
    this.draw();
    this.#rest();
  }

  #rest() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const place = Math.round(this.#toPlace(this.top));
      if (Math.abs(place - this.place) >= 1) {
        this.place = place;
        this.box.scrollTop = place;
        this.draw();
      }
      this.rested();
    }, REST_MS);
  }

  #toTop(place) {
    if (this.all <= TALLEST) return place;
    if (place <= ENDS) return place;
    if (place >= this.room - ENDS) return this.most - (this.room - place);
    return ENDS + (place - ENDS) * (this.most - 2 * ENDS) / (this.room - 2 * ENDS);
  }

  #toPlace(top) {
    if (this.all <= TALLEST) return top;
    if (top <= ENDS) return top;
    if (top >= this.most - ENDS) return this.room - (this.most - top);
    return ENDS + (top - ENDS) * (this.room - 2 * ENDS) / (this.most - 2 * ENDS);
  }
}
