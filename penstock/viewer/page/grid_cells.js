// What a cell of the grid shows: a thumbnail, its annotations, its key and its class.
import { api, app, classColor, count, el, explain, hiddenLayers, noteLayers, plain, sharpen } from "./app.js";
import { drawLayers } from "./overlay.js";
import { picks } from "./picks.js";

const SIDES = [64, 96, 128, 192, 256, 384, 512, 768, 1024];
const AT_ONCE = 8, LAYERS_AT_ONCE = 24, LAYERS_KEPT = 600;

/** Pictures in the order of the screen, some at once; one that is scrolled past is given up. */
export class Thumbnails {
  #waiting = new Set();
  #loading = new Set();

  /** visible(): [first, last] positions that are seen. */
  constructor(visible) { this.visible = visible; this.isHeld = false; }

  want(cell, url) {
    this.drop(cell);
    cell.parts.url = url;
    this.#waiting.add(cell);
    this.#schedule();
  }

  drop(cell) {
    this.#waiting.delete(cell);
    this.#loading.delete(cell);
    const { img } = cell.parts;
    cell.parts.url = "";
    if (img.hasAttribute("src")) img.removeAttribute("src");
    cell.classList.remove("ready", "failed");
  }

  /** While the scroll bar is dragged nothing new is asked. */
  hold() { this.isHeld = true; }

  release() { this.isHeld = false; this.#schedule(); }

  #schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => { this.isScheduled = false; this.#next(); });
  }

