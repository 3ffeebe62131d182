// The records of a store as a grid of thumbnails.
import { action, app, count, el, hiddenLayers, knownLayers, on, register, set, toggleLayer } from "./app.js";
import { drawCell, fillCell, LayerCache, makeCell, markCell, Thumbnails } from "./grid_cells.js";
import { GridPicks } from "./grid_picks.js";
import { Rows } from "./grid_rows.js";
import { GridScroll } from "./grid_scroll.js";
import { picks } from "./picks.js";

const SMALLEST = 64, LARGEST = 512, USUAL = 144;
const LAYERS_MS = 150;
const LAYER_KEYS = { b: "boxes", k: "keypoints", s: "masks", t: "tracks", n: "names" };
let grid = null;

/** Buttons that turn layers off and on; redraw() after a layer is new. */
export function layerButtons() {
  const root = el("div", { class: "layers", role: "group", "aria-label": "Drawn over pictures" });
  const redraw = () => {
    const hidden = hiddenLayers();
    const keys = Object.fromEntries(Object.entries(LAYER_KEYS).map(([key, id]) => [id, key]));
    const shown = knownLayers().length || app.session.fields.some(({ kind }) => kind === "label")
      ? [...knownLayers(), { id: "names", name: "names" }] : [];
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    root.replaceChildren(...shown.map(({ id, name }) => el("button", {
      type: "button", "data-id": id, "aria-pressed": String(!hidden.has(id)), onclick: () => toggleLayer(id),
      title: `Show or hide${keys[id] ? ` (${keys[id]})` : ""}`,
    }, name)));
    if (focused) root.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
  };
  redraw();
  return { root, redraw };
}

/** Move the grid to a position of its order, where it is shown. */
export function reveal(position) { grid?.reveal(position); }

class Grid {
  constructor(root) {
    this.rows = new Rows(() => this.rowsCame());
    this.layers = new LayerCache(() => this.layersCame());
    this.layers.version = 0;
    this.thumbnails = new Thumbnails(() => [this.scroll.first, this.scroll.last]);
    this.scroll = new GridScroll({
      make: () => makeCell(this.thumbnails),
      fill: (cell, position) => this.fill(cell, position),
      moved: (isJump) => this.moved(isJump),
      rested: () => this.rested(),
    });
    this.found = el("span", { class: "found" });
    this.slider = el("input", { type: "range", min: SMALLEST, max: LARGEST, step: 16, "aria-label": "Size of thumbnails",
      title: "Size of thumbnails (+ and -)", oninput: () => this.resize(Number(this.slider.value)) });
    this.buttons = layerButtons();
    this.bubble = el("div", { class: "grid-bubble", "aria-hidden": "true", hidden: true });
    this.message = el("div", { class: "empty", hidden: true });
    this.place = el("div", { class: "grid-place" }, this.scroll.box, this.message, this.bubble);
    root.append(el("div", { class: "grid-page" },
      el("div", { class: "grid-bar" }, this.found, this.buttons.root, el("label", { class: "size" }, "Size", this.slider)),
      this.place));
    this.picks = new GridPicks(this.place, this.scroll, this.rows, (position) => this.activate(position));
    this.ends = [on((state, before) => this.changed(state, before)), picks.on(() => this.mark())];
    const { state } = app;
    this.slider.value = this.size;
    this.rows.reset(state.q, state.sort);
    this.arrange();
    const start = Math.max(0, Number.parseInt(state.at ?? "0", 10) || 0);
    this.toStart = start;
    this.goToStart();
    this.mark();
    this.scroll.box.focus({ preventScroll: true });
  }

  get size() {
    const given = Number.parseInt(app.state.size ?? "", 10);
    return Math.min(Math.max(given || (innerWidth < 500 ? 112 : USUAL), SMALLEST), LARGEST);
  }

  close() {
    this.ends.forEach((end) => end());
    this.rows.close();
    this.layers.stop?.abort();
    this.scroll.close();
    clearTimeout(this.later);
  }

  arrange(refill = false) {
    const isNamed = !hiddenLayers().has("names");
    const hasLabels = app.session.fields.some(({ kind }) => kind === "label");
    this.place.classList.toggle("without-names", !isNamed);
    this.place.classList.toggle("without-labels", !hasLabels);
    this.scroll.arrange({ total: this.rows.total ?? 0, wanted: this.size, extra: isNamed ? (hasLabels ? 38 : 20) : 0, refill });
    this.tell();
  }

  changed(state, before) {
    if (state.q !== before.q || state.sort !== before.sort) {
      this.rows.reset(state.q, state.sort);
      this.picks.active = this.picks.anchor = 0;
      this.scroll.top = 0;
      this.toStart = 0;
      this.arrange(true);
    } else if (state.size !== before.size) {
      this.slider.value = this.size;
      this.arrange();
    }
    if (state.hide !== before.hide) {
      this.layers.version++;
      this.buttons.redraw();
      this.arrange();
      for (const cell of this.scroll.cells()) drawCell(cell, this.layers, this.scroll.side);
      this.wantLayers();
    }
  }

  resize(size) { set({ size: Math.min(Math.max(size, SMALLEST), LARGEST) }, { replace: true }); }

  /** Where a link begins, once the number of records is known. */
  goToStart() {
    if (!this.toStart || !this.scroll.line || !this.scroll.total) return;
    this.picks.active = this.picks.anchor = Math.min(this.toStart, this.scroll.total - 1);
    this.scroll.moveTo(Math.floor(this.toStart / this.scroll.columns) * this.scroll.line);
    this.toStart = 0;
  }

