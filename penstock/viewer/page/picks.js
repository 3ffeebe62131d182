// The picked records, and the panel in which they are counted and exported.
//
//   picks.has(3); picks.toggle(3); picks.set([3, 4, 5], true); picks.range(0, 999, true); picks.size; picks.on(listener)
//
// One bit for each record, the lowest of a byte first: 125 kB for a million. Kept while the tab is open, for each store.
import { action, app, copyText, count, el, panel, say } from "./app.js";

const listeners = new Set();
let bits = new Uint8Array(0), size = 0;

function total() { return app.session?.total ?? 0; }

/** The bits, made when they are first asked for: the session is known then. */
function held() {
  const nbytes = Math.ceil(total() / 8);
  if (bits.length !== nbytes) {
    bits = load(nbytes);
    size = countBits();
  }
  return bits;
}

function slot() { return `picks ${app.session.url} ${total()}`; }

function load(nbytes) {
  const made = new Uint8Array(nbytes);
  try {
    const text = atob(sessionStorage.getItem(slot()) ?? "");
    if (text.length === nbytes) for (let at = 0; at < nbytes; at += 1) made[at] = text.charCodeAt(at);
  } catch { /* no storage, or not what was written: nothing is picked */ }
  return made;
}

function save() {
  try {
    let text = "";
    for (let at = 0; at < bits.length; at += 8192) text += String.fromCharCode(...bits.subarray(at, at + 8192));
    if (size) sessionStorage.setItem(slot(), btoa(text)); else sessionStorage.removeItem(slot());
  } catch { /* no storage, or it is full: the picks last as long as the page */ }
}

function countBits() {
  let found = 0;
  for (let byte of bits) for (; byte; byte &= byte - 1) found += 1;
  return found;
}

let saving = 0;

function changed() {
  clearTimeout(saving);
  saving = setTimeout(save, 200);
  for (const listener of [...listeners]) listener();
}

function put(index, isOn) {
  if (!(index >= 0 && index < total())) return;
  const mask = 1 << (index & 7), was = (bits[index >> 3] & mask) !== 0;
  if (was === isOn) return;
  bits[index >> 3] ^= mask;
  size += isOn ? 1 : -1;
}

export const picks = {
  /** Number of picked records. */
  get size() { held(); return size; },
  has(index) { return (held()[index >> 3] & (1 << (index & 7))) !== 0; },
  toggle(index) { held(); put(index, !picks.has(index)); changed(); },
  /** Pick some records, or not. */
  set(indices, isOn) { held(); for (const index of indices) put(index, isOn); changed(); },
  /** Pick records first to last, both included. */
  range(first, last, isOn) {
    held();
    for (let index = Math.min(first, last); index <= Math.max(first, last); index += 1) put(index, isOn);
    changed();
  },
  invert() {
    held();
    for (let at = 0; at < bits.length; at += 1) bits[at] ^= 255;
    if (total() % 8) bits[bits.length - 1] &= (1 << (total() % 8)) - 1;
    size = total() - size;
    changed();
  },
  clear() { held().fill(0); size = 0; changed(); },
  /** All records of the filter, beside those that are picked. */
  async pickMatching() {
    const { q, sort } = app.state;
    const response = await fetch(`api/picks/matching?${new URLSearchParams({ q: q ?? "", sort: sort ?? "" })}`);
    if (!response.ok) {
      say((await response.json()).error, true);
      return;
    }
    const more = new Uint8Array(await response.arrayBuffer());
    held();
    for (let at = 0; at < bits.length; at += 1) bits[at] |= more[at];
    size = countBits();
    changed();
    say(describe());
  },
  /** The text of an export: "keys", "quarantine", "python" or "command". */
  async text(format) {
    const body = held().slice();
    const response = await fetch(`api/picks/export?format=${format}`, { method: "POST", body });
    if (response.ok) return response.text();
    const { error } = await response.json();
    say(error, true);
    throw new Error(error);
  },
  /** Be told of each change. Returns what ends it. */
  on(listener) { listeners.add(listener); return () => listeners.delete(listener); },
};

function describe() {
  return `${count(picks.size)} of ${count(total())} ${total() === 1 ? "record" : "records"} picked`;
}

const FILES = { keys: ["keys.txt", "text/plain"], quarantine: ["quarantine.jsonl", "application/jsonl"] };

async function download(format) {
  const [name, type] = FILES[format];
  const url = URL.createObjectURL(new Blob([await picks.text(format)], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  say(`${name}: ${describe()}`);
}

async function copy(format, into) {
  const text = await picks.text(format);
  into.replaceChildren(el("pre", { tabindex: 0, "aria-label": "Line to paste" }, text.trimEnd()));
  say(await copyText(text, into.firstChild) ? "Copied." : "Selected: press Ctrl+C to copy.");
}

function mount(root) {
  const counter = el("p", { role: "status" });
  const pasted = el("div", { class: "picks-paste" });
  const button = (label, title, run) => el("button", { type: "button", title, onclick: run }, label);
  const exports = el("div", { class: "picks-exports", role: "group", "aria-label": "Export picked records" },
    el("h3", {}, "Export"),
    button("keys.txt", "Their keys, one a line: penstock pack --keys, ps.find_keys", () => download("keys")),
    button("Quarantine list", "A list that ps.find_keys(..., exclude=True) leaves out", () => download("quarantine")),
    button("Python", "A line that makes a ps.Subset", () => copy("python", pasted)),
    button("Command", "A command that packs a copy of them", () => copy("command", pasted)));
  const clear = button("Clear", "Pick nothing (x)", () => picks.clear());
  const section = el("section", { class: "picks", "aria-label": "Picked records" },
    el("h3", {}, "Picked"), counter,
    el("div", { class: "picks-choose", role: "group", "aria-label": "Pick" },
      button("All shown", "Pick all records of the filter (a)", () => picks.pickMatching()),
      button("Invert", "Pick what is not picked (i)", () => picks.invert()), clear),
    exports, pasted);
  root.append(section);
  const show = () => {
    counter.textContent = describe();
    exports.hidden = clear.disabled = picks.size === 0;
    if (!picks.size) pasted.replaceChildren();
  };
  picks.on(show);
  show();
}

panel({ id: "picks", side: "right", mount });

const inGrid = { group: "Picks", when: () => (app.state.view ?? "grid") === "grid" && app.state.index === undefined };
action({ id: "picks-all", key: "a", title: "Pick all records of the filter", run: () => picks.pickMatching(), ...inGrid });
action({ id: "picks-invert", key: "i", title: "Invert what is picked", run: () => picks.invert(), ...inGrid });
action({ id: "picks-clear", key: "x", title: "Pick nothing", run: () => picks.clear(), ...inGrid });
action({
  id: "picks-export", key: "e", title: "Export the keys of picked records", ...inGrid,
  run: () => (picks.size ? download("keys") : say("Nothing is picked.")),
});
