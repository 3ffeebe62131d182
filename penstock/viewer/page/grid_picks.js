// Picks in the grid: by a click on the mark, with Ctrl or Shift held, by a frame that is drawn, and by keys.
import { count, el, say, set } from "./app.js";
import { picks } from "./picks.js";

const MOST = 200_000, DRAG = 6, EDGE = 40;

export class GridPicks {
  constructor(place, scroll, rows, activate) {
    Object.assign(this, { place, scroll, rows, activate, active: 0, anchor: 0 });
    const { box } = scroll;
    box.addEventListener("pointerdown", (event) => this.#down(event));
    box.addEventListener("click", (event) => this.#click(event));
    box.addEventListener("dblclick", (event) => { if (this.#cellOf(event)) this.open(); });
  }

  open(position = this.active) {
    const index = this.rows.index(position);
    if (index !== undefined) set({ index });
  }

  toggle() {
    const index = this.rows.index(this.active);
    if (index === undefined) return;
    picks.toggle(index);
    this.anchor = this.active;
    say(`${picks.has(index) ? "Picked" : "Not picked"}; ${count(picks.size)} in all.`);
  }

  /** Pick from where the last pick was to a position. */
  async extend(position) {
    const [first, last] = [Math.min(this.anchor, position), Math.max(this.anchor, position)];
    if (last - first >= MOST) {
      say(`At most ${count(MOST)} records are picked by a range; a filter picks more.`, true);
      return;
    }
    picks.set(await this.rows.indices(first, last), true);
    say(`${count(picks.size)} picked.`);
  }

  move(position, isExtended = false) {
    const next = Math.min(Math.max(position, 0), this.scroll.total - 1);
    if (next < 0) return;
    this.active = next;
    if (!isExtended) this.anchor = next;
    this.scroll.reveal(next);
    this.activate(next);
    if (isExtended) this.extend(next);
  }

  #cellOf(event) {
    const cell = event.target.closest?.(".grid-cell:not(.outside)");
    return cell && cell.position !== null ? cell : null;
  }

  #click(event) {
    const cell = this.#cellOf(event);
    if (!cell || this.isDragged) return;
    const isMark = Boolean(event.target.closest(".pick"));
    if (event.shiftKey) {
      this.active = cell.position;
      this.activate(cell.position);
      this.extend(cell.position);
      return;
    }
    this.move(cell.position);
    if (isMark || event.ctrlKey || event.metaKey) this.toggle();
    else if (event.pointerType === "touch") this.open();
  }

  /** A frame around records: those that it touches are picked; with Alt they are no longer picked. */
  #down(event) {
    this.isDragged = false;
    if (event.button !== 0 || event.pointerType === "touch" || event.offsetX > this.scroll.box.clientWidth) return;
    const { box } = this.scroll;
    const start = { x: event.clientX, y: event.clientY, top: this.scroll.top };
    let frame = null, now = event, timer = 0;
    const bounds = box.getBoundingClientRect();
    const draw = () => {
      const y = start.y + start.top - this.scroll.top;
      Object.assign(frame.style, {
        left: `${Math.min(start.x, now.clientX) - bounds.left}px`, width: `${Math.abs(now.clientX - start.x)}px`,
        top: `${Math.min(y, now.clientY) - bounds.top}px`, height: `${Math.abs(now.clientY - y)}px`,
      });
      const push = now.clientY < bounds.top + EDGE ? -1 : now.clientY > bounds.bottom - EDGE ? 1 : 0;
      if (push) box.scrollTop += push * 12;
      timer = requestAnimationFrame(draw);
    };
    const drag = (moved) => {
      now = moved;
      if (frame || Math.hypot(now.clientX - start.x, now.clientY - start.y) < DRAG) return;
      this.isDragged = true;
      frame = el("div", { class: "grid-frame" });
      this.place.append(frame);
      box.setPointerCapture(event.pointerId);
      draw();
    };
    const end = (ended) => {
      box.removeEventListener("pointermove", drag);
      cancelAnimationFrame(timer);
      frame?.remove();
      if (!frame || ended.type === "pointercancel") return;
      const one = this.scroll.find(start.x, start.y + start.top - this.scroll.top);
      const other = this.scroll.find(ended.clientX, ended.clientY);
      this.#pickFrame(one, other, !ended.altKey);
    };
    box.addEventListener("pointermove", drag);
    for (const name of ["pointerup", "pointercancel"]) box.addEventListener(name, end, { once: true });
  }

  async #pickFrame(one, other, isOn) {
    const { columns, total } = this.scroll;
    const [top, bottom] = [Math.min(one.row, other.row), Math.max(one.row, other.row)];
    const [left, right] = [Math.min(one.column, other.column), Math.max(one.column, other.column)];
    if (!total || (bottom - top + 1) * columns > MOST) return;
    const first = top * columns;
    const known = await this.rows.indices(first, Math.min((bottom + 1) * columns, total) - 1);
    picks.set(known.filter((_, at) => at % columns >= left && at % columns <= right), isOn);
    say(`${count(picks.size)} picked.`);
  }
}
