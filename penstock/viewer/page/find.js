// The panel at the left: the filter, its suggestions, the order, the scan; the counts are drawn by find_counts.js.
//
// The filter is `q` in the address and the order `sort`; everything else follows from them. After new facts of the scan,
// or of picks that are shown alone, the document gets the event "facts", so that what shows filtered records asks again.
import { action, api, app, count, el, firstPictures, on, panel, set } from "./app.js";
import { drawCounts, whole } from "./find_counts.js";
import { makeField } from "./find_field.js";

const POLL_MS = 1200;
const ORDERS = [["", "as stored"], ["key", "key"], ["random", "random"]];

let names = [], parts = {}, asked = null, timer = 0, latest = null, progress = null, unseen = false, due = 0;

function mount(root) {
  const field = makeField({ names: () => names, apply });
  parts = {
    field, count: el("p", { class: "find-count", role: "status" }), order: el("select", { id: "find-order" }),
    direction: el("button", { class: "find-direction", type: "button", onclick: turn }),
    scan: el("div", { class: "find-scan" }), counts: el("div", { class: "find-counts" }),
  };
  parts.order.addEventListener("change", chooseOrder);
  root.append(el("section", { class: "find", "aria-label": "Find" },
    field.root, parts.count,
    el("div", { class: "find-row" }, el("label", { for: "find-order" }, "Sort by"), parts.order, parts.direction),
    parts.scan, parts.counts));
  action({
    id: "find", group: "Grid", key: ["f", "/"], title: "Filter", run: () => field.focus(),
    when: () => app.state.view === "grid" && app.state.index === undefined,
  });
  on((state, before) => {
    field.show(state.q ?? "");
    if (state.q !== before.q || state.sort !== before.sort || !latest) refresh();
    showOrder();
  });
  document.addEventListener("facts", () => { if (app.state.sort === "set:picked") refresh(); });
  loadNames();
}

async function loadNames() {
  const found = await api("find/names");
  names = found.names;
  parts.about = found.problems;
  parts.order.replaceChildren(...ORDERS.map(([value, text]) => el("option", { value }, text)),
    el("optgroup", { label: "Fields" }, names.filter((each) => isField(each) && each.name !== "key").map(asOption)),
    el("optgroup", { label: "Measured" }, names.filter((each) => !isField(each)).map(asOption)));
  showOrder();
  if (latest) draw();
  if (found.scans_small) control("start");
}

function isField({ about }) {
  return about === "a field";
}

function asOption({ name, about }) {
  return el("option", { value: name, title: about }, name);
}

/** Take a filter over into the address, if it can be read: `push` makes an entry in the history. */
async function apply(text, { push }) {
  const found = await api("find/check", { q: text }, { quiet: true });
  if (parts.field.text() !== text) return;
  parts.field.fail(found.ok ? null : found);
  if (found.ok && text !== (app.state.q ?? "")) set({ q: text, index: null }, { replace: !push });
}

function showOrder() {
  const sort = app.state.sort ?? "", plain = sort.replace(/^-/, "").replace(/^random:.*/, "random");
  const isSet = plain.startsWith("set:"), known = [...parts.order.options].some((option) => option.value === plain);
  const text = isSet ? "as in the set" : plain;
  if (!known && parts.order.options.length) parts.order.append(el("option", { value: plain }, text));
  parts.order.value = plain;
  const isRandom = plain === "random", isDescending = sort.startsWith("-");
  parts.direction.hidden = !plain || isSet;
  parts.direction.textContent = isRandom ? "⟳" : isDescending ? "↓" : "↑";
  const title = isRandom ? "Another random order" : isDescending ? "Largest first" : "Smallest first";
  parts.direction.setAttribute("aria-label", title);
  parts.direction.title = title;
}

function chooseOrder() {
  const { value } = parts.order;
  set({ sort: value === "random" ? "random:1" : value });
}

