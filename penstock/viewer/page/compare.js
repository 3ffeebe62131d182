// Two stores side by side: how many records are new, gone, changed, relabelled; each pair, and what differs in words.
import { action, api, app, count, el, on, plain, register, set, sharpen } from "./app.js";
import { drawLayers } from "./overlay.js";

const KINDS = {
  changed: ["Changed", "the bytes of an image differ"],
  relabelled: ["Relabelled", "a label, boxes or another small field differs"],
  removed: ["Only before", "removed: the second store lacks the key"],
  added: ["Only after", "added: the first store lacks the key"],
  unreadable: ["Unreadable", "a record of either store cannot be read"],
  unchanged: ["Unchanged", "all fields are equal"],
};
const PAGE = 100, POLL_MS = 700, PREDICTED = new Set(["boxes", "keypoints", "masks"].map((name) => `predicted-${name}`)).add("missed");

function mount(root) {
  const head = el("header", { class: "compare-head" });
  const bar = el("div", { class: "compare-progress", role: "progressbar", "aria-label": "Records compared" }, el("i"));
  const tabs = el("div", { class: "compare-kinds", role: "group", "aria-label": "Kinds of records" });
  const filter = el("input", { type: "search", placeholder: "Part of a key", "aria-label": "Show keys that contain" });
  const list = el("ol", { class: "compare-list", "aria-label": "Records", tabindex: -1 });
  const paging = el("div", { class: "compare-paging" });
  const pair = el("section", { class: "compare-pair", "aria-label": "One record before and after", "aria-live": "polite" });
  root.append(el("div", { class: "compare" }, head, bar, tabs,
    el("div", { class: "compare-body" }, el("div", { class: "compare-left" }, filter, list, paging), pair)));
  let rows = [], total = 0, timer = 0, shown = "", loaded = "", counts = {};
  const state = () => ({
    kind: app.state["compare-kind"] ?? "changed", key: app.state["compare-key"] ?? "",
    at: Math.max(0, Number(app.state["compare-at"]) || 0),
  });
  const start = () => Math.floor(state().at / PAGE) * PAGE;
  const asked = () => ({ kind: state().kind, key: state().key, start: start(), stop: start() + PAGE });

  function drawHead({ before, after, error }) {
    const side = (name, { name: title, url, total: all, repeated }) => el("p", { title: plain(url) },
      el("span", { class: "quiet" }, `${name} `), el("b", {}, plain(title)), ` ${count(all)} records`,
      repeated ? ` (${count(repeated)} with the key of another)` : "");
    const missing = [...before.only.map((name) => `${name}: only before`), ...after.only.map((name) => `${name}: only after`)];
    head.replaceChildren(side("Before", before), side("After", after),
      missing.length ? el("p", { class: "quiet" }, `Fields that are not compared: ${plain(missing.join(", "))}`) : "",
      error ? el("p", { class: "bad" }, plain(error)) : "");
  }

  function drawTabs() {
    const { kind } = state();
    tabs.replaceChildren(...Object.entries(KINDS).map(([id, [title, meaning]]) => el("button", {
      type: "button", "aria-pressed": String(id === kind), title: meaning,
      onclick: () => set({ "compare-kind": id, "compare-at": null }),
    }, el("b", {}, count(counts[id] ?? 0)), ` ${title}`)));
  }

  async function poll() {
    const found = await api("compare/summary");
    if (timer === null) return;
    counts = found.counts;
    drawHead(found);
    drawTabs();
    const part = found.total === null ? 0 : found.total ? found.done / found.total : 1;
    bar.hidden = !found.running;
    bar.setAttribute("aria-valuenow", Math.round(100 * part));
    bar.firstChild.style.width = `${100 * part}%`;
    if (found.running) timer = setTimeout(poll, POLL_MS);
    const { kind } = state();
    if (counts[kind] !== total && !state().key && (rows.length < PAGE || !found.running)) await load();
  }

  async function load() {
    loaded = JSON.stringify(asked());
    const wanted = loaded, found = await api("compare/list", asked());
    if (wanted !== loaded) return;
    ({ rows, total } = found);
    draw();
  }

  function draw() {
    const { at, kind } = state();
    list.replaceChildren(...rows.map(({ key }, place) => el("li", {}, el("button", {
      type: "button", "aria-current": start() + place === at ? "true" : null, title: plain(key).slice(0, 2000),
      onclick: () => set({ "compare-at": start() + place }, { replace: true }),
    }, el("bdi", {}, plain(key).slice(0, 300))))));
    if (!rows.length) list.append(el("li", { class: "quiet" }, `No record: ${KINDS[kind]?.[1]}.`));
    list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
    const last = start() + rows.length;
    const turn = (title, to, isOff) => el("button", { type: "button", disabled: isOff, onclick: () => move(to) }, title);
    paging.replaceChildren(
      el("span", { class: "quiet" }, rows.length ? `${count(start() + 1)} to ${count(last)} of ${count(total)}` : ""),
      ...(total > PAGE ? [turn("Previous", start() - PAGE, !start()), turn("Next", start() + PAGE, last >= total)] : []),
      ...(kind !== "added" && total ? [el("button", {
        type: "button", class: "quiet", onclick: () => set({ view: "grid", sort: `set:${kind}`, index: null }),
      }, "All in the grid")] : []));
    drawPair();
  }

  /** A record of a store, with its annotations over it. */
  function drawPicture(title, key, index, path) {
    const caption = el("figcaption", {}, title, index === null ? "" : el("span", { class: "quiet" }, ` record ${count(index)}`));
    if (index === null) return el("figure", {}, caption, el("p", { class: "quiet" }, "not there"));
    const img = el("img", { src: `api/${path}thumb/${index}?side=512`, alt: `${title}: ${plain(key).slice(0, 300)}` });
    const svg = el("svg", { class: "overlay", "aria-hidden": "true" });
    const shot = el("div", { class: "compare-shot" }, img, svg);
    img.addEventListener("load", () => sharpen(img));
    img.addEventListener("error", () => shot.replaceWith(el("p", { class: "quiet" }, "There is no picture to show.")));
    api(`${path}layers`, { indices: index }, { quiet: true }).then((found) => {
      const held = found[index];
      if (held?.layers) drawLayers(svg, held, { scale: Math.max(held.width, held.height) / 460, hidden: PREDICTED });
    }).catch(() => {});
    return el("figure", {}, caption, shot);
  }

  async function drawPair() {
    const row = rows[state().at - start()];
    const name = row ? `${row.before} ${row.after}` : "";
    if (name === shown) return;
    shown = name;
    if (!row) {
      pair.replaceChildren();
      return;
    }
    const figures = el("div", { class: "compare-figures" },
      drawPicture("Before", row.key, row.before, ""), drawPicture("After", row.key, row.after, "compare/"));
    const opener = row.before === null ? "" : el("button", { type: "button", onclick: () => open(row) }, "Open");
    pair.replaceChildren(el("h2", {}, el("bdi", {}, plain(row.key).slice(0, 300)), opener), figures);
    if (row.before === null || row.after === null) return;
    let fields;
    try {
      ({ fields } = await api("compare/pair", { before: row.before, after: row.after }, { quiet: true }));
    } catch (error) {
      pair.append(el("p", { class: "bad" }, plain(error.message)));
      return;
    }
    if (shown !== name) return;
    const cell = (text) => el("td", {}, el("div", { class: "compare-value" }, text.split("\n").map(plain).join("\n")));
    pair.append(el("div", { class: "compare-scroll", tabindex: 0, role: "region", "aria-label": "Fields" }, el("table", {},
      el("thead", {}, el("tr", {}, ...["Field", "Before", "After", "What differs"].map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, ...fields.map((field) => el("tr", { class: field.same ? "same" : "" },
        el("th", { scope: "row" }, plain(field.name)), cell(field.before), cell(field.after), cell(field.same ? "equal" : field.words)))))));
  }

  function move(to) {
    if (total) set({ "compare-at": Math.min(Math.max(to, 0), total - 1) }, { replace: true });
  }

  filter.value = state().key;
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => set({ "compare-key": filter.value, "compare-at": null }, { replace: true }), 200);
  });
  const open = ({ before } = {}) => { if (before !== null && before !== undefined) set({ view: "grid", index: before }); };
  current = { move: (step) => move(state().at + step), open: () => open(rows[state().at - start()]) };
  const end = on(() => {
    drawTabs();
    if (loaded !== JSON.stringify(asked())) load(); else draw();
  });
  drawTabs();
  poll().then(load);
  return () => { clearTimeout(timer); timer = null; current = null; end(); };
}

let current = null;
const here = { group: "Compare", when: () => current !== null };
register({ id: "compare", title: "Compare", key: "c", feature: "compare", mount });
for (const [key, title, step] of [
  ["ArrowDown", "Next record", 1], ["ArrowUp", "Previous record", -1], ["PageDown", "100 records on", PAGE],
  ["PageUp", "100 records back", -PAGE], ["Home", "First record", -Infinity], ["End", "Last record", Infinity],
]) action({ id: `compare-${key}`, key, title, run: () => current.move(step), ...here });
action({ id: "compare-open", key: "Enter", title: "Open the record", run: () => current.open(), ...here });
