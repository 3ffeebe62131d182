// What the model sees: a sample op by op, several draws of it, and batches as they are collated.
import { action, api, app, el, on, plain, register, set } from "./app.js";
import { countLayers, describe, picture } from "./model_picture.js";

const TABS = [["steps", "Steps"], ["draws", "Draws"], ["batch", "Batch"]];
const MOST_EPOCH = 99;
let source = null, shown = null;

const isHere = () => app.state.view === "model";
const number = (name, fallback = 0) => Number(app.state[name] ?? fallback);
const tabs = () => TABS.filter(([id]) => id !== "batch" || source?.has_loader);
const tab = () => (tabs().some(([id]) => id === app.state.modeltab) ? app.state.modeltab : "steps");
const seed = () => (/^\d{1,19}$/.test(app.state.seed ?? "") ? app.state.seed : source?.seed ?? "0");
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function moveRecord(by) { set({ index: clamp(number("index") + by, 0, source.total - 1), step: null }, { replace: true }); }
function moveEpoch(by) { set({ epoch: Math.max(0, number("epoch") + by) }, { replace: true }); }
function moveSeed(by) {
  const next = BigInt(seed()) + BigInt(by);
  if (next >= 0n) set({ seed: next === BigInt(source.seed) ? null : next }, { replace: true });
}
function moveStep(by) {
  if (tab() === "batch") moveBatch(by);
  else if (tab() === "steps" && shown?.steps) set({ step: clamp(currentStep() + by, 0, shown.steps.length - 1) }, { replace: true });
}
function moveBatch(by) {
  const last = (source.batches ?? 1e9) - 1;
  set({ modelbatch: clamp(number("modelbatch") + by, 0, last) }, { replace: true });
}
function currentStep() {
  const last = shown.steps.length - 1;
  return clamp(number("step", last), 0, last);
}

// the bar

function stepper({ id, label, value, less, more, change, slider }) {
  const input = el("input", {
    id, value, inputmode: "numeric", class: "model-number", size: Math.max(3, String(value).length),
    onchange: (event) => { if (/^\d{1,19}$/.test(event.target.value)) change(event.target.value); else event.target.value = value; },
  });
  const range = slider && el("input", {
    type: "range", min: 0, max: slider, value: Math.min(value, slider), "aria-label": `${label}, slider`,
    oninput: (event) => change(event.target.value, id),
  });
  return el("div", { class: "model-stepper", role: "group", "aria-label": label },
    el("label", { for: id }, label),
    el("button", { type: "button", onclick: () => less(), "aria-label": `Previous ${label.toLowerCase()}` }, "‹"), input,
    el("button", { type: "button", onclick: () => more(), "aria-label": `Next ${label.toLowerCase()}` }, "›"), range);
}

function makeBar() {
  const choice = el("div", { class: "model-tabs", role: "group", "aria-label": "What is shown" }, ...tabs().map(([id, title]) =>
    el("button", {
      type: "button", "data-tab": id, "aria-pressed": String(id === tab()), onclick: () => set({ modeltab: id === "steps" ? null : id }),
    }, title)));
  const record = stepper({
    id: "model-record", label: "Record", value: number("index"), less: () => moveRecord(-1), more: () => moveRecord(1),
    change: (text) => set({ index: clamp(Number(text), 0, source.total - 1), step: null }),
  });
  const epoch = stepper({
    id: "model-epoch", label: "Epoch", value: number("epoch"), less: () => moveEpoch(-1), more: () => moveEpoch(1),
    change: (text) => set({ epoch: Number(text) }, { replace: true }), slider: MOST_EPOCH,
  });
  const ofSeed = stepper({
    id: "model-seed", label: "Seed", value: seed(), less: () => moveSeed(-1), more: () => moveSeed(1),
    change: (text) => set({ seed: text === source.seed ? null : text }, { replace: true }),
  });
  const batch = stepper({
    id: "model-batch", label: "Batch", value: number("modelbatch"), less: () => moveBatch(-1), more: () => moveBatch(1),
    change: (text) => set({ modelbatch: Number(text) }, { replace: true }), slider: source.batches ? source.batches - 1 : null,
  });
  return [choice, ...(tab() === "batch" ? [epoch, batch] : [record, epoch, ofSeed])];
}