  #next() {
    if (!this.#loading.size && !this.#waiting.size) app.drawn();
    if (this.isHeld || this.#loading.size >= AT_ONCE || !this.#waiting.size) return;
    const [first, last] = this.visible();
    const rank = ({ position: at }) => (at < first ? first - at + 1e9 : at > last ? at + 1e9 : at);
    const order = [...this.#waiting].sort((one, other) => rank(one) - rank(other));
    for (const cell of order.slice(0, AT_ONCE - this.#loading.size)) {
      this.#waiting.delete(cell);
      this.#loading.add(cell);
      cell.parts.img.src = cell.parts.url;
    }
  }

  ended(cell, isThere) {
    if (!this.#loading.delete(cell)) return;
    cell.classList.toggle("ready", isThere);
    sharpen(cell.parts.img);
    if (!isThere) this.#explain(cell);
    this.#schedule();
  }

  async #explain(cell) {
    const { url } = cell.parts;
    const text = await explain(url);
    if (cell.parts.url !== url) return;
    cell.classList.add("failed");
    cell.parts.note.textContent = cell.parts.note.title = text;
  }
}

/** Annotations of the records that are seen, kept for some hundred records. */
export class LayerCache {
  #kept = new Map();

  /** come(indices): these are here now. */
  constructor(come) { this.come = come; }

  at(index) { return this.#kept.get(index); }

  async want(indices) {
    this.stop?.abort();
    const { signal } = this.stop = new AbortController();
    const missing = indices.filter((index) => !this.#kept.has(index));
    for (let at = 0; at < missing.length; at += LAYERS_AT_ONCE) {
      const part = missing.slice(at, at + LAYERS_AT_ONCE);
      let found;
      try {
        found = await api("layers", { indices: part.join(",") }, { signal, quiet: true });
      } catch { return; }
      for (const index of part) {
        this.#kept.set(index, found[index]);
        noteLayers(found[index]?.layers ?? []);
        if (this.#kept.size > LAYERS_KEPT) this.#kept.delete(this.#kept.keys().next().value);
      }
      this.come();
    }
  }
}

export function makeCell(thumbnails) {
  const img = el("img", { alt: "", draggable: "false", decoding: "async" });
  const svg = el("svg", { class: "overlay", "aria-hidden": "true" });
  const note = el("span", { class: "note" }), value = el("bdi", { class: "value", hidden: true });
  const pick = el("span", { class: "pick", "aria-hidden": "true", title: "Pick (space)" }, "✓");
  const key = el("bdi"), dot = el("span", { class: "swatch" }), name = el("bdi");
  const label = el("div", { class: "label" }, dot, name);
  const cell = el("div", { class: "grid-cell", role: "gridcell" },
    el("div", { class: "shot" }, img, note, svg, pick, value),
    el("div", { class: "caption" }, label, el("div", { class: "key" }, key)));
  cell.parts = { img, svg, note, value, key, dot, name, label, url: "" };
  img.addEventListener("load", () => thumbnails.ended(cell, true));
  img.addEventListener("error", () => thumbnails.ended(cell, false));
  return cell;
}

/** The end of a key, which tells it from its neighbours', as far as a cell is wide. */
function shortenKey(key, side) {
  const name = key.slice(key.lastIndexOf("/", key.length - 2) + 1);
  const most = Math.max(8, Math.floor(side / 7.4));
  return name.length > most ? `…${name.slice(1 - most)}` : name;
}

/** Show the record of a position; row undefined: it is not known yet. */
export function fillCell(cell, position, row, { thumbnails, layers, side, active }) {
  cell.position = position;
  cell.classList.toggle("outside", position === null);
  if (position === null) {
    cell.removeAttribute("id");
    cell.index = undefined;
    thumbnails.drop(cell);
    return;
  }
  cell.id = `cell-${position}`;
  markCell(cell, row?.index, active);
  const pixels = side * (window.devicePixelRatio || 1);
  const asked = SIDES.find((each) => each >= pixels) ?? SIDES.at(-1);
  const { parts } = cell;
  if (cell.side !== side) sharpen(parts.img);
  cell.side = side;
  if (row && cell.index === row.index && cell.asked === asked && cell.row === row) return;
  const url = row && app.session.image ? `api/thumb/${row.index}?side=${asked}` : "";
  const isNew = cell.index !== row?.index || parts.url !== url;
  Object.assign(cell, { index: row?.index, asked, row });
  const shown = plain(row?.key);
  parts.key.textContent = shortenKey(shown, side);
  parts.key.title = shown.slice(0, 2000);
  parts.label.style.visibility = row?.label === undefined ? "hidden" : "";
  if (row?.label !== undefined) {
    parts.dot.style.background = classColor(row.label);
    parts.name.textContent = plain(row.name).slice(0, 200);
  }
  const values = plain(row?.values?.join(", ")).slice(0, 200);
  parts.value.hidden = !values;
  parts.value.textContent = parts.value.title = values;
  cell.classList.toggle("grouped", row?.group !== undefined);
  if (row?.group !== undefined) cell.style.setProperty("--group", classColor(row.group));
  const words = [shown.slice(0, 200), plain(row?.name).slice(0, 200), values].filter(Boolean).join(", ");
  cell.setAttribute("aria-label", words || `record ${count(position)}`);
  if (isNew && url) thumbnails.want(cell, url);
  else if (isNew) thumbnails.drop(cell);
  if (!cell.classList.contains("failed")) parts.note.textContent = plain(row?.problem) || shown.slice(0, 120);
  if (isNew) drawCell(cell, layers, side);
}

export function markCell(cell, index, active) {
  cell.setAttribute("aria-selected", String(index !== undefined && picks.has(index)));
  cell.classList.toggle("active", cell.position === active);
}

export function drawCell(cell, layers, side) {
  const shown = cell.index === undefined ? undefined : layers.at(cell.index);
  const { svg } = cell.parts;
  if (svg.shown === shown && svg.hide === (layers.version ?? 0)) return;
  svg.shown = shown;
  svg.hide = layers.version ?? 0;
  const hidden = hiddenLayers();
  const isFew = (shown?.layers ?? []).reduce((sum, { items }) => sum + items.length, 0) <= 6;
  const scale = shown?.width ? Math.max(shown.width, shown.height) / side : 1;
  drawLayers(svg, shown, { scale, hidden, names: side >= 150 && isFew && !hidden.has("names") });
}
