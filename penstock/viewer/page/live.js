// Running loaders: a card for each, with charts of the last ten minutes, workers, slowest samples and errors.
import { action, api, app, el, register, say, sharpen } from "./app.js";
import { format, formatBytes, makeChart } from "./live_chart.js";

const PERIOD_MS = 1000, KEPT = 600, QUIET_S = 5;
const STAGES = ["read", "decode", "augment", "collate", "transport"];
let page = null; // what is mounted

const CHARTS = [
  { title: "Speed", unit: "samples/s", layers: [
    { name: "samples/s", kind: "line", tone: 0, value: (p) => p.samples_per_s },
  ] },
  { title: "Step", unit: "ms", layers: [
    { name: "waiting for the batch", kind: "area", tone: "wait", value: (p) => p.wait_ms },
    { name: "the rest", kind: "area", tone: 3, value: (p) => p.step_ms },
  ] },
  { title: "Work for a sample", unit: "µs", layers: STAGES.map((name, tone) => (
    { name, kind: "area", tone, value: (p) => p.stages[name] ?? 0 })) },
  { title: "Batches", unit: "ready", limit: (points) => Math.max(1, ...points.map((p) => p.limit)), layers: [
    { name: "ready", kind: "line", tone: 0, value: (p) => p.ready },
    { name: "under way", kind: "line", tone: 3, value: (p) => p.under_way },
  ] },
];

const COLUMNS = [
  ["time", (p) => new Date(p.t * 1000).toLocaleTimeString()], ["samples/s", (p) => format(p.samples_per_s)],
  ["waiting, ms", (p) => format(p.wait_ms)], ["rest of the step, ms", (p) => format(p.step_ms)],
  ["ready", (p) => p.ready], ["under way", (p) => p.under_way],
  ...STAGES.map((name) => [`${name}, µs`, (p) => format(p.stages[name] ?? 0)]),
];

function describeState(loader, now) {
  if (loader.state === "ended") return ["ended", "The loader has ended."];
  if (loader.state === "killed") return ["killed", "Its process was killed: it left its file behind."];
  const idle = now - loader.t;
  if (loader.t && idle > QUIET_S) return ["quiet", `No batch for ${Math.round(idle)} s.`];
  return ["running", "Running."];
}

function makeNumber(name) {
  const value = el("dd");
  return { root: el("div", {}, el("dt", {}, name), value), set: (text) => { value.textContent = text; } };
}

