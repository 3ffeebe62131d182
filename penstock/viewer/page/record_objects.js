// The objects of a record as a table: a row for each box, mask and object with keypoints that is drawn.
import { count, el, plain } from "./app.js";
import { colorOf } from "./overlay.js";

const COLUMNS = [["class", "class"], ["kind", "kind"], ["place", "coordinates"], ["area", "area"], ["score", "score"]];

/** The area of an object in pixels, of a mask as it is drawn; null where it has none. */
export function areaOf({ box, runs, scale }) {
  if (box) return Math.max(0, box[2] - box[0]) * Math.max(0, box[3] - box[1]);
  return runs ? runs.reduce((sum, [, from, to]) => sum + to - from, 0) * scale * scale : null;
}

function placeOf({ box, points, runs, scale }) {
  if (box) return box;
  if (points) return points.filter(([, , visible]) => visible > 0).flatMap(([x, y]) => [x, y]);
  let [x0, y0, x1, y1] = [Infinity, Infinity, 0, 0];
  for (const [row, from, to] of runs) {
    [x0, y0, x1, y1] = [Math.min(x0, from), Math.min(y0, row), Math.max(x1, to), Math.max(y1, row + 1)];
  }
  return x1 ? [x0, y0, x1, y1].map((each) => each * scale) : [];
}

function compare(one, other) {
  if (one === other) return 0;
  if (one === null || other === null) return one === null ? 1 : -1;
  if (Array.isArray(one)) return (one[0] ?? Infinity) - (other[0] ?? Infinity) || one[1] - other[1] || 0;
  return typeof one === "number" ? one - other : one.localeCompare(other, undefined, { numeric: true });
}

export class RecordObjects {
  /** pointed(item): the row of this object has the pointer or the focus; null: none has. */
  constructor(pointed) {
    Object.assign(this, { pointed, rows: [], sort: "", isDescending: false });
    this.root = el("section", { class: "objects", hidden: true });
  }

  /** Show the layers of api/layers; undefined: none. */
  show(layers = []) {
    this.rows = layers.flatMap((layer) => layer.items.map((item) => ({
      item, color: colorOf(item, layer.kind), class: plain(item.name).slice(0, 200), kind: plain(layer.name),
      place: placeOf(item), area: areaOf(item), score: item.score ?? null,
    })));
    this.notes = layers.map(({ problem }) => plain(problem)).filter(Boolean);
    this.sort = "";
    this.isDescending = false;
    this.root.hidden = !this.rows.length;
    this.root.replaceChildren();
    if (this.rows.length) this.#draw();
  }

  /** Mark the row of an object; null: of none. */
  mark(item) {
    for (const row of this.rows) row.tr?.classList.toggle("marked", row.item === item);
    const found = this.rows.find((row) => row.item === item)?.tr;
    if (found && !found.matches(":hover, :focus")) found.scrollIntoView({ block: "nearest" });
  }

  #draw() {
    const columns = COLUMNS.filter(([name]) => name !== "score" || this.rows.some(({ score }) => score !== null));
    const heads = columns.map(([name, title]) => {
      const order = this.sort !== name ? "none" : this.isDescending ? "descending" : "ascending";
      const sign = { none: "", ascending: " ↑", descending: " ↓" }[order];
      return el("th", { scope: "col", "aria-sort": order },
        el("button", { type: "button", class: "quiet", "data-name": name, onclick: () => this.#sort(name) },
          title, el("span", { "aria-hidden": "true" }, sign)));
    });
    this.body = el("tbody", {}, this.#order().map((row, at) => this.#drawRow(row, columns, at)));
    this.body.addEventListener("keydown", (event) => this.#move(event));
    const number = this.rows.length;
    this.root.replaceChildren(
      el("h3", {}, `Objects (${count(number)})`), this.notes?.length ? el("p", {}, this.notes.join("; ")) : "",
      el("div", { class: "objects-table" }, el("table", { "aria-label": "Objects" },
        el("thead", {}, el("tr", {}, heads)), this.body)));
  }

  #drawRow(row, columns, at) {
    const dot = el("span", { class: "swatch" });
    dot.style.background = row.color;
    const number = (value) => Number(value.toFixed(2)).toString();
    const texts = {
      class: [dot, " ", el("bdi", {}, row.class)], kind: row.kind, place: row.place.slice(0, 8).map(number).join(", ")
        + (row.place.length > 8 ? ", …" : ""),
      area: row.area === null ? "" : count(Math.round(row.area)), score: row.score === null ? "" : row.score.toFixed(3),
    };
    row.tr = el("tr", {
      tabindex: at ? -1 : 0, onpointerenter: () => this.pointed(row.item), onpointerleave: () => this.pointed(null),
      onfocus: () => this.#focused(row), onblur: () => this.pointed(null),
    }, columns.map(([name]) => el("td", {}, texts[name])));
    return row.tr;
  }

  #focused(row) {
    for (const each of this.body.querySelectorAll('[tabindex="0"]')) each.tabIndex = -1;
    row.tr.tabIndex = 0;
    this.pointed(row.item);
  }

  /** The arrows go from row to row; elsewhere they go to another record. */
  #move(event) {
    const rows = [...this.body.children], at = rows.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    rows[Math.min(Math.max(to, 0), rows.length - 1)].focus();
  }

  #order() {
    const { sort } = this;
    if (!sort) return this.rows;
    const sign = this.isDescending ? -1 : 1;
    return this.rows.toSorted((one, other) => one[sort] === null || other[sort] === null
      ? compare(one[sort], other[sort]) : sign * compare(one[sort], other[sort]));
  }

  #sort(name) {
    this.isDescending = this.sort === name && !this.isDescending;
    this.sort = name;
    this.#draw();
    this.root.querySelector(`[data-name="${name}"]`).focus();
  }
}
