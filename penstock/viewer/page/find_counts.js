// Counts of the records that fit beside all: problems as chips, classes as rows, numbers as bars. Each is a button that
// adds its condition to the filter, or takes it out again; with shift or ctrl it is added to others of its name.
import { app, classColor, count, el, plain, set } from "./app.js";

const FEW = 8;
const OPEN = new Set(["class", "label", "boxes", "width", "format"]);
const PLAIN = new Set(["format"]);
const TITLES = { nbytes: "bytes of the picture", boxes: "boxes per picture", area: "area of boxes" };

const opened = new Map();
let drawn = "";

/** The parts of a filter that a word joins, outside of parentheses and quotes. */
function split(q, word) {
  const parts = [""];
  let depth = 0;
  for (const [token] of q.matchAll(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\s+(?:and|or)\s+(?=\S)|[^]/gi)) {
    depth += token === "(" ? 1 : token === ")" ? -1 : 0;
    if (depth || token.trim().toLowerCase() !== word) parts[parts.length - 1] += token;
    else parts.push("");
  }
  return parts;
}

/** What is joined by `and`. */
function listConditions(q) {
  return !q || split(q, "or").length > 1 ? [q].filter(Boolean) : split(q, "and");
}

/** Conditions without those of one condition, which may be several; null: it is none of them. */
function takeOut(conditions, condition) {
  const parts = split(condition, "and");
  const at = conditions.findIndex((_, begin) => parts.every((part, place) => conditions[begin + place] === part));
  return at < 0 ? null : conditions.toSpliced(at, parts.length);
}

/** The conditions of a filter that are bars of a histogram, and the others: [chosen, rest]. */
function findBars(q, { bars }) {
  const known = new Set(bars.map(({ query }) => query));
  let chosen = [], rest = listConditions(q);
  for (const each of rest.filter((condition) => /^\(.*\)$/s.test(condition))) {
    const any = split(each.slice(1, -1), "or");
    if (!any.every((part) => known.has(part))) continue;
    chosen = [...chosen, ...any];
    rest = rest.filter((other) => other !== each);
  }
  for (const query of known) {
    const left = takeOut(rest, query);
    if (left) [rest, chosen] = [left, [...chosen, query]];
  }
  return [chosen, rest];
}

/** Add a bar to the filter, in the order of its values if no other is chosen, or take both out again.
 *
 * Records have one value of most names, but any number of objects and problems: those are joined by `and`.
 */
function toggle(event, histogram, bar) {
  const [before, rest] = findBars(app.state.q ?? "", histogram), isOn = before.includes(bar.query);
  const others = isOn || event.shiftKey || event.ctrlKey || event.metaKey
    ? before.filter((query) => query !== bar.query) : [];
  const chosen = isOn ? others : [...others, bar.query];
  const isSingle = histogram.counts === "records" && histogram.kind !== "flags" && chosen.length > 1;
  const added = isSingle ? [`(${chosen.join(" or ")})`] : chosen;
  const safe = rest.map((each) => (added.length && split(each, "or").length > 1 ? `(${each})` : each));
  const { sort } = app.state, own = bar.sort || (histogram.kind === "number" ? histogram.name : "");
  const order = !own ? {} : isOn && sort === own ? { sort: null } : isOn || sort ? {} : { sort: own };
  set({ q: [...safe, ...added].join(" and "), index: null, ...order });
}

/** Names of which all classes are shown: see api/find/histograms. */
export const whole = new Set();

/** Draw all counts into `root`; the button that has the focus keeps it. `renew` asks for them again. */
export function drawCounts(root, found, { about, q, renew }) {
  const seen = JSON.stringify([found.histograms, q]);
  if (seen === drawn && root.firstChild) return;
  drawn = seen;
  const focused = document.activeElement?.dataset?.query;
  const scrolled = root.closest("aside")?.scrollTop;
  root.replaceChildren(...found.histograms.map((each) => each.kind === "flags" ? drawChips(each, { about, q })
    : drawSection(each, each.kind === "class" ? drawRows(each, { q, renew }) : drawBars(each, { q }))));
  if (scrolled) root.closest("aside").scrollTop = scrolled;
  if (focused) [...root.querySelectorAll("button")].find((each) => each.dataset.query === focused)?.focus();
}

/** The conditions of the buttons that are pressed. */
function findPressed(q, histogram) { return new Set(findBars(q, histogram)[0]); }

