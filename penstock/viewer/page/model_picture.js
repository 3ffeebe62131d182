// Pictures of samples with their annotations and outlines, and values in words, for the page "Model".
import { el, hiddenLayers, noteLayers, plain, sharpen } from "./app.js";
import { drawLayers } from "./overlay.js";

/** What a sample has, in words: "3 boxes, 1 masks". */
export function countLayers(layers = []) {
  return layers.map((layer) => `${layer.items.length} ${layer.name}`).join(", ");
}

/** Draw what lies beside an outline darker, its edge, and a dot at the corner that is the left top one of the sample. */
function drawOutline(svg, { width, height }, corners, isGuess) {
  const points = corners.map((corner) => corner.join(" ")).join("L");
  svg.append(el("path", { d: `M0 0H${width}V${height}H0ZM${points}Z`, class: "beside" }),
    el("path", { d: `M${points}Z`, class: isGuess ? "outline guess" : "outline" }),
    el("path", { d: `M${corners[0].join(" ")}h0`, class: "corner" }));
}

/** A picture with its layers and, in `outline`, the corners of a part of it. */
export function picture(step, { alt, outline = null, isGuess = false, isLarge = false } = {}) {
  if (!step.picture) return el("div", { class: "model-none" }, plain(step.problem ?? "no picture"));
  const { width, height } = step;
  const svg = el("svg", { class: "overlay", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  noteLayers(step.layers);
  const hidden = hiddenLayers();
  drawLayers(svg, step, { hidden, names: isLarge && !hidden.has("names"), scale: Math.max(width / 320, height / 480) });
  if (outline) drawOutline(svg, step, outline, isGuess);
  const image = el("img", { src: step.picture, alt: plain(alt), width, height, onload: () => sharpen(image) });
  return el("div", { class: "model-picture", style: `--ratio: ${width / height}` }, image, svg);
}

/** Dtype, shape and range of a value, in words. */
export function describe(values) {
  if (!values) return "";
  const parts = [values.dtype ?? values.type];
  if (values.shape) parts.push(values.shape.join(" × "));
  if (values.nbytes !== undefined) parts.push(`${values.nbytes.toLocaleString("en-US")} bytes`);
  if (values.low !== undefined) parts.push(`${values.low} to ${values.high}`);
  if (values.mean !== undefined) parts.push(`mean ${values.mean}, std ${values.std}`);
  if (values.not_finite) parts.push(`${values.not_finite} not finite`);
  return parts.filter(Boolean).join(" · ");
}
