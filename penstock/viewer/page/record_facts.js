// What is known of a record, as tables: its fields, its picture, Exif, the structure of a JPEG, where its bytes lie.
import { classColor, count, el, plain } from "./app.js";

const LONG = 100;

/** A number of bytes: 1,234 B, 56.7 kB, 8.9 MB. */
export function nbytes(number) {
  if (number < 10_000) return `${count(number)} B`;
  return number < 1e6 ? `${(number / 1e3).toFixed(1)} kB` : `${(number / 1e6).toFixed(1)} MB`;
}

function value(text, length, isCut) {
  const shown = plain(text);
  if (shown.length <= LONG) return el("bdi", {}, shown);
  const note = isCut ? `the first ${count(text.length)}; the whole has ${count(length)}` : `${count(length)} in all`;
  return el("details", {}, el("summary", {}, el("bdi", {}, `${shown.slice(0, LONG)}…`)),
    el("p", { class: "long" }, shown), el("p", { class: "quiet" }, note));
}

function table(rows) {
  return el("dl", { class: "facts" }, rows.filter(([, shown]) => shown !== null && shown !== undefined && shown !== "")
    .map(([name, shown]) => el("div", {}, el("dt", {}, plain(name)), el("dd", {}, shown))));
}

function section(title, ...content) {
  return el("section", {}, el("h3", {}, title), content);
}

/** "15 RBC, 1 WBC". */
function countClasses(classes) {
  const counts = new Map();
  for (const name of classes) counts.set(name, (counts.get(name) ?? 0) + 1);
  const order = [...counts].sort((one, other) => other[1] - one[1]);
  return order.map(([name, times]) => `${count(times)} ${name}`).join(", ");
}

function fieldValue({ kind, text, length, is_cut: isCut, is_absent: isAbsent, is_bad: isBad, class: name, classes }) {
  if (isAbsent) return el("span", { class: "quiet" }, "none");
  if (isBad) return el("span", { class: "bad" }, plain(text));
  if (name !== undefined) {
    const dot = el("span", { class: "swatch" });
    dot.style.background = classColor(Number(text));
    return [dot, " ", el("bdi", {}, plain(name)), el("span", { class: "quiet" }, ` ${text}`)];
  }
  if (/image|bytes|blob|mask/.test(kind) && isCut) return `${nbytes(length)}, ${kind}`;
  if (classes?.length) return [el("div", {}, plain(countClasses(classes))), value(text, length, isCut)];
  return value(text, length, isCut);
}

function jpegRows(jpeg) {
  const quality = jpeg.quality === null ? null : `${jpeg.is_standard_quality ? "" : "about "}${jpeg.quality}`;
  return [
    ["process", jpeg.process], ["quality", quality], ["sampling", jpeg.sampling], ["colour", jpeg.color],
    ["components", jpeg.components], ["bits", jpeg.precision], ["scans", jpeg.scans],
    ["restart markers", jpeg.restart_interval ? `every ${count(jpeg.restart_interval)} MCUs` : "none"],
    ["seek table", jpeg.seek_table], ["end", jpeg.is_truncated ? "missing: the file is cut" : "there"],
    ["decoder", jpeg.decoder],
  ];
}

/** Sections of a record, from the answer of api/record. */
export function drawFacts(found) {
  const { picture, places } = found;
  const sections = [section("Fields", table(found.fields.map((field) => [field.name, fieldValue(field)])))];
  if (picture) {
    sections.push(section("Picture", table([
      ["size", picture.width && `${count(picture.width)} × ${count(picture.height)}`],
      ["format", picture.format && plain(picture.format)], ["bytes", picture.nbytes && nbytes(picture.nbytes)],
      ["channels", picture.channels], ["type", picture.dtype], ["values", picture.range?.join(" to ")],
      ["problem", picture.problem && el("span", { class: "bad" }, plain(picture.problem))],
    ])));
    if (picture.jpeg) sections.push(section("JPEG", table(jpegRows(picture.jpeg))));
    if (picture.exif?.length) {
      const tags = picture.exif.map(({ name, text, length, is_cut: isCut }) => [name, value(text, length, isCut)]);
      sections.push(section("Exif", table(tags)));
    }
  }
  const where = Object.entries(places ?? {}).flatMap(([name, { path, offset, nbytes: size }]) => [
    [name, el("bdi", { class: "path" }, plain(path))], ["bytes", `${count(offset)} to ${count(offset + size)}`],
  ]);
  if (!where.length) where.push(["store", el("bdi", { class: "path" }, plain(found.store))]);
  sections.push(section("Where its bytes lie", table(where)));
  return sections;
}
