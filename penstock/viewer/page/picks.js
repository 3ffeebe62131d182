// The picked records, and the panel in which they are counted and exported.
//
//   picks.has(3); picks.toggle(3); picks.set([3, 4, 5], true); picks.range(0, 999, true); picks.size; picks.on(listener)
//
// One bit for each record, the lowest of a byte first: 125 kB for a million. The server keeps them, by key, for the next
// page and the next viewer of the store; it is sent what changed, so that two pages do not undo each other's picks.
import { action, api, app, copyText, count, el, on, panel, say, set } from "./app.js";

const PICKED = "set:picked"; // the order that shows them alone
const KEEPALIVE = 30_000; // bytes that a browser sends also when the page is left
const listeners = new Set();
let bits = new Uint8Array(0), kept = bits, size = 0, gone = 0, forgets = false, isSending = false;

function total() { return app.session?.total ?? 0; }

/** The bits, made when they are first asked for: the session is known then. */
function held() {
  const nbytes = Math.ceil(total() / 8);
  if (bits.length !== nbytes) {
    bits = new Uint8Array(nbytes);
    kept = bits.slice();
  }
  return bits;
}

/** Take over what was kept; what was picked meanwhile stays. */
async function load() {
  const found = await api("picks").catch(() => null);
  if (!found) return;
  held();
  kept = Uint8Array.from(atob(found.bits), (each) => each.charCodeAt(0));
  for (let at = 0; at < bits.length; at += 1) bits[at] |= kept[at];
  gone = found.gone;
  size = countBits();
  changed();
}

/** Send what changed, one request after another; `kept` is what was sent. */
async function save() {
  if (isSending) return;
  isSending = true;
  let before = kept;
  try {
    while (forgets || bits.some((each, at) => each !== kept[at])) {
      before = kept;
      kept = bits.slice();
      const body = new Uint8Array(2 * kept.length);
      for (let at = 0; at < kept.length; at += 1) {
        body[at] = kept[at] & ~before[at];
        body[kept.length + at] = before[at] & ~kept[at];
      }
      const options = { method: "POST", body, quiet: true, keepalive: body.length < KEEPALIVE };
      await api("picks", { forget: forgets ? 1 : null }, options);
      forgets = false;
      if (app.state.sort === PICKED) document.dispatchEvent(new Event("facts")); // see find.js
    }
  } catch (error) {
    kept = before;
    say(`The picks are not kept: ${error.message}`, true);
  } finally {
    isSending = false;
  }
}

addEventListener("pagehide", () => { isSending = false; save(); }); // without waiting for an answer

function countBits() {
  let found = 0;
  for (let byte of bits) for (; byte; byte &= byte - 1) found += 1;
  return found;
}

function changed() {
  for (const listener of [...listeners]) listener();
  save();
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
  clear() {
    held().fill(0);
    size = 0;
    forgets = gone > 0;
    gone = 0;
    changed();
  },
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

/** Show the picked records alone, or all again. */
function showAlone() { set({ view: "grid", sort: app.state.sort === PICKED ? null : PICKED, index: null }); }

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
  const counter = el("p", { role: "status" }), lost = el("p", { class: "picks-gone" });
  const pasted = el("div", { class: "picks-paste" });
  const button = (label, title, run) => el("button", { type: "button", title, onclick: run }, label);
  const exports = el("div", { class: "picks-exports", role: "group", "aria-label": "Export picked records" },
    el("h3", {}, "Export"),
    button("keys.txt", "Their keys, one a line: penstock pack --keys, ps.find_keys", () => download("keys")),
    button("Quarantine list", "A list that ps.find_keys(..., exclude=True) leaves out", () => download("quarantine")),
    button("Python", "A line that makes a ps.Subset", () => copy("python", pasted)),
    button("Command", "A command that packs a copy of them", () => copy("command", pasted)));
  const clear = button("Clear", "Pick nothing (x)", () => picks.clear());
  const alone = button("Show alone", "Show the picked records alone, or all again (o)", showAlone);
  const section = el("section", { class: "picks", "aria-label": "Picked records" },
    el("h3", {}, "Picked"), counter, lost,
    el("div", { class: "picks-choose", role: "group", "aria-label": "Pick" },
      button("All shown", "Pick all records of the filter (a)", () => picks.pickMatching()),
      button("Invert", "Pick what is not picked (i)", () => picks.invert()), clear, alone),
    exports, pasted);
  root.append(section);
  const show = () => {
    counter.textContent = describe();
    exports.hidden = picks.size === 0;
    clear.disabled = !picks.size && !gone;
    lost.hidden = !gone;
    lost.textContent = `${count(gone)} picked ${gone === 1 ? "key is" : "keys are"} not in the store any more.`;
    if (!picks.size) pasted.replaceChildren();
  };
  picks.on(show);
  show();
  on(({ sort }) => alone.setAttribute("aria-pressed", String(sort === PICKED)));
  load();
}

panel({ id: "picks", side: "right", mount });

const inGrid = { group: "Picks", when: () => (app.state.view ?? "grid") === "grid" && app.state.index === undefined };
action({ id: "picks-all", key: "a", title: "Pick all records of the filter", run: () => picks.pickMatching(), ...inGrid });
action({ id: "picks-invert", key: "i", title: "Invert what is picked", run: () => picks.invert(), ...inGrid });
action({ id: "picks-clear", key: "x", title: "Pick nothing", run: () => picks.clear(), ...inGrid });
action({ id: "picks-alone", key: "o", title: "Show the picked records alone, or all again", run: showAlone, ...inGrid });
action({
  id: "picks-export", key: "e", title: "Export the keys of picked records", ...inGrid,
  run: () => (picks.size ? download("keys") : say("Nothing is picked.")),
});
