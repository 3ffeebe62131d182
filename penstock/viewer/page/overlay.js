// Annotations as vectors over a picture, in an <svg> whose viewBox counts the picture's pixels.
import { classColor, el, plain } from "./app.js";

const MOST_TEXTS = 300;

export function colorOf(item, kind) {
  if (kind === "tracks" && item.track !== null && item.track !== undefined) return classColor(item.track);
  if (item.class !== null && item.class !== undefined) return classColor(item.class);
  let sum = 0;
  for (const letter of item.name ?? "") sum = (sum * 31 + letter.codePointAt(0)) % 997;
  return classColor(sum);
}

function outline({ box: [x0, y0, x1, y1] }) {
  return `M${x0} ${y0}H${x1}V${y1}H${x0}Z`;
}

/** A mask's runs of pixels as one shape; rows overlap a little, so that no seam is seen between them. */
function area({ runs, scale }) {
  const height = scale * 1.04;
  const draw = ([row, from, to]) => `M${from * scale} ${row * scale}H${to * scale}v${height}H${from * scale}Z`;
  return runs.map(draw).join("");
}

function dots({ points }) {
  return points.filter(([, , visible]) => visible > 0).map(([x, y]) => `M${x} ${y}h0`).join("");
}

/** What a box says: its name, its track, its score, and what is wrong with a prediction. */
function wording({ name, track, score, wrong }) {
  const parts = [plain(name ?? "").slice(0, 40)];
  if (track !== null && track !== undefined) parts.push(`#${track}`);
  if (score !== null && score !== undefined) parts.push(Number(score).toFixed(2));
  return [parts.filter(Boolean).join(" "), plain(wrong).slice(0, 60)].filter(Boolean).join(", ");
}

/** An object as the path of its outline, its points or its area. */
export function trace(item) { return item.box ? outline(item) : item.points ? dots(item) : area(item); }

function joinByColor(items, kind, draw) {
  const paths = new Map();
  for (const item of items) {
    const drawn = draw(item);
    const color = colorOf(item, kind);
    if (drawn) paths.set(color, (paths.get(color) ?? "") + drawn);
  }
  return paths;
}

function drawText(svg, item, kind, scale, width) {
  const words = wording(item);
  if (!words) return;
  const [x0, y0] = item.box ?? item.points?.find(([, , visible]) => visible > 0) ?? [];
  if (x0 === undefined) return;
  const size = 11 * scale;
  const x = Math.min(Math.max(x0 + 3 * scale, 2 * scale), Math.max(width - words.length * size * 0.58, 2 * scale));
  const y = Math.max(y0 + size * 1.1, size);
  svg.append(el("text", { x, y, fill: colorOf(item, kind), "font-size": size, "stroke-width": 3 * scale }, words));
}

/**
 * Draw the layers of a picture.
 *
 * svg: its class is "overlay"; its viewBox is set by the caller, or by `fit`.
 * shown: {width, height, layers} of api/layers.
 * scale: pixels of the picture in one pixel of the screen. hidden: ids that are off. names: whether texts are drawn.
 */
export function drawLayers(svg, shown, { scale = 1, hidden = new Set(), names = false, fit = true } = {}) {
  svg.replaceChildren();
  if (!shown?.layers) return;
  if (fit) svg.setAttribute("viewBox", `0 0 ${shown.width} ${shown.height}`);
  const isBoxed = shown.layers.some(({ id, kind }) => kind !== "points" && kind !== "masks" && !hidden.has(id));
  let texts = 0;
  for (const { id, kind, source, items } of shown.layers) {
    if (hidden.has(id)) continue;
    const guess = source === "predictions" ? " guess" : "";
    if (kind === "masks") {
      const areas = [...joinByColor(items, kind, area)];
      svg.append(...areas.map(([fill, d]) => el("path", { class: "mask", d, style: `fill:${fill}` })));
      continue;
    }
    const draw = kind === "points" ? dots : outline;
    const form = kind === "points" ? "dots" : `edge${guess}`;
    const paths = joinByColor(items, kind, draw);
    svg.append(el("path", { class: `halo ${form}`, d: [...paths.values()].join("") }));
    const wrong = items.filter((item) => item.wrong).map(draw).join("");
    if (wrong) svg.append(el("path", { class: "edge wrong", d: wrong }));
    for (const [stroke, d] of paths) svg.append(el("path", { class: form, d, style: `stroke:${stroke}` }));
    if (!names || (kind === "points" && isBoxed)) continue;
    for (const item of items) if (texts++ < MOST_TEXTS) drawText(svg, item, kind, scale, shown.width);
  }
}
