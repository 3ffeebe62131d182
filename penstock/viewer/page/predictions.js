// Predictions beside annotations: counts, the confusion of classes, precision and recall, the records of each set.
import { action, api, app, count, el, on, panel, plain, register, set, sharpen } from "./app.js";
import { drawLayers } from "./overlay.js";

const SETS = {
  "false-positives": "False positives", "wrong-class": "Wrong class", duplicates: "Duplicates", "nothing-there": "Nothing there",
  missed: "Missed", correct: "Correct",
};
const OF_LABELS = ["wrong-class", "missed", "correct"];
const MOST_CLASSES = 16, PAGE = 24;

const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(1)} %`);
const numberOf = (name, least) => { const found = Number(app.state[name]); return app.state[name] && found >= 0 && found <= 1 ? found : least; };
const iou = () => numberOf("predictions-iou", 0.5);
const score = () => numberOf("predictions-score", 0.3);

/** A set and the thresholds that it belongs to, as api/rows takes it. */
const named = (name) => `${name}@${iou()},${score()}`;
const chosen = () => app.state["predictions-set"] ?? "";

function titleOf(name, names) {
  const [kind, cell] = name.split("@")[0].split(":");
  if (!cell) return SETS[kind] ?? plain(kind);
  const [truth, guess] = cell.split(">").map((number) => plain(names[number] ?? ""));
  return !guess ? `${truth} missed` : !truth ? `${guess} where none is` : truth === guess ? `${truth} found` : `${truth} taken for ${guess}`;
}

function mount(root) {
  const head = el("header", { class: "predictions-head" });
  const tiles = el("div", { class: "predictions-tiles", role: "group", "aria-label": "Sets of records" });
  const matrix = el("section", { class: "predictions-matrix", "aria-label": "Confusion of classes" });
  const table = el("section", { class: "predictions-classes", "aria-label": "Classes" });
  const shown = el("section", { class: "predictions-records", "aria-label": "Records" });
  root.append(el("div", { class: "predictions" }, head, tiles, el("div", { class: "predictions-body" }, el("div", {}, matrix, table), shown)));
  let summary = null, found = null, stop = null, isEnded = false, start = 0, total = 0;
  const isBoxes = () => summary.kind === "boxes";
  const fallback = () => (isBoxes() ? "false-positives" : "wrong-class");

  function slider(title, name, value, [least, most], text) {
    const output = el("output", {}, value.toFixed(2));
    const input = el("input", { type: "range", min: least, max: most, step: 0.05, value, title: text });
    input.addEventListener("input", () => { output.textContent = Number(input.value).toFixed(2); });
    input.addEventListener("change", () => set({ [name]: input.value }, { replace: true }));
    return el("label", { class: "predictions-slider" }, el("span", {}, title), input, output);
  }

  function drawHead() {
    const { file, count: all, records, notes, error } = summary;
    const what = isBoxes() ? "objects" : "predictions";
    head.replaceChildren(
      el("div", {}, el("p", {}, el("b", {}, plain(file)), ` ${count(all)} ${what}, ${count(records)} of ${count(app.session.total)} records`),
        el("p", { class: "quiet" }, plain(`${notes.join("; ")}.`)), error ? el("p", { class: "bad" }, plain(error)) : ""),
      ...(error ? [] : [
        isBoxes() ? slider("IoU", "predictions-iou", iou(), [0.1, 0.95], "How much a box must overlap an object to find it") : "",
        slider("Score", "predictions-score", score(), [0, 1], "Predictions below are left out, here and in pictures")]));
  }

  async function begin() {
    summary = await api("predictions/summary");
    while (!summary.ready && !isEnded) {
      head.replaceChildren(el("p", { class: "quiet" }, "Reading annotations"));
      await new Promise((next) => setTimeout(next, 300));
      summary = await api("predictions/summary");
    }
    if (isEnded) return;
    drawHead();
    if (!summary.error) await evaluate();
  }

  async function evaluate() {
    stop?.abort();
    stop = new AbortController();
    const given = await api("predictions/evaluate", { iou: iou(), score: score() }, { signal: stop.signal }).catch(() => null);
    if (isEnded || !given) return;
    found = given;
    drawTiles();
    drawMatrix();
    drawClasses();
    start = 0;
    await drawRecords();
  }

  function drawTiles() {
    const { counts } = found;
    const sum = counts["wrong-class"] + counts.duplicates + counts["nothing-there"];
    tiles.replaceChildren(...Object.entries(SETS).filter(([id]) => isBoxes() || OF_LABELS.includes(id)).map(([id, title]) => el("button", {
      type: "button", "aria-pressed": String((chosen() || fallback()) === id), onclick: () => set({ "predictions-set": id }),
    }, el("b", {}, count(id === "false-positives" ? sum : counts[id])), ` ${title}`)));
  }

  /** Rows are classes of objects, columns those of predictions; those with most errors are first. */
  function drawMatrix() {
    const classes = found.classes.slice(0, MOST_CLASSES);
    const numbers = [...classes.map(({ number }) => number), -1];
    const cells = new Map(found.cells.map(([truth, guess, n]) => [`${truth}>${guess}`, n]));
    const most = new Map(numbers.map((truth) => [truth, Math.max(1, ...numbers.map((guess) => cells.get(`${truth}>${guess}`) ?? 0))]));
    const name = (number, none) => (number < 0 ? none : plain(summary.classes[number]).slice(0, 40));
    const button = (truth, guess) => {
      const id = `${truth}>${guess}`, n = cells.get(id) ?? 0;
      if (!n) return el("td", {});
      const share = Math.round(12 + 60 * n / most.get(truth));
      return el("td", {}, el("button", {
        type: "button", tabindex: -1, "aria-pressed": String(chosen() === `confused:${id}`),
        class: truth === guess ? "right" : "", style: `--share:${share}%`, title: titleOf(`confused:${id}`, summary.classes),
        "aria-label": `${titleOf(`confused:${id}`, summary.classes)}: ${count(n)}`,
        onclick: () => set({ "predictions-set": `confused:${id}` }),
      }, count(n)));
    };
    const isAll = classes.length === found.classes.length;
    matrix.replaceChildren(el("h3", {}, isAll ? "Confusion" : `Confusion of the ${MOST_CLASSES} classes with most errors, of ${count(found.classes.length)}`),
      el("div", { class: "predictions-scroll", tabindex: 0, role: "region", "aria-label": "Confusion matrix: arrow keys move" }, el("table", {},
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "annotated \\ predicted"),
          ...numbers.map((guess) => el("th", { scope: "col" }, el("span", {}, name(guess, isBoxes() ? "missed" : "none")))))),
        el("tbody", {}, ...numbers.filter((truth) => truth >= 0 || isBoxes()).map((truth) => el("tr", {},
          el("th", { scope: "row" }, name(truth, "nothing there")), ...numbers.map((guess) => button(truth, guess))))))));
    const buttons = matrix.querySelectorAll("button");
    if (buttons.length) (matrix.querySelector("[aria-pressed=true]") ?? buttons[0]).tabIndex = 0;
  }

  matrix.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const here = event.target.closest("td");
    if (!step || (!here && event.target.getAttribute("role") !== "region")) return;
    event.preventDefault();
    const lines = [...matrix.querySelectorAll("tbody tr")].map((line) => [...line.querySelectorAll("td")]);
    let row = lines.findIndex((line) => line.includes(here)), column = lines[row]?.indexOf(here), button = null;
    if (!here) button = matrix.querySelector("button");
    while (!button) {
      row += step[0]; column += step[1];
      if (!lines[row]?.[column]) return;
      button = lines[row][column].querySelector("button");
    }
    for (const each of matrix.querySelectorAll("button")) each.tabIndex = each === button ? 0 : -1;
    button.focus();
  });

  function drawClasses() {
    const columns = ["Class", isBoxes() ? "Objects" : "Records", "Predicted", "Precision", "Recall"];
    table.replaceChildren(el("h3", {}, "Classes"), el("div", { class: "predictions-scroll", tabindex: 0, role: "region", "aria-label": "Precision and recall" }, el("table", {},
      el("thead", {}, el("tr", {}, ...columns.map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, ...found.classes.slice(0, 500).map((row) => el("tr", {}, el("th", { scope: "row" }, plain(row.name).slice(0, 60)),
        ...[count(row.objects), count(row.predictions), percent(row.precision), percent(row.recall)].map((text) => el("td", {}, text))))))));
  }

  async function drawRecords() {
    const name = named(chosen() || fallback());
    const page = await api("predictions/records", { set: name, start, stop: start + PAGE }).catch(() => null);
    if (!page || isEnded || name !== named(chosen() || fallback())) return;
    ({ total } = page);
    const words = ({ truth, predicted, score: sure, wrong }) =>
      predicted === null ? `${plain(truth)}: ${wrong}` : `${sure.toFixed(2)} ${plain([predicted, wrong].filter(Boolean).join(", "))}`;
    const items = page.rows.map((row) => {
      const svg = el("svg", { class: "overlay", "aria-hidden": "true" });
      const img = el("img", { src: `api/thumb/${row.index}?side=256`, alt: "", loading: "lazy" });
      img.addEventListener("load", () => sharpen(img));
      img.addEventListener("error", () => img.replaceWith(el("span", { class: "quiet" }, "no picture")));
      return { row, svg, item: el("li", {}, el("a", {
        href: `#view=grid&index=${row.index}`, onclick: (event) => { event.preventDefault(); set({ view: "grid", sort: `set:${name}`, index: row.index }); },
      }, el("div", { class: "shot" }, img, svg), el("span", {}, words(row)), el("bdi", { class: "quiet" }, plain(row.key ?? row.index).slice(-60)))) };
    });
    const last = start + page.rows.length;
    const turn = (title, key, step, isOff) => el("button", { type: "button", title: `${title} (${key})`, disabled: isOff, onclick: () => leaf(step) }, title);
    shown.replaceChildren(
      el("div", { class: "predictions-bar" }, el("h2", {}, titleOf(name, summary.classes)),
        el("span", { class: "quiet", role: "status" }, total ? `${count(start + 1)} to ${count(last)} of ${count(total)} records, ${name.startsWith("missed") ? "most missed" : "most confident"} first` : "no records"),
        turn("Previous", ",", -1, !start), turn("Next", ".", 1, last >= total),
        total ? el("button", { type: "button", onclick: () => set({ view: "grid", sort: `set:${named(chosen() || fallback())}`, index: null }) }, "All in the grid") : ""),
      el("ol", {}, ...items.map(({ item }) => item)));
    if (!items.length) return;
    const layers = await api("layers", { indices: items.map(({ row }) => row.index).join(",") }, { quiet: true }).catch(() => ({}));
    for (const { row, svg } of items) {
      const held = layers[row.index];
      if (held?.layers) drawLayers(svg, held, { scale: Math.max(held.width, held.height) / 160 });
    }
  }

  function leaf(step) {
    const next = start + step * PAGE;
    if (next < 0 || next >= total) return;
    start = next;
    drawRecords();
  }

  current = { leaf };
  const end = on((state, before) => {
    if (!summary || summary.error || !found) return;
    const names = ["predictions-iou", "predictions-score"];
    if (names.some((name) => state[name] !== before[name])) evaluate();
    else if (state["predictions-set"] !== before["predictions-set"]) {
      start = 0;
      drawTiles();
      for (const each of matrix.querySelectorAll("button")) each.setAttribute("aria-pressed", String(each.title === titleOf(chosen(), summary.classes)));
      drawRecords();
    }
  });
  begin();
  return () => { isEnded = true; stop?.abort(); current = null; end(); };
}