  fill(cell, position) {
    const row = position === null ? undefined : this.rows.at(position);
    const { thumbnails, layers, picks: { active } } = this;
    fillCell(cell, position, row, { thumbnails, layers, side: this.scroll.side, active });
    if (position !== null) drawCell(cell, layers, this.scroll.side);
  }

  rowsCame() {
    if (this.rows.total !== this.scroll.total) this.arrange();
    this.goToStart();
    this.scroll.refill();
    this.tell();
    this.wantLayers();
  }

  layersCame() {
    for (const cell of this.scroll.cells()) drawCell(cell, this.layers, this.scroll.side);
    this.buttons.redraw();
  }

  moved(isJump) {
    if (!isJump) {
      this.rows.want(this.scroll.first, this.scroll.last);
      this.wantLayers(LAYERS_MS);
      return;
    }
    this.thumbnails.hold();
    this.bubble.hidden = false;
    this.bubble.textContent = count(this.scroll.first);
  }

  rested() {
    this.thumbnails.release();
    this.bubble.hidden = true;
    if (!this.scroll.total) return;
    this.rows.want(this.scroll.first, this.scroll.last);
    this.wantLayers();
    const at = this.scroll.top > 0 ? this.scroll.first : null;
    if (String(at ?? "") !== (app.state.at ?? "") && app.state.view === "grid" && !this.toStart) set({ at }, { replace: true });
  }

  wantLayers(delay = 30) {
    if (this.later) return;
    this.later = setTimeout(() => {
      this.later = 0;
      const known = knownLayers();
      const hidden = hiddenLayers();
      if (known.length && known.every(({ id }) => hidden.has(id))) return;
      const seen = [];
      for (let position = this.scroll.first; position <= this.scroll.last; position++) {
        const index = this.rows.at(position)?.index;
        if (index !== undefined) seen.push(index);
      }
      this.layers.want(seen);
    }, delay);
  }

  mark() {
    this.place.classList.toggle("has-picks", picks.size > 0);
    for (const cell of this.scroll.cells()) markCell(cell, cell.index, this.picks.active);
    this.scroll.box.setAttribute("aria-activedescendant", `cell-${this.picks.active}`);
  }

  activate() { this.mark(); }

  reveal(position) {
    if (position >= this.scroll.total) return;
    this.picks.active = this.picks.anchor = position;
    this.scroll.reveal(position);
    this.mark();
  }

  /** How many records were found, or why none is shown. */
  tell() {
    const { total, error, isWhole } = this.rows;
    this.found.textContent = total === null ? "Searching…"
      : isWhole ? `${count(total)} ${total === 1 ? "record" : "records"}` : `${count(total)} of ${count(app.session.total)} records`;
    this.message.hidden = !(total === 0 || (error && !this.scroll.total));
    if (this.message.hidden) return;
    const text = error || (isWhole ? "The store has no records." : "No record matches the filter.");
    this.message.replaceChildren(el("span", {}, text));
    if (!isWhole) {
      this.message.append(el("button", { type: "button", onclick: () => set({ q: null, sort: null }) }, "Clear the filter"));
    }
  }
}

function mount(root) {
  grid = new Grid(root);
  return () => { grid.close(); grid = null; };
}

register({ id: "grid", title: "Grid", key: "g", mount });

const isGrid = () => grid !== null && app.state.index === undefined;
const hasFocus = () => isGrid() && (document.activeElement === document.body || document.activeElement.closest(".grid, #page"));

/** An action of the grid; a move is made with its keys while nothing else has the focus. */
function gridAction(id, key, title, run, when = isGrid) {
  action({ id: `grid-${id}`, group: "Grid", key, title, when, run: (event) => run(grid, event) });
}

function moveBy(id, key, title, target) {
  gridAction(id, key, title, (shown, event) => {
    shown.picks.move(target(shown, shown.picks.active), event.shiftKey);
    shown.scroll.box.focus({ preventScroll: true });
  }, hasFocus);
}

moveBy("left", "ArrowLeft", "The record before; with Shift, pick on the way", (_, at) => at - 1);
moveBy("right", "ArrowRight", "The record after", (_, at) => at + 1);
moveBy("up", "ArrowUp", "A row up", (shown, at) => (at < shown.scroll.columns ? at : at - shown.scroll.columns));
moveBy("down", "ArrowDown", "A row down", (shown, at) => at + shown.scroll.columns);
moveBy("page-up", "PageUp", "A screen up", ({ scroll }, at) => at - scroll.turn(-1));
moveBy("page-down", "PageDown", "A screen down", ({ scroll }, at) => at + scroll.turn(1));
moveBy("home", "Home", "The first record", () => 0);
moveBy("end", "End", "The last record", (shown) => shown.scroll.total - 1);
gridAction("open", "Enter", "Open the record", (shown) => shown.picks.open(), hasFocus);
gridAction("pick", " ", "Pick the record, or no longer", (shown) => shown.picks.toggle(), hasFocus);
gridAction("larger", ["+", "="], "Larger thumbnails", (shown) => shown.resize(Math.round(shown.size * 1.25 / 16) * 16));
gridAction("smaller", "-", "Smaller thumbnails", (shown) => shown.resize(Math.floor(shown.size / 1.25 / 16) * 16));

for (const [key, id] of Object.entries(LAYER_KEYS)) {
  action({ id: `layer-${id}`, group: "Drawn over pictures", key, title: `Show or hide ${id}`, run: () => toggleLayer(id) });
}