function makeCard() {
  const title = el("h2"), about = el("p"), verdict = el("p", { class: "live-verdict" });
  const state = el("span", { class: "live-state", role: "status" });
  const names = ["samples/s", "waiting", "ready", "batch", "data/s", "fetched/s", "left out", "repaired"];
  const numbers = Object.fromEntries(names.map((name) => [name, makeNumber(name)]));
  const charts = CHARTS.map(makeChart);
  const workers = el("ul", { class: "live-workers" });
  const changed = el("p");
  const workersPart = el("section", {}, el("h3", {}, "Workers"), changed, workers);
  const slow = el("ol", { class: "live-slow" });
  const slowPart = el("section", {}, el("h3", {}, "Slowest samples"), slow);
  const errors = el("ul", { class: "live-errors" });
  const errorsPart = el("section", {}, el("h3", {}, "Left out"), errors);
  const body = el("tbody");
  const table = el("details", { class: "live-table" }, el("summary", {}, "Numbers as a table"),
    el("div", { class: "live-scroll", tabindex: 0, role: "region", "aria-label": "Numbers" }, el("table", {},
      el("thead", {}, el("tr", {}, COLUMNS.map(([name]) => el("th", { scope: "col" }, name)))), body)));
  const root = el("article", { class: "live-card" },
    el("header", {}, title, state, about, verdict),
    el("dl", { class: "live-numbers" }, Object.values(numbers).map((n) => n.root)),
    el("div", { class: "live-charts" }, charts.map((chart) => chart.root)), workersPart, slowPart, errorsPart, table);
  const card = { root, table, points: [], slowText: "", errorText: "" };

  card.update = (loader, now, from, to) => {
    const last = card.points.at(-1);
    const rank = loader.world_size > 1 ? `Rank ${loader.rank} · ` : "";
    title.textContent = `${rank}${loader.dataset}`;
    const workersText = loader.num_workers ? `${loader.num_workers} ${loader.workers}` : "no workers";
    const process = `process ${loader.pid} on ${loader.host}`;
    about.textContent = [workersText, loader.script, process].filter(Boolean).join(" · ");
    verdict.textContent = loader.verdict;
    const [name, sentence] = describeState(loader, now);
    state.className = `live-state is-${name}`;
    if (state.textContent !== sentence) state.textContent = sentence;
    const share = last ? last.wait_ms / Math.max(last.wait_ms + last.step_ms, 1e-9) : 0;
    numbers["samples/s"].set(last ? format(last.samples_per_s) : "–");
    numbers.waiting.set(last ? `${Math.round(share * 100)} %` : "–");
    numbers.ready.set(last ? `${last.ready} of ${last.limit}` : "–");
    const total = loader.total ? ` of ${format(loader.total)}` : "";
    numbers.batch.set(`${format(loader.batch)}${total}, epoch ${loader.epoch}`);
    numbers["data/s"].set(last ? formatBytes(last.nbytes_per_s) : "–");
    numbers["fetched/s"].set(last ? formatBytes(last.fetched_per_s) : "–");
    numbers["fetched/s"].root.hidden = !card.points.some((point) => point.fetched_per_s);
    for (const [name, count] of [["left out", loader.left_out], ["repaired", loader.repaired]]) {
      numbers[name].set(format(count));
      numbers[name].root.hidden = !count;
    }
    for (const chart of charts) chart.update(card.points, from, to);
    const busy = Object.entries(last?.busy ?? {}).sort(([a], [b]) => a - b);
    workersPart.hidden = !busy.length;
    changed.textContent = loader.changed ? `Chosen: ${loader.changed}` : "";
    workers.replaceChildren(...busy.map(([worker, part]) => el("li", {}, el("span", {}, worker),
      el("meter", { min: 0, max: 1, value: part.toFixed(3), "aria-label": `Worker ${worker} is busy` }),
      el("span", {}, `${Math.round(part * 100)} %`))));
    showSlow(loader.slow);
    showErrors(loader.errors);
    if (table.open) fillTable();
  };

  function showSlow(samples) {
    slowPart.hidden = !samples.length;
    const text = JSON.stringify(samples);
    if (text === card.slowText) return;
    card.slowText = text;
    slow.replaceChildren(...samples.map(makeSlow));
  }

  function showErrors(found) {
    errorsPart.hidden = !found.length;
    const text = JSON.stringify(found);
    if (text === card.errorText) return;
    card.errorText = text;
    errors.replaceChildren(...found.map(({ index, key, reason }) =>
      el("li", {}, el("b", {}, key || index), ` ${reason}`)));
  }

  function fillTable() {
    body.replaceChildren(...card.points.slice(-60).reverse().map((point) =>
      el("tr", {}, COLUMNS.map(([, value]) => el("td", {}, String(value(point)))))));
  }
  table.addEventListener("toggle", fillTable);
  return card;
}

