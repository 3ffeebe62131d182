// A picture at any zoom: the whole of it, and over that the part that is seen at the resolution of the screen.
import { api, el, explain, hiddenLayers, noteLayers } from "./app.js";
import { drawLayers, trace } from "./overlay.js";
import { areaOf } from "./record_objects.js";

const LARGEST_ZOOM = 64, REST_MS = 90, WHOLE = 2048, SHARP = 2;

export class RecordPicture {
  /** told({zoom, x, y, values}): what the pointer is on; pointed(item): on which object; noted(): layers came. */
  constructor({ told, noted, pointed }) {
    Object.assign(this, { told, noted, pointed, marked: null, zoom: 1, x: 0, y: 0, width: 0, height: 0, window: {}, isFit: true });
    this.whole = el("img", { alt: "", draggable: "false" });
    this.part = el("img", { alt: "", draggable: "false", class: "part" });
    this.svg = el("svg", { class: "overlay", "aria-hidden": "true" });
    this.note = el("p", { class: "note", role: "status" });
    this.root = el("div", { class: "stage", role: "img", "aria-label": "Picture" },
      this.whole, this.part, this.svg, this.note);
    this.pointers = new Map();
    this.root.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.root.addEventListener("pointerdown", (event) => this.#down(event));
    this.root.addEventListener("pointermove", (event) => this.#move(event));
    const end = (event) => this.pointers.delete(event.pointerId);
    for (const name of ["pointerup", "pointercancel"]) this.root.addEventListener(name, end);
    this.root.addEventListener("dblclick", () => (this.isFit ? this.actual() : this.fit()));
    this.whole.addEventListener("load", () => this.#came());
    this.whole.addEventListener("error", () => this.#explain());
    this.root.addEventListener("pointerleave", () => {
      this.pointer = undefined;
      this.#tellPixel();
      this.#point(null);
    });
    this.part.addEventListener("load", () => {
      this.part.hidden = false;
      this.values = undefined;
      this.#tellPixel();
    });
    this.observer = new ResizeObserver(() => (this.isFit ? this.fit() : this.draw()));
    this.observer.observe(this.root);
  }

  close() {
    this.observer.disconnect();
    this.stop?.abort();
    clearTimeout(this.timer);
  }

  /** Show the picture of a record. */
  async show(index) {
    this.stop?.abort();
    this.stop = new AbortController();
    const { signal } = this.stop;
    Object.assign(this, { index, layers: undefined, marked: null, region: null, width: 0, height: 0, isFit: true, window: {} });
    this.part.hidden = true;
    this.part.removeAttribute("src");
    this.svg.replaceChildren();
    this.note.textContent = "";
    this.#tellPixel();
    this.whole.hidden = true;
    this.whole.src = this.#url({ side: WHOLE });
    try {
      const found = (await api("layers", { indices: index }, { signal, quiet: true }))[index];
      if (!found?.layers) return;
      this.layers = found;
      noteLayers(found.layers);
      this.#size(found);
      this.noted();
      this.draw();
    } catch { /* the picture says what is wrong */ }
  }

  /** Values that become black and white, and the channel: {low, high, channel}. */
  setWindow(window) {
    this.window = window;
    this.whole.src = this.#url({ side: WHOLE });
    this.#askPart();
  }

  fit() {
    this.isFit = true;
    const { clientWidth, clientHeight } = this.root;
    if (!this.width || !clientWidth) return;
    const ratio = devicePixelRatio || 1;
    const most = Math.min(clientWidth / this.width, clientHeight / this.height, LARGEST_ZOOM) * ratio;
    this.zoom = (most < SHARP ? most : Math.floor(most)) / ratio;
    this.x = Math.round((clientWidth - this.width * this.zoom) / 2);
    this.y = Math.round((clientHeight - this.height * this.zoom) / 2);
    this.draw();
  }

  actual() { this.zoomTo(1 / (devicePixelRatio || 1)); }

  zoomBy(factor) { this.zoomTo(this.zoom * factor); }

  /** Zoom about a point of the stage, by default its middle. */
  zoomTo(zoom, x = this.root.clientWidth / 2, y = this.root.clientHeight / 2) {
    const least = Math.min(this.root.clientWidth / this.width, this.root.clientHeight / this.height, 1) / 4;
    const next = Math.min(Math.max(zoom, least), LARGEST_ZOOM);
    this.x = x - (x - this.x) * next / this.zoom;
    this.y = y - (y - this.y) * next / this.zoom;
    this.zoom = next;
    this.isFit = false;
    this.draw();
  }

  pan(x, y) {
    this.x += x;
    this.y += y;
    this.isFit = false;
    this.draw();
  }

  draw() {
    if (!this.width) return;
    const { clientWidth, clientHeight } = this.root;
    // At least a part of the picture stays in sight.
    this.x = Math.min(Math.max(this.x, 40 - this.width * this.zoom), clientWidth - 40);
    this.y = Math.min(Math.max(this.y, 40 - this.height * this.zoom), clientHeight - 40);
    this.#put(this.whole, 0, 0, this.width, this.height);
    if (this.region) this.#put(this.part, ...this.region);
    this.root.classList.toggle("sharp", this.zoom * (devicePixelRatio || 1) >= SHARP);
    const seen = [-this.x, -this.y, clientWidth, clientHeight];
    this.svg.setAttribute("viewBox", seen.map((each) => each / this.zoom).join(" "));
    drawLayers(this.svg, this.layers, {
      scale: 1 / this.zoom, hidden: hiddenLayers(), names: !hiddenLayers().has("names"), fit: false,
    });
    this.#drawMark();
    this.#tellPixel();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#askPart(), REST_MS);
  }

  #put(img, x0, y0, x1, y1) {
    Object.assign(img.style, {
      left: `${this.x + x0 * this.zoom}px`, top: `${this.y + y0 * this.zoom}px`,
      width: `${(x1 - x0) * this.zoom}px`, height: `${(y1 - y0) * this.zoom}px`,
    });
  }

  #url(query) {
    const given = Object.entries({ ...query, ...this.window }).filter(([, value]) => value !== undefined);
    return `api/picture/${this.index}?${new URLSearchParams(given)}`;
  }

  /** Ask for the part that is seen, where the whole picture is coarser than the screen. */
  #askPart() {
    if (!this.width || this.whole.hidden) return;
    const shown = this.zoom * (devicePixelRatio || 1);
    const x0 = Math.max(0, Math.floor(-this.x / this.zoom)), y0 = Math.max(0, Math.floor(-this.y / this.zoom));
    const x1 = Math.min(this.width, Math.ceil((this.root.clientWidth - this.x) / this.zoom));
    const y1 = Math.min(this.height, Math.ceil((this.root.clientHeight - this.y) / this.zoom));
    const isEnough = this.whole.naturalWidth >= Math.min(this.width, this.width * shown) - 1 && shown < SHARP;
    if (isEnough || x1 <= x0 || y1 <= y0) {
      this.part.hidden = true;
      this.region = null;
      return;
    }
    this.region = [x0, y0, x1, y1];
    const side = Math.max(16, Math.ceil(Math.max(x1 - x0, y1 - y0) * Math.min(shown, 1)));
    const url = this.#url({ region: this.region.join(","), side, exact: shown >= 1 ? 1 : undefined });
    this.isExact = shown >= 1 && this.window.low === undefined && this.window.channel === undefined;
    this.#put(this.part, ...this.region);
    if (this.part.getAttribute("src") === url) return;
    this.part.hidden = true;
    this.part.src = url;
  }

  #size({ width, height }) {
    if (this.width || !width) return;
    Object.assign(this, { width, height });
    this.fit();
  }