/** Build the bar anew, and keep the focus on what had it. */
function drawBar(bar) {
  const focus = document.activeElement;
  if (bar.contains(focus) && focus.type === "range") {  // it is being moved: only the numbers beside it change
    for (const [id, value] of [["model-epoch", number("epoch")], ["model-batch", number("modelbatch")]]) {
      const input = bar.querySelector(`#${id}`);
      if (input) input.value = value;
    }
    return;
  }
  const place = bar.contains(focus) ? [...bar.querySelectorAll("button, input")].indexOf(focus) : -1;
  bar.replaceChildren(...makeBar());
  if (place >= 0) bar.querySelectorAll("button, input")[place]?.focus();
}

// what is shown

function sentences(kind, title, list) {
  return list?.length
    ? el("section", { class: `model-${kind}` }, el("h3", {}, title), el("ul", {}, ...list.map((text) => el("li", {}, plain(text))))) : null;
}

function card(step, place, chosen) {
  const button = el("button", {
    type: "button", class: "model-card", "data-step": place, "aria-pressed": String(place === chosen),
    onclick: () => set({ step: place }, { replace: true }),
  }, picture(step, { alt: "" }), el("span", { class: "name" }, plain(step.name)), el("span", { class: "quiet" },
    step.problem ? plain(step.problem) : [`${step.width} × ${step.height}`, countLayers(step.layers)].filter(Boolean).join(" · ")));
  return el("li", {}, button);
}

function showSteps(answer) {
  const chosen = currentStep(), step = answer.steps[chosen], original = answer.steps[0];
  const known = original?.name === "Original";
  const rows = [["Op", step?.text], ["Drawn", step?.drawn?.join(", ")], ["Image", describe(step?.values)],
    ["Annotations", countLayers(step?.layers)], ["Label", step?.label && `${step.label.name} (${step.label.class})`],
    ["Shown", step?.note]].filter(([, text]) => text);
  return el("div", { class: "model-steps" },
    el("section", { class: "model-original", "aria-label": "Original and what is shown of it" },
      el("div", { class: "model-pair" },
        known && el("figure", {}, picture(original, { alt: "Original", outline: step?.view, isGuess: step?.is_guess, isLarge: true }),
          el("figcaption", {}, step?.view ? `Original, and what ${plain(step.name)} shows of it` : "Original")),
        el("figure", {}, step && picture(step, { alt: `After ${step.name}`, isLarge: true }), el("figcaption", {}, plain(step?.name)))),
      sentences("warnings", "Warnings", answer.warnings),
      el("dl", {}, ...rows.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, plain(text))])),
      sentences("notes", "Notes", answer.notes)),
    el("ol", { class: "model-cards", "aria-label": "Steps" }, ...answer.steps.map((each, place) => card(each, place, chosen))));
}

function showDraws(answer) {
  const other = answer.vary === "epoch" ? "seed" : "epoch";
  return el("div", { class: "model-draws" },
    el("button", { type: "button", class: "model-vary", onclick: () => set({ modelvary: other === "seed" ? "seed" : null }) },
      other === "seed" ? "Show one epoch with successive seeds" : "Show successive epochs with one seed"),
    el("ol", { class: "model-tiles", "aria-label": "Draws" }, ...answer.draws.map((draw) => {
      const title = answer.vary === "epoch" ? `Epoch ${draw.epoch}` : `Seed ${draw.seed}`;
      const open = { epoch: draw.epoch, seed: draw.seed === source.seed ? null : draw.seed, modeltab: null, step: null };
      return el("li", {}, el("button", { type: "button", class: "model-card", onclick: () => set(open) },
        picture(draw, { alt: "" }), el("span", { class: "name" }, title),
        draw.warnings.length ? el("span", { class: "warn", title: draw.warnings.join("\n") }, draw.warnings[0]) : null));
    })));
}

