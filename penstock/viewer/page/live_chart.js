// Charts of a loader over time, as SVG: each point is as wide as the time that it is about, so that pauses are gaps.
import { el } from "./app.js";

const WIDTH = 600, HEIGHT = 64;
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

/** A number as text, with as many digits as it deserves. */
export function format(value) {
  return Math.abs(value) >= 100 ? whole.format(value) : fine.format(Number(value.toPrecision(3)));
}

export function formatBytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${format(value)} ${units[unit]}`;
}

/** Rectangles of one layer as the path of an SVG. */
function drawArea(points, x, y, below, value) {
  return points.map((point, at) => {
    const left = x(point.t - point.seconds), right = x(point.t);
    const low = y(below[at]), high = y(below[at] + value(point));
    return `M${left} ${low}H${right}V${high}H${left}Z`;
  }).join("");
}

/** Steps of one layer as the path of an SVG. */
function drawLine(points, x, y, value) {
  let path = "", last = null;
  for (const point of points) {
    const left = point.t - point.seconds, height = y(value(point));
    path += last !== null && left - last < 2 ? `L${x(left)} ${height}` : `M${x(left)} ${height}`;
    path += `H${x(point.t)}`;
    last = point.t;
  }
  return path;
}

/**
 * A chart: makeChart({title, unit, layers: [{name, value(point), kind: "area" | "line", tone}], limit(points)}).
 * Areas are stacked. Its `root` is an element; `update(points, from, to)` draws.
 */
export function makeChart({ title, unit, layers, limit = null }) {
  const paths = layers.map(({ kind, tone }) => el("path", { svg: true, class: `${kind} tone-${tone}` }));
  const svg = el("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  svg.append(...paths);
  const top = el("span", { class: "live-top" }), now = el("output", { class: "live-now" });
  const values = layers.map(() => el("b"));
  const legend = layers.length < 2 ? null : el("ul", { class: "live-legend" }, layers.map(({ name, tone }, at) =>
    el("li", {}, el("i", { class: `tone-${tone}`, "aria-hidden": "true" }), name, values[at])));
  const root = el("figure", { class: "live-chart" },
    el("figcaption", {}, el("span", {}, title), now), el("div", { class: "live-plot" }, svg, top), legend);
  const areas = layers.filter(({ kind }) => kind === "area");

  function update(points, from, to) {
    const sums = points.map((point) => areas.reduce((sum, { value }) => sum + value(point), 0));
    const lines = layers.filter(({ kind }) => kind === "line");
    const highest = Math.max(
      limit ? limit(points) : 0, ...sums, ...lines.map(({ value }) => Math.max(0, ...points.map(value))), 1e-9);
    const x = (t) => (((t - from) / Math.max(to - from, 1e-9)) * WIDTH).toFixed(1);
    const y = (value) => (HEIGHT - (value / highest) * (HEIGHT - 2) - 1).toFixed(1);
    const below = points.map(() => 0);
    layers.forEach(({ kind, value }, at) => {
      const path = kind === "line" ? drawLine(points, x, y, value) : drawArea(points, x, y, below, value);
      paths[at].setAttribute("d", path);
      if (kind === "area") points.forEach((point, number) => { below[number] += value(point); });
    });
    const last = points.at(-1);
    values.forEach((shown, at) => { shown.textContent = last ? format(layers[at].value(last)) : "–"; });
    const total = last ? (areas.length ? sums.at(-1) : layers[0].value(last)) : 0;
    now.textContent = last ? `${format(total)} ${unit}` : "–";
    top.textContent = points.length ? format(highest) : "";
    const parts = last ? layers.map(({ name, value }) => `${name} ${format(value(last))}`).join(", ") : "nothing yet";
    svg.setAttribute("aria-label", `${title}, ${unit}: ${parts}; at most ${format(highest)}`);
  }
  return { root, update };
}
