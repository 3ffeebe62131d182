// Counts of the records that fit beside all: problems as chips, classes as rows, numbers as bars. Each is a button that
// adds its condition to the filter, or takes it out again; with shift or ctrl it is added to others of its name.
import { app, classColor, count, el, plain, set } from "./app.js";

const FEW = 8;
const OPEN = new Set(["class", "label", "boxes", "width", "format"]);
const PLAIN = new Set(["format"]);
const TITLES = { nbytes: "bytes of the picture", boxes: "boxes per picture", area: "area of boxes" };

const opened = new Map(), whole = new Set();
let drawn = "";

/** Whether a filter has a condition as one of those that are joined by `and`. */
export function hasCondition(q, condition) {
  return findCondition(q, condition) >= 0;
}

function findCondition(q, condition) {
  for (let at = q.indexOf(condition); at >= 0; at = q.indexOf(condition, at + 1)) {
    const before = q.slice(0, at), after = q.slice(at + condition.length);
    const isOpen = (before.split("(").length !== before.split(")").length) || before.split('"').length % 2 === 0;
    if (!isOpen && /^$| and $/.test(before.slice(-5)) && /^$|^ and /.test(after)) return at;
  }
  return -1;
}

export function withoutCondition(q, condition) {
  const at = findCondition(q, condition);
  if (at < 0) return q;
  const before = q.slice(0, at).replace(/ and $/, ""), after = q.slice(at + condition.length).replace(/^ and /, "");
  return before && after ? `${before} and ${after}` : before || after;
}

export function withCondition(q, condition) {
  if (!q) return condition;
  return hasLooseOr(q) ? `(${q}) and ${condition}` : `${q} and ${condition}`;
}

/** Whether a filter has an `or` outside of parentheses and quotes. */
function hasLooseOr(q) {
  let rest = q.replace(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/g, '""'), before;
  do {
    before = rest;
    rest = rest.replace(/\([^()]*\)/g, "");
  } while (rest !== before);
  return /(^|[\s"])or($|[\s"])/i.test(rest);
}

function toggle(event, histogram, bar) {
  const q = app.state.q ?? "";
  if (hasCondition(q, bar.query)) {
    set({ q: withoutCondition(q, bar.query), index: null });
    return;
  }
  const isAdded = event.shiftKey || event.ctrlKey || event.metaKey;
  const others = isAdded ? [] : histogram.bars.filter((each) => hasCondition(q, each.query));
  const left = others.reduce((rest, each) => withoutCondition(rest, each.query), q);
  set({ q: withCondition(left, bar.query), index: null });
}

/** Draw all counts into `root`; the button that has the focus keeps it. */
export function drawCounts(root, found, { about, q }) {
  const seen = JSON.stringify([found.histograms, q, [...whole]]);
  if (seen === drawn && root.firstChild) return;
  drawn = seen;
  const focused = document.activeElement?.dataset?.query;
  const scrolled = root.closest("aside")?.scrollTop;
  const redraw = () => { drawn = ""; drawCounts(root, found, { about, q }); };
  root.replaceChildren(...found.histograms.map((each) => each.kind === "flags" ? drawChips(each, { about, q })
    : drawSection(each, each.kind === "class" ? drawRows(each, { q, redraw }) : drawBars(each, { q }))));
  if (scrolled) root.closest("aside").scrollTop = scrolled;
  if (focused) [...root.querySelectorAll("button")].find((each) => each.dataset.query === focused)?.focus();
}

function drawSection(histogram, content) {
  const isOpen = opened.get(histogram.name) ?? OPEN.has(histogram.name);
  const noun = histogram.counts === "objects" ? el("span", {}, "objects") : null;
  return el("details", {
    class: "find-section", open: isOpen, "data-name": histogram.name,
    ontoggle: ({ target }) => opened.set(histogram.name, target.open),
  }, el("summary", {}, TITLES[histogram.name] ?? plain(histogram.name), noun), content);
}

function makeButton(histogram, bar, attributes, q, ...children) {
  const noun = `${histogram.counts === "objects" ? "object" : "record"}${bar.count === 1 ? "" : "s"}`;
  const counted = bar.matched === bar.count ? count(bar.count)
    : `${count(bar.matched)} of ${count(bar.count)}`;
  return el("button", {
    type: "button", "data-query": bar.query, "aria-pressed": String(hasCondition(q, bar.query)),
    "aria-label": `${plain(histogram.name)} ${plain(bar.label)}: ${counted} ${noun}`,
    title: `${plain(bar.label)}: ${counted}`,
    onclick: (event) => toggle(event, histogram, bar), ...attributes,
  }, ...children);
}

function drawChips(histogram, { about, q }) {
  const chips = histogram.bars.map((bar) => makeButton(histogram, bar, {
    class: "find-chip", title: about[bar.label] ?? "",
  }, q, bar.label, el("b", {}, count(bar.matched))));
  return el("div", { class: "find-chips", role: "group", "aria-label": "Problems" }, chips);
}

function drawRows(histogram, { q, redraw }) {
  const most = Math.max(...histogram.bars.map((bar) => bar.count));
  const color = ({ number }) => PLAIN.has(histogram.name) ? "" : `;background:${classColor(number)}`;
  const isWhole = whole.has(histogram.name);
  const shown = isWhole ? histogram.bars
    : histogram.bars.filter((bar, place) => place < FEW || hasCondition(q, bar.query));
  const rows = shown.map((bar) => el("li", {}, makeButton(histogram, bar, { class: "find-class" }, q,
    el("i", { style: `width:${(100 * bar.count) / most}%` }), el("i", {
      class: "find-matched", style: `width:${(100 * bar.matched) / most}%${color(bar)}`,
    }), el("span", {}, plain(bar.label)), el("b", {}, count(bar.matched)))));
  const rest = histogram.bars.length - shown.length;
  const more = rest || isWhole ? el("button", {
    type: "button", class: "find-link", "data-query": `more ${histogram.name}`,
    onclick: () => { if (!whole.delete(histogram.name)) whole.add(histogram.name); redraw(); },
  }, isWhole ? "Show fewer" : `Show ${rest} more`) : null;
  const hidden = isWhole && histogram.more ? el("p", {}, `${count(histogram.more)} more are not shown`) : null;
  return [el("ul", { class: "find-classes" }, rows), hidden, more];
}

/** Bars side by side; one stop for Tab, the arrows go from bar to bar. */
function drawBars(histogram, { q }) {
  const most = Math.max(...histogram.bars.map((bar) => bar.count));
  const pressed = histogram.bars.findIndex((bar) => hasCondition(q, bar.query));
  const height = (bars) => bars ? Math.max(3, (100 * bars) / most) : 0;
  const buttons = histogram.bars.map((bar, place) => makeButton(histogram, bar, {
    class: "find-bar", tabindex: place === Math.max(pressed, 0) ? 0 : -1,
  }, q, el("i", { style: `height:${height(bar.count)}%` }),
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
  const first = histogram.bars[0].label.split(" to ")[0];
  const last = histogram.bars.at(-1).label.split(" to ").at(-1).replace(" and more", " …");
  return [
    el("div", { class: "find-bars", role: "group", "aria-label": histogram.name, onkeydown: move }, buttons),
    el("div", { class: "find-axis", "aria-hidden": "true" }, el("span", {}, first), el("span", {}, last)),
  ];
}