function showBatch(answer) {
  const rows = answer.fields.map((field) => el("tr", {}, el("th", { scope: "row" }, plain(field.name)), el("td", {}, field.type),
    el("td", {}, describe({ ...field, type: "" }) || plain(field.text ?? ""))));
  return el("div", { class: "model-batch" },
    sentences("warnings", "Warnings", answer.warnings), sentences("notes", "Notes", answer.notes),
    el("table", {}, el("caption", {}, `Batch ${answer.number}${answer.total ? ` of ${answer.total}` : ""}, epoch ${answer.epoch}, seed ${answer.seed}`),
      el("tbody", {}, ...rows)),
    el("ol", { class: "model-tiles", "aria-label": "Samples" }, ...answer.samples.map((sample) => {
      const open = { index: sample.index, modeltab: null, step: null, seed: answer.seed === source.seed ? null : answer.seed };
      const known = Number.isInteger(sample.index);
      return el("li", {}, el("button", { type: "button", class: "model-card", disabled: !known, onclick: () => set(open) },
        picture(sample, { alt: "" }),
        el("span", { class: "name" }, known ? `Record ${sample.index}` : `Sample ${sample.row}`),
        el("span", { class: "quiet" }, sample.label ? plain(sample.label.name) : countLayers(sample.layers))));
    })));
}

const SHOWS = { steps: showSteps, draws: showDraws, batch: showBatch };

function ask(options) {
  const key = { seed: seed(), epoch: number("epoch") };
  if (tab() === "batch") return api("model/batch", { epoch: key.epoch, number: number("modelbatch") }, options);
  const index = clamp(number("index"), 0, Math.max(0, source.total - 1));
  if (tab() === "draws") return api(`model/draws/${index}`, { ...key, n: 16, vary: app.state.modelvary }, options);
  return api(`model/steps/${index}`, key, options);
}

function mount(root) {
  const bar = el("div", { class: "model-bar" }), body = el("div", { class: "model-body", role: "region", tabindex: 0, "aria-label": "What the model sees" });
  const page = el("div", { class: "model" }, bar, body);
  root.append(page);
  let control = null, asked = "", answered = "";

  const draw = () => body.replaceChildren(SHOWS[tab()](shown));
  const load = async () => {
    const { index = 0, epoch = 0, modelbatch = 0, modelvary = "" } = app.state;
    const wanted = JSON.stringify([tab(), index, seed(), epoch, modelbatch, modelvary]);
    drawBar(bar);
    if (wanted === asked) { if (shown && answered === wanted) draw(); return; }
    asked = wanted;
    control?.abort();
    const own = control = new AbortController();
    body.setAttribute("aria-busy", "true");
    try {
      const found = await ask({ signal: own.signal });
      if (own !== control) return;
      [shown, answered] = [found, wanted];
      draw();
    } catch (error) {
      if (error.name === "AbortError" || own !== control) return;
      shown = null;
      body.replaceChildren(el("p", { class: "model-error", role: "alert" }, plain(error.message)));
    } finally {
      if (own === control) body.removeAttribute("aria-busy");
    }
  };
  const start = async () => {
    source ??= await api("model/source");
    await load();
  };
  start();
  const stop = on((state) => { if (state.view === "model" && source) load(); });
  return () => { stop(); control?.abort(); shown = null; };
}

register({ id: "model", title: "Model", key: "m", feature: "model", mount });
for (const [id, key, title, run] of [
  ["model-step-less", "ArrowLeft", "Previous step, or batch", () => moveStep(-1)],
  ["model-step-more", "ArrowRight", "Next step, or batch", () => moveStep(1)],
  ["model-record-less", "PageUp", "Previous record", () => moveRecord(-1)],
  ["model-record-more", "PageDown", "Next record", () => moveRecord(1)],
  ["model-epoch-less", ",", "Previous epoch", () => moveEpoch(-1)],
  ["model-epoch-more", ".", "Next epoch", () => moveEpoch(1)],
  ["model-seed-less", "<", "Previous seed", () => moveSeed(-1)],
  ["model-seed-more", ">", "Next seed", () => moveSeed(1)],
  ["model-tab", "v", "Steps, draws, batch", () => {
    const place = tabs().findIndex(([id]) => id === tab());
    const next = tabs()[(place + 1) % tabs().length][0];
    set({ modeltab: next === "steps" ? null : next });
  }],
]) action({ id, group: "Model", key, title, run, when: () => isHere() && source !== null });