function drawSection(histogram, content) {
  const isOpen = opened.get(histogram.name) ?? OPEN.has(histogram.name);
  const noun = histogram.counts === "objects" ? el("span", {}, "objects") : null;
  return el("details", {
    class: "find-section", open: isOpen, "data-name": histogram.name,
    ontoggle: ({ target }) => opened.set(histogram.name, target.open),
  }, el("summary", {}, TITLES[histogram.name] ?? plain(histogram.name), noun), content);
}

function makeButton(histogram, bar, attributes, pressed, ...children) {
  const noun = `${histogram.counts === "objects" ? "object" : "record"}${bar.count === 1 ? "" : "s"}`;
  const counted = bar.matched === bar.count ? count(bar.count)
    : `${count(bar.matched)} of ${count(bar.count)}`;
  return el("button", {
    type: "button", "data-query": bar.query, "aria-pressed": String(pressed.has(bar.query)),
    "aria-label": `${plain(histogram.name)} ${plain(bar.label)}: ${counted} ${noun}`,
    title: `${plain(bar.label)}: ${counted}`,
    onclick: (event) => toggle(event, histogram, bar), ...attributes,
  }, ...children);
}

function drawChips(histogram, { about, q }) {
  const pressed = findPressed(q, histogram);
  const chips = histogram.bars.map((bar) => makeButton(histogram, bar, {
    class: "find-chip", title: about[bar.label] ?? "",
  }, pressed, bar.label, el("b", {}, count(bar.matched))));
  return el("div", { class: "find-chips", role: "group", "aria-label": "Problems" }, chips);
}

function drawRows(histogram, { q, renew }) {
  const most = Math.max(...histogram.bars.map((bar) => bar.count));
  const color = ({ number }) => PLAIN.has(histogram.name) ? "" : `;background:${classColor(number)}`;
  const isWhole = whole.has(histogram.name), pressed = findPressed(q, histogram);
  const shown = isWhole ? histogram.bars
    : histogram.bars.filter((bar, place) => place < FEW || pressed.has(bar.query));
  const rows = shown.map((bar) => el("li", {}, makeButton(histogram, bar, { class: "find-class" }, pressed,
    el("i", { style: `width:${(100 * bar.count) / most}%` }), el("i", {
      class: "find-matched", style: `width:${(100 * bar.matched) / most}%${color(bar)}`,
    }), el("span", {}, plain(bar.label)), el("b", {}, count(bar.matched)))));
  const rest = histogram.bars.length + histogram.more - shown.length;
  const more = rest || isWhole ? el("button", {
    type: "button", class: "find-link", "data-query": `more ${histogram.name}`,
    onclick: () => { if (!whole.delete(histogram.name)) whole.add(histogram.name); renew(); },
  }, isWhole ? "Show fewer" : `Show ${count(rest)} more`) : null;
  const hidden = isWhole && histogram.more ? el("p", {}, `${count(histogram.more)} more are not shown`) : null;
  return [el("ul", { class: "find-classes" }, rows), hidden, more];
}

/** Bars side by side; one stop for Tab, the arrows go from bar to bar. */
function drawBars(histogram, { q }) {
  const most = Math.max(...histogram.bars.map((bar) => bar.count));
  const pressed = findPressed(q, histogram), first = histogram.bars.findIndex((bar) => pressed.has(bar.query));
  const height = (bars) => bars ? Math.max(3, (100 * bars) / most) : 0;
  const buttons = histogram.bars.map((bar, place) => makeButton(histogram, bar, {
    class: "find-bar", tabindex: place === Math.max(first, 0) ? 0 : -1,
  }, pressed, el("i", { style: `height:${height(bar.count)}%` }),
  el("i", { class: "find-matched", style: `height:${height(bar.matched)}%` })));
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const at = Math.min(Math.max(buttons.indexOf(document.activeElement) + step, 0), buttons.length - 1);
    buttons.forEach((each, place) => each.setAttribute("tabindex", place === at ? 0 : -1));
    buttons[at].focus();
  };
  const begin = histogram.bars[0].label.split(" to ")[0];
  const end = histogram.bars.at(-1).label.split(" to ").at(-1).replace(" and more", " …");
  return [
    el("div", { class: "find-bars", role: "group", "aria-label": histogram.name, onkeydown: move }, buttons),
    el("div", { class: "find-axis", "aria-hidden": "true" }, el("span", {}, begin), el("span", {}, end)),
  ];
}
