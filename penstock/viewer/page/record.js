// One record, over the page: its picture at any zoom, everything that is known of it, and its neighbours.
import { action, api, app, count, el, hasPage, on, plain, say, set } from "./app.js";
import { layerButtons, reveal } from "./grid.js";
import { picks } from "./picks.js";
import { drawFacts } from "./record_facts.js";
import { RecordPicture } from "./record_picture.js";

const sections = [];
let open = null;

/** Add a section beside the picture: recordSection({id, title, mount(root, index)}). */
export function recordSection(made) { sections.push(made); }

function button(title, text, onclick, more = {}) {
  return el("button", { type: "button", class: "quiet", title, "aria-label": title, onclick, ...more }, text);
}

class RecordDialog {
  constructor() {
    this.picture = new RecordPicture({
      told: (found) => this.tell(found),
      noted: () => this.buttons.redraw(),
    });
    this.buttons = layerButtons();
    this.title = el("h2", { id: "record-title", tabindex: "-1" });
    this.place = el("span", { class: "quiet" });
    this.before = button("The record before (←)", "←", () => this.go("before"));
    this.after = button("The record after (→)", "→", () => this.go("after"));
    this.pick = button("Pick (space)", "Pick", () => picks.toggle(this.index), { "aria-pressed": "false", "aria-label": null });
    this.window = this.makeWindow();
    this.pixel = el("span", { class: "pixel" });
    this.facts = el("div", { class: "sections" });
    this.dialog = el("dialog", { class: "record", "aria-labelledby": "record-title" },
      el("header", {}, this.before, this.after, this.title, this.place, this.pick,
        hasPage("model") && button("What the model sees (m)", "Model", () => set({ view: "model" }), { "aria-label": null }),
        button("Copy the key", "Copy key", () => this.copy(), { "aria-label": null }),
        button("Close (Esc)", "✕", () => set({ index: null }))),
      el("div", { class: "record-body" },
        el("div", { class: "record-picture" }, this.picture.root, this.window,
          el("div", { class: "record-bar" }, this.buttons.root, this.pixel,
            button("Smaller (-)", "−", () => this.picture.zoomBy(1 / 1.5)), button("Larger (+)", "+", () => this.picture.zoomBy(1.5)),
            button("Whole picture (0)", "Fit", () => this.picture.fit(), { "aria-label": null }),
            button("One pixel a pixel (1)", "100 %", () => this.picture.actual(), { "aria-label": null }),
            button("Window and level (w)", "Window", () => this.toggleWindow(), { "aria-label": null, "aria-expanded": "false", class: "quiet windowing" }))),
        el("div", { class: "record-facts", tabindex: "0", role: "region", "aria-label": "About the record" }, this.facts)));
    this.dialog.addEventListener("cancel", (event) => { event.preventDefault(); set({ index: null }); });
    this.ends = [picks.on(() => this.mark())];
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.title.focus();
  }

  close() {
    this.ends.forEach((end) => end());
    this.stop?.abort();
    this.picture.close();
    this.dialog.close();
    this.dialog.remove();
    if (this.position !== undefined && this.position !== null) reveal(this.position);
    document.querySelector(".grid")?.focus({ preventScroll: true });
  }

  async show(index) {
    this.stop?.abort();
    const { signal } = this.stop = new AbortController();
    Object.assign(this, { index, near: {}, limits: undefined });
    this.title.textContent = `record ${count(index)}`;
    this.place.textContent = "";
    this.facts.replaceChildren(el("p", { class: "quiet" }, "Loading…"));
    this.mark();
    if (app.session.image) this.picture.show(index);
    else this.picture.note.textContent = "The store has no pictures.";
    await Promise.all([this.showNear(signal), this.showFacts(signal)]);
  }

  async showFacts(signal) {
    const { index } = this;
    try {
      const found = await api(`record/${index}`, {}, { signal, quiet: true });
      this.key = found.key;
      this.title.textContent = plain(found.key);
      this.title.title = plain(found.key).slice(0, 1000);
      this.facts.replaceChildren(...drawFacts(found));
      this.setLimits(found.picture?.range ?? [0, 255]);
    } catch (error) {
      if (signal.aborted) return;
      this.facts.replaceChildren(el("p", { class: "bad" }, error.message));
    }
    for (const { title, mount } of sections) {
      const root = el("section", {}, el("h3", {}, title));
      this.facts.append(root);
      mount(root, index);
    }
  }

