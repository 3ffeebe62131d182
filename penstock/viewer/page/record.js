// One record, over the page: its picture at any zoom, everything that is known of it, and its neighbours.
import { action, api, app, copyText, count, el, hasPage, on, plain, say, set } from "./app.js";
import { layerButtons, reveal } from "./grid.js";
import { picks } from "./picks.js";
import { drawFacts } from "./record_facts.js";
import { RecordObjects } from "./record_objects.js";
import { RecordPicture } from "./record_picture.js";

let open = null;

/** A button; a sign (←, ✕) is named by its title, and a word names itself. */
function button(title, text, onclick, more = {}) {
  const name = /[a-z0-9]/i.test(text) ? null : title;
  return el("button", { type: "button", class: "quiet", title, "aria-label": name, onclick, ...more }, text);
}

class RecordDialog {
  constructor() {
    this.picture = new RecordPicture({
      told: (found) => this.tell(found),
      noted: () => { this.buttons.redraw(); this.objects.show(this.picture.layers.layers); },
      pointed: (item) => this.objects.mark(item),
    });
    this.objects = new RecordObjects((item) => { this.picture.mark(item); this.objects.mark(item); });
    this.buttons = layerButtons();
    this.title = el("h2", { id: "record-title", tabindex: "-1" });
    this.place = el("span", { class: "quiet" });
    this.before = button("The record before (←)", "←", () => this.go("before"));
    this.after = button("The record after (→)", "→", () => this.go("after"));
    this.pick = button("Pick (space)", "Pick", () => picks.toggle(this.index), { "aria-pressed": "false" });
    this.copy = button("Copy the key", "Copy key", () => this.copyKey());
    this.window = this.makeWindow();
    this.windowing = button("Window and level (w)", "Window", () => this.toggleWindow(), { "aria-expanded": "false" });
    this.pixel = el("span", { class: "pixel" });
    this.facts = el("div", { class: "sections" });
    this.dialog = el("dialog", { class: "record", "aria-labelledby": "record-title" },
      el("header", {}, this.before, this.after, this.title, this.place, this.pick,
        hasPage("model") && button("What the model sees (m)", "Model", () => set({ view: "model" })),
        this.copy,
        button("Close (Esc)", "✕", () => set({ index: null }))),
      el("div", { class: "record-body" },
        el("div", { class: "record-picture" }, this.picture.root, this.window,
          el("div", { class: "record-bar" }, this.buttons.root, this.pixel,
            button("Smaller (-)", "−", () => this.picture.zoomBy(1 / 1.5)),
            button("Larger (+)", "+", () => this.picture.zoomBy(1.5)),
            button("Whole picture (0)", "Fit", () => this.picture.fit()),
            button("One pixel a pixel (1)", "100 %", () => this.picture.actual()),
            this.windowing)),
        el("div", { class: "record-facts", tabindex: 0, role: "region", "aria-label": "About it" },
          this.objects.root, this.facts)));
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
    Object.assign(this, { index, near: {}, position: undefined });
    this.name(undefined);
    this.place.textContent = "";
    this.setLimits([0, 255]);
    this.limits = undefined;
    this.listChannels(0);
    this.objects.show();
    this.facts.replaceChildren(el("p", { class: "quiet" }, "Loading…"));
    this.mark();
    if (app.session.image) this.picture.show(index);
    else this.picture.note.textContent = "The store has no pictures.";
    await Promise.all([this.showNear(signal), this.showFacts(signal)]);
  }

  /** The key that is shown and copied; undefined: it is not known yet, or at all. */
  name(key) {
    const text = key === undefined ? `record ${count(this.index)}` : plain(key);
    this.key = key;
    this.title.textContent = text.slice(0, 4000);
    this.title.title = text.slice(0, 1000);
    this.picture.root.setAttribute("aria-label", `Picture of ${text.slice(0, 200)}`);
    this.copy.disabled = key === undefined;
  }

  async showFacts(signal) {
    try {
      const found = await api(`record/${this.index}`, {}, { signal, quiet: true });
      this.name(found.key);
      this.facts.replaceChildren(...drawFacts(found));
      this.setLimits(found.picture?.range ?? [0, 255]);
      this.listChannels(found.picture?.channels ?? found.picture?.jpeg?.components ?? (found.picture?.format && 3));
    } catch (error) {
      if (signal.aborted) return;
      this.facts.replaceChildren(el("p", { class: "bad" }, error.message));
    }
  }

  async showNear(signal) {
    const { q, sort } = app.state;
    try {
      this.near = await api(`near/${this.index}`, { q, sort }, { signal, quiet: true });
    } catch { return; }
    this.name(this.near.key);
    const { position, total, before, after } = this.near;
    this.position = position;
    this.place.textContent = position === null ? "not in the filter" : `${count(position + 1)} of ${count(total)}`;
    this.before.disabled = before === null;
    this.after.disabled = after === null;
    for (const index of [after, before]) {
      if (index !== null && app.session.image) new Image().src = `api/picture/${index}?side=2048`;
    }
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

  async copyKey() {
    say(await copyText(this.key, this.title) ? "The key is copied." : "Selected: press Ctrl+C to copy.");
  }

  tell({ zoom, x, y, values }) {
    const shown = values && (values[3] === 255 ? values.slice(0, 3) : values);
    const place = x === undefined ? "" : `x ${x}  y ${y}   `;
    this.pixel.textContent = `${place}${shown ? `(${shown.join(", ")})   ` : ""}${Math.round(zoom * 100)} %`;
  }

  makeWindow() {
    const slider = (name, title) => {
      this[name] = el("input", { type: "range", step: "any", oninput: () => this.askWindow() });
      this[`${name}Text`] = el("output", {});
      return el("label", {}, title, this[name], this[`${name}Text`]);
    };
    this.channel = el("select", { onchange: () => this.askWindow() });
    this.channels = el("label", { hidden: true }, "Channel", this.channel);
    return el("div", { class: "window", role: "group", "aria-label": "Window and level", hidden: true },
      slider("level", "Level"), slider("width", "Window"), this.channels,
      button("As stored", "Reset", () => this.resetWindow()));
  }

  toggleWindow() {
    this.window.hidden = !this.window.hidden;
    this.windowing.setAttribute("aria-expanded", String(!this.window.hidden));
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
    const [low, high] = this.limits, step = (high - low) / 500;
    const isWhole = width > high - low - step && Math.abs(level - (low + high) / 2) < step;
    const window = isWhole ? {} : { low: level - width / 2, high: level + width / 2 };
    this.later = setTimeout(() => this.picture.setWindow({ ...window, channel: this.channel.value || undefined }), 60);
  }

  listChannels(number) {
    this.channels.hidden = !(number > 1);
    const names = ["all", ...Array.from({ length: Math.min(number || 0, 64) }, (_, channel) => `${channel}`)];
    this.channel.replaceChildren(...names.map((name) => el("option", { value: name === "all" ? "" : name }, name)));
  }

  resetWindow() {
    this.setLimits(this.limits ?? [0, 255]);
    this.channel.value = "";
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