function makeSlow(sample) {
  const index = sample.indices.length ? `index ${sample.indices[0]}` : `batch ${sample.batch}`;
  const name = sample.key || index;
  const several = sample.count > 1 ? `, with ${sample.count - 1} more` : "";
  const where = sample.worker >= 0 ? `, worker ${sample.worker}` : "";
  const none = () => el("span", { class: "live-none" }, "no picture");
  const picture = sample.picture && el("span", { class: "live-shot" }, el("img", {
    src: `${sample.picture}?side=128`, alt: `Picture of ${name}`, loading: "lazy", width: 96, height: 72,
    onload: (event) => sharpen(event.target), onerror: (event) => event.target.parentElement.replaceWith(none()),
  }));
  const text = el("span", {}, el("b", {}, `${format(sample.ms)} ms${several}`), el("span", { class: "live-key" }, name),
    el("small", {}, `${sample.key ? index : ""}${where}`.replace(/^, /, "")));
  const content = [picture || none(), text];
  if (sample.record === null) return el("li", {}, el("div", {}, content));
  return el("li", {}, el("a", { href: `#view=grid&index=${sample.record}`, title: "Show the record" }, content));
}

function mount(root) {
  const summary = el("p", { class: "live-summary" });
  const pause = el("button", { onclick: () => toggle() }, "Pause");
  const list = el("div", { class: "live-list" });
  const view = el("section", { class: "live", "aria-label": "Running loaders" },
    el("header", { class: "live-bar" }, summary, pause), list);
  root.append(view);
  const cards = new Map(), stop = new AbortController();
  let timer = 0, isPaused = false, isAsking = false;

  function toggle() {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Go on" : "Pause";
    say(isPaused ? "The page shows the loaders as they were." : "The page shows the loaders as they are.");
    ask();
  }

  async function ask() {
    clearTimeout(timer);
    if (isPaused || document.hidden || stop.signal.aborted || isAsking) return;
    isAsking = true;
    try {
      const since = [...cards].map(([number, card]) => `${number}:${card.points.at(-1)?.t ?? 0}`).join(",");
      show(await api("live/loaders", { since }, { signal: stop.signal }));
    } catch (error) {
      if (error.name === "AbortError") return;
    } finally {
      isAsking = false;
    }
    timer = setTimeout(ask, PERIOD_MS);
  }

  function show({ now, loaders }) {
    for (const loader of loaders) {
      const card = cards.get(loader.number) ?? makeCard();
      cards.set(loader.number, card);
      const until = card.points.at(-1)?.t ?? 0;
      card.points.push(...loader.points.filter((point) => point.t > until));
      card.points.splice(0, card.points.length - KEPT);
    }
    const all = [...cards.values()].flatMap((card) => card.points);
    const to = Math.max(0, ...all.map((point) => point.t), loaders.some((l) => l.state === "running") ? now : 0);
    const from = Math.max(to - KEPT, Math.min(to - 30, ...all.map((point) => point.t - point.seconds)));
    for (const loader of loaders) cards.get(loader.number).update(loader, now, from, to);
    const order = loaders.map((loader) => cards.get(loader.number).root);
    if (order.some((each, at) => list.children[at] !== each)) list.replaceChildren(...order);
    const running = loaders.filter((loader) => loader.state === "running");
    const speed = running.reduce((sum, { number }) => sum + (cards.get(number).points.at(-1)?.samples_per_s ?? 0), 0);
    const count = running.length === 1 ? "1 loader runs" : `${running.length} loaders run`;
    const minutes = Math.round((to - from) / 60) || 1;
    summary.textContent = loaders.length ? `${count} · ${format(speed)} samples/s · last ${minutes} min`
      : "No loader is seen yet. Loaders that are made with view=True appear here when they are iterated.";
  }

  const wake = () => ask();
  document.addEventListener("visibilitychange", wake);
  page = { toggle, openTables: () => {
    const open = [...cards.values()].every((card) => card.table.open);
    for (const card of cards.values()) card.table.open = !open;
  } };
  ask();
  return () => {
    page = null;
    stop.abort();
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", wake);
  };
}

const isShown = () => page !== null && app.state.view === "live";
register({ id: "live", title: "Live", key: "l", feature: "live", mount });
action({ id: "live-pause", key: "r", title: "Pause and go on", when: isShown, run: () => page?.toggle() });
action({ id: "live-table", key: "d", title: "Numbers as tables", when: isShown, run: () => page?.openTables() });