  async showNear(signal) {
    const { q, sort } = app.state;
    try {
      this.near = await api(`near/${this.index}`, { q, sort }, { signal, quiet: true });
    } catch { return; }
    const { position, total, before, after } = this.near;
    this.position = position;
    this.place.textContent = position === null ? "not in the filter" : `${count(position + 1)} of ${count(total)}`;
    this.before.disabled = before === null;
    this.after.disabled = after === null;
    for (const index of [after, before]) if (index !== null && app.session.image) new Image().src = `api/picture/${index}?side=2048`;
  }

  go(side) {
    const index = this.near[side];
    if (index !== null && index !== undefined) set({ index }, { replace: true });
  }

  mark() {
    const isPicked = picks.has(this.index);
    this.pick.setAttribute("aria-pressed", String(isPicked));
    this.pick.textContent = isPicked ? "✓ Picked" : "Pick";
  }

  async copy() {
    await navigator.clipboard.writeText(this.key);
    say("The key is copied.");
  }

  tell({ zoom, x, y, values }) {
    const shown = values && (values[3] === 255 ? values.slice(0, 3) : values);
    this.pixel.textContent = [x !== undefined && `x ${x}  y ${y}`, shown && `(${shown.join(", ")})`, `${Math.round(zoom * 100)} %`]
      .filter(Boolean).join("   ");
  }

  makeWindow() {
    const slider = (name, title) => {
      this[name] = el("input", { type: "range", step: "any", oninput: () => this.askWindow() });
      this[`${name}Text`] = el("output", {});
      return el("label", {}, title, this[name], this[`${name}Text`]);
    };
    return el("div", { class: "window", role: "group", "aria-label": "Window and level", hidden: true },
      slider("level", "Level"), slider("width", "Window"), button("As stored", "Reset", () => this.resetWindow(), { "aria-label": null }));
  }

  toggleWindow() {
    this.window.hidden = !this.window.hidden;
    this.dialog.querySelector(".windowing").setAttribute("aria-expanded", String(!this.window.hidden));
  }

  setLimits([low, high]) {
    const span = high > low ? high - low : 1;
    Object.assign(this.level, { min: low, max: high, value: (low + high) / 2 });
    Object.assign(this.width, { min: span / 1000, max: span, value: span });
    this.limits = [low, high];
    this.tellWindow();
  }

  tellWindow() {
    const digits = this.limits[1] - this.limits[0] > 20 ? 0 : 3;
    for (const name of ["level", "width"]) this[`${name}Text`].textContent = Number(this[name].value).toFixed(digits);
  }

  askWindow() {
    if (!this.limits) return;
    this.tellWindow();
    clearTimeout(this.later);
    const [level, width] = [Number(this.level.value), Number(this.width.value)];
    this.later = setTimeout(() => this.picture.setWindow({ low: level - width / 2, high: level + width / 2 }), 60);
  }

  resetWindow() {
    this.setLimits(this.limits ?? [0, 255]);
    this.picture.setWindow({});
  }
}

on((state, before) => {
  const isShown = state.index !== undefined && /^\d+$/.test(state.index) && state.view !== "model";
  if (!isShown) {
    open?.close();
    open = null;
    return;
  }
  if (!open) open = new RecordDialog();
  if (open.index !== Number(state.index)) open.show(Number(state.index));
  if (state.hide !== before.hide) {
    open.buttons.redraw();
    open.picture.draw();
  }
});

function recordAction(id, key, title, run) {
  action({ id: `record-${id}`, group: "Record", key, title, when: () => open !== null, run: () => run(open) });
}

recordAction("before", ["ArrowLeft", "ArrowUp"], "The record before", (shown) => shown.go("before"));
recordAction("after", ["ArrowRight", "ArrowDown"], "The record after", (shown) => shown.go("after"));
recordAction("pick", " ", "Pick the record, or no longer", (shown) => picks.toggle(shown.index));
recordAction("larger", ["+", "="], "Larger", (shown) => shown.picture.zoomBy(1.5));
recordAction("smaller", "-", "Smaller", (shown) => shown.picture.zoomBy(1 / 1.5));
recordAction("fit", "0", "The whole picture", (shown) => shown.picture.fit());
recordAction("actual", "1", "One pixel of the picture a pixel of the screen", (shown) => shown.picture.actual());
recordAction("window", "w", "Window and level", (shown) => shown.toggleWindow());
recordAction("close", "Escape", "Close", () => set({ index: null }));