function turn() {
  const sort = app.state.sort ?? "";
  if (sort.startsWith("random:")) set({ sort: `random:${Number(sort.slice(7)) + 1}` });
  else set({ sort: sort.startsWith("-") ? sort.slice(1) : `-${sort}` });
}

/** Ask for the counts of the filter in the address, and again while the scan goes on. */
async function refresh() {
  asked?.abort();
  const request = asked = new AbortController(), began = performance.now();
  const { q = "", sort = "" } = app.state;
  try {
    const checked = await api("find/check", { q, sort }, { quiet: true, signal: request.signal });
    if (parts.field.text() === q.trim()) {
      const isOfSort = checked.in === "sort";
      const wrong = isOfSort ? { error: `Sort by ${sort}: ${checked.error}`, at: null } : checked;
      parts.field.fail(checked.ok ? null : wrong);
    }
    const query = [...Object.entries(checked.ok ? { q, sort } : {}), ...[...whole].map((name) => ["whole", name])];
    await firstPictures;
    const found = await api(`find/histograms?${new URLSearchParams(query)}`, {}, { signal: request.signal, quiet: true });
    latest = { ...found, scans: checked.scans, ok: checked.ok };
  } catch (error) {
    if (request !== asked) return;
    asked = null;
    parts.field.fail({ error: error.message, at: null });
    return;
  }
  if (request !== asked) return;
  asked = null;
  due = performance.now() + Math.max(POLL_MS, 4 * (performance.now() - began));
  draw();
  if (latest.running) {
    unseen = true;
    watch();
  } else if (unseen) {
    unseen = false;
    document.dispatchEvent(new Event("facts"));
  }
}

function watch() { timer ||= setTimeout(poll, POLL_MS); }

/** While the scan goes on: how far it is; and new counts, which take longer, at most a fifth of the time. */
async function poll() {
  const facts = await api("find/facts", {}, { quiet: true }).catch(() => null);
  timer = 0;
  if (!facts) return;
  drawScan(progress = facts);
  if (facts.running) watch();
  const isDue = !facts.running || (facts.measured !== latest?.measured && performance.now() >= due);
  if (asked || !isDue) return;
  if (latest?.scans) document.dispatchEvent(new Event("facts"));
  refresh();
}

async function control(what) {
  drawScan(progress = await api("find/scan", { do: what }, { method: "POST" }));
  watch();
  refresh();
}

function draw() {
  const { total, matched, ok, scans, measured } = latest;
  const partial = ok && scans && measured < total ? `, of ${count(measured)} scanned` : "";
  const noun = total === 1 ? "record" : "records";
  parts.count.textContent = !ok ? "" : !app.state.q && matched === total ? `${count(total)} ${noun}`
    : `${count(matched)} of ${count(total)} ${noun}${partial}`;
  drawScan(progress?.measured > latest.measured ? progress : latest);
  drawCounts(parts.counts, latest, { about: parts.about ?? {}, q: app.state.q ?? "", renew: refresh });
}

function drawScan({ total, running, measured, known }) {
  const button = (what, text) => el("button", { type: "button", "data-do": what, onclick: () => control(what) }, text);
  const share = Math.floor(100 * known);
  const focused = parts.scan.contains(document.activeElement);
  if (running) {
    parts.scan.replaceChildren(
      el("progress", { max: 100, value: share, "aria-label": "Scan of all records" }),
      el("span", {}, `${share} % scanned`), button("stop", "Stop"));
  } else if (measured < total) {
    const left = total - measured, noun = left === 1 ? "record" : "records";
    parts.scan.replaceChildren(button("start", `Scan ${measured ? "the other " : ""}${count(left)} ${noun}`),
      el("span", {}, "for unreadable pictures, near-duplicates, brightness and sharpness"));
  } else {
    parts.scan.replaceChildren();
  }
  if (focused) parts.scan.querySelector("button")?.focus();
}

panel({ id: "find", side: "left", mount });