let current = null;
const here = { group: "Predictions", when: () => current !== null };
register({ id: "predictions", title: "Predictions", key: "p", feature: "predictions", mount });
action({ id: "predictions-on", key: ".", title: "Next records", run: () => current.leaf(1), ...here });
action({ id: "predictions-back", key: ",", title: "Previous records", run: () => current.leaf(-1), ...here });

/** Beside the grid: which set is shown, of predictions, of a comparison, or of picks. */
panel({
  id: "set", side: "left", mount(root) {
    const section = el("section", { class: "predictions-set", "aria-label": "Set of records" });
    let classes = [];
    const show = ({ sort = "" }) => {
      const name = sort.startsWith("set:") ? sort.slice(4) : "", at = name.split("@")[1]?.split(",");
      const limits = at ? ` (IoU from ${plain(at[0])}, score from ${plain(at[1])})` : "";
      section.hidden = !name;
      section.replaceChildren(el("p", {}, `Only: ${titleOf(name, classes)}${limits}`),
        el("button", { type: "button", onclick: () => set({ sort: null }) }, "Show all"));
    };
    const { features } = app.session;
    root.append(section);
    on(show);
    show(app.state);
    if (features.includes("predictions")) {
      api("predictions/summary", {}, { quiet: true }).then((summary) => {
        ({ classes } = summary);
        show(app.state);
      }, () => {});
    }
  },
});