  #came() {
    this.whole.hidden = false;
    this.note.textContent = "";
    this.#size({ width: this.whole.naturalWidth, height: this.whole.naturalHeight });
    this.draw();
  }

  async #explain() {
    const { src } = this.whole;
    const text = await explain(src);
    if (src === this.whole.src) this.note.textContent = text;
  }

  #wheel(event) {
    event.preventDefault();
    const box = this.root.getBoundingClientRect();
    const step = Math.max(-200, Math.min(200, event.deltaY * (event.deltaMode === 1 ? 20 : 1)));
    const factor = Math.exp(-step / (event.ctrlKey ? 100 : 350));
    this.zoomTo(this.zoom * factor, event.clientX - box.left, event.clientY - box.top);
  }

  #down(event) {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, event);
    this.root.setPointerCapture(event.pointerId);
  }

  #move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.pointer = event;
      this.#tellPixel();
      this.#point(this.#findObject());
      return;
    }
    const box = this.root.getBoundingClientRect();
    const other = [...this.pointers.values()].find((each) => each.pointerId !== event.pointerId);
    this.pointers.set(event.pointerId, event);
    if (!other) {
      this.pan(event.clientX - before.clientX, event.clientY - before.clientY);
      return;
    }
    const span = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    const middle = [(event.clientX + other.clientX) / 2 - box.left, (event.clientY + other.clientY) / 2 - box.top];
    this.pan((event.clientX - before.clientX) / 2, (event.clientY - before.clientY) / 2);
    this.zoomTo(this.zoom * span(event) / Math.max(span(before), 1), ...middle);
  }

  /** Mark an object of the layers; null: none. */
  mark(item) {
    this.marked = item;
    this.#drawMark();
  }

  #drawMark() {
    this.svg.querySelectorAll(".marked").forEach((each) => each.remove());
    if (this.marked) this.svg.append(el("path", { class: `marked${this.marked.points ? " dots" : ""}`, d: trace(this.marked) }));
  }

  #point(item) {
    if (item === this.marked) return;
    this.mark(item);
    this.pointed(item);
  }

  /** The smallest object under the pointer that is shown, or null. */
  #findObject() {
    const box = this.root.getBoundingClientRect(), hidden = hiddenLayers(), near = 6 / this.zoom;
    const x = (this.pointer.clientX - box.left - this.x) / this.zoom;
    const y = (this.pointer.clientY - box.top - this.y) / this.zoom;
    const isOn = ({ box: sides, points, runs, scale }) => {
      if (sides) return x >= sides[0] && y >= sides[1] && x <= sides[2] && y <= sides[3];
      if (points) return points.some(([px, py, visible]) => visible > 0 && Math.hypot(px - x, py - y) <= near);
      return runs.some(([row, from, to]) => row === Math.floor(y / scale) && x >= from * scale && x < to * scale);
    };
    const shown = (this.layers?.layers ?? []).filter(({ id }) => !hidden.has(id)).flatMap(({ items }) => items);
    let found = null;
    for (const item of shown) if (isOn(item) && (!found || areaOf(item) < areaOf(found))) found = item;
    return found;
  }

  /** The pixel under the pointer, with its values where they are shown without loss. */
  #tellPixel() {
    const box = this.root.getBoundingClientRect();
    const x = Math.floor((this.pointer?.clientX - box.left - this.x) / this.zoom);
    const y = Math.floor((this.pointer?.clientY - box.top - this.y) / this.zoom);
    const isInside = x >= 0 && y >= 0 && x < this.width && y < this.height;
    const pixel = isInside ? { x, y, values: this.#valuesOf(x, y) } : {};
    this.told({ zoom: this.zoom * (devicePixelRatio || 1), ...pixel });
  }

  #valuesOf(x, y) {
    const [x0, y0, x1, y1] = this.region ?? [0, 0, 0, 0];
    const isSeen = x >= x0 && y >= y0 && x < x1 && y < y1 && !this.part.hidden;
    if (!isSeen || !this.isExact || this.part.naturalWidth !== x1 - x0) return undefined;
    if (!this.values) {
      const canvas = el("canvas", { width: this.part.naturalWidth, height: this.part.naturalHeight });
      this.values = canvas.getContext("2d", { willReadFrequently: true });
      this.values.drawImage(this.part, 0, 0);
    }
    return [...this.values.getImageData(x - x0, y - y0, 1, 1).data];
  }
}
