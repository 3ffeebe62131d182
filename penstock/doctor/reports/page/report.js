"use strict";
// Draws the report. All text is set with textContent: keys of a dataset may contain anything.
(() => {
  const input = JSON.parse(document.getElementById("report").textContent);
  const report = input.report;
  const page = document.getElementById("page");
  const root = document.documentElement;
  const SVG = "http://www.w3.org/2000/svg";
  const TITLES = {
    sample: "whole sample", batch: "whole batch", wait: "trainer waits", room: "worker waits", copy: "copy to device",
    step: "training step",
  };

  function add(parent, ...children) {
    for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== "") parent.append(child);
    return parent;
  }
  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    return add(node, children);
  }
  function svg(tag, attributes, ...children) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    return add(node, children);
  }
  function styled(node, properties) {
    for (const [name, value] of Object.entries(properties)) node.style.setProperty(name, value);
    return node;
  }
  const color = (stage) => `var(--${stage}, var(--soft))`;
  const dot = (stage) => styled(el("span", { class: "dot", "aria-hidden": "true" }), { background: color(stage) });
  const title = (stage) => TITLES[stage] || stage;
  const digits = (value) => (Math.abs(value) >= 99.95 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3))));
  const speed = (value) => (value === null || value === undefined ? "not measured" : `${digits(value)} samples/s`);
  const percent = (value) => (value === null || value === undefined ? "?" : `${value < 0.0995 ? Number((100 * value).toFixed(1)) : Math.round(100 * value)} %`);
  function time(us) {
    if (us === null || us === undefined) return "?";
    if (us >= 999500) return `${digits(us / 1e6)} s`;
    return us >= 999.5 ? `${digits(us / 1e3)} ms` : `${digits(us)} µs`;
  }
  function bytes(count) {
    let value = count;
    for (const unit of ["bytes", "kB", "MB", "GB"]) {
      if (value < 1000) return `${digits(value)} ${unit}`;
      value /= 1000;
    }
    return `${digits(value)} TB`;
  }
  function gain(ratio) {
    if (ratio >= 2.95) return `${ratio.toFixed(1)} times`;
    const part = Math.round(100 * (ratio - 1));
    return `${part < 0 ? "−" : "+"}${Math.abs(part)} %`;
  }
  function section(id, heading, hint) {
    const node = el("section", { id, "aria-labelledby": `${id}-heading` }, el("h2", { id: `${id}-heading` }, heading));
    if (hint) node.append(el("p", { class: "soft" }, hint));
    page.append(node);
    return node;
  }

  // ---- light and dark
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const MODES = ["system", "light", "dark"];
  let mode = "system";
  try { mode = localStorage.getItem("penstock-theme") || "system"; } catch { /* no storage for this file */ }
  if (!MODES.includes(mode)) mode = "system";
  const themeButton = el("button", { type: "button", id: "theme" });
  function applyTheme() {
    root.dataset.theme = mode === "system" ? (dark.matches ? "dark" : "light") : mode;
    themeButton.textContent = `Colours: ${mode}`;
    themeButton.setAttribute("aria-label", `Colours: ${mode}. Press to change.`);
  }
  themeButton.addEventListener("click", () => {
    mode = MODES[(MODES.indexOf(mode) + 1) % MODES.length];
    try { localStorage.setItem("penstock-theme", mode); } catch { /* no storage for this file */ }
    applyTheme();
  });
  dark.addEventListener("change", applyTheme);
  applyTheme();

  // ---- verdict
  function drawVerdict() {
    const text = report.verdict.text;
    const end = text.search(/[.!?](\s|$)/) + 1 || text.length;
    const stage = report.verdict.stage;
    const badge = styled(el("span", { class: "badge", id: "stage" }, stage === "none" ? "nothing to gain" : stage), {
      background: stage === "none" ? "#1d7d53" : `color-mix(in srgb, ${color(stage)} 78%, black)`,
    });
    const command = report.command.length ? report.command.join(" ") : "watched from Python";
    const header = el("header", {},
      el("div", { class: "top" }, el("span", { class: "soft" }, "penstock doctor · ", el("span", { class: "mono" }, command)), themeButton),
      el("h1", { id: "verdict" }, badge, " ", text.slice(0, end)),
      el("p", {}, text.slice(end).trim()),
    );
    const speeds = report.samples_per_s;
    const most = Math.max(speeds.delivered || 0, speeds.trainer || 0, speeds.loader || 0) || 1;
    const bars = el("div", { class: "speeds" });
    const rows = [
      ["The script takes", speeds.delivered, "var(--accent)"],
      ["The trainer can take", speeds.trainer, "var(--step)"],
      ["The loader gives alone", speeds.loader, "var(--collate)"],
    ];
    for (const [label, value, fill] of rows) {
      const inner = styled(el("i"), { width: `${(100 * (value || 0)) / most}%`, background: fill });
      add(bars, el("span", { class: "label" }, label), el("div", { class: "bar" }, inner), el("b", {}, speed(value)));
    }
    const waiting = styled(el("i"), { width: `${Math.min(100, 100 * (report.waiting || 0))}%`, background: "var(--wait)" });
    add(bars, el("span", { class: "label" }, "Waiting for batches"), el("div", { class: "bar" }, waiting), el("b", {}, `${percent(report.waiting)} of the time`));
    page.append(add(header, bars, input.ending ? el("p", { class: "soft" }, input.ending) : null));
  }

  // ---- advice
  function gainBar(ratio, spread, most, fill) {
    const at = (value) => Math.max(0, Math.min(100, (100 * (value - 1)) / (most - 1)));
    const chart = svg("svg", { "aria-hidden": "true" },
      svg("rect", { x: 0, y: 3, width: "100%", height: 6, rx: 3, fill: "var(--track)" }),
      svg("rect", { x: 0, y: 3, width: `${at(ratio)}%`, height: 6, rx: 3, fill }));
    if (spread) {
      const [low, high] = spread.map((value) => `${at(value)}%`);
      add(chart, svg("line", { x1: low, x2: high, y1: 6, y2: 6, stroke: "var(--ink)", "stroke-width": 1.5 }));
      for (const x of [low, high]) add(chart, svg("line", { x1: x, x2: x, y1: 2, y2: 10, stroke: "var(--ink)", "stroke-width": 1.5 }));
    }
    return chart;
  }
  function drawAdvice() {
    const node = section("advice", "What to change", report.advice.length
      ? "Each row says what the whole training gains. Choose one to see why, and the line of code."
      : ["none", "step"].includes(report.verdict.stage) ? "Nothing: the loader is fast enough." : "No change was found that brings 5 % or more.");
    const most = Math.max(1.1, ...report.advice.map((each) => Math.max(each.predicted, each.measured || 0, ...(each.spread || []))));
    for (const each of report.advice) {
      const gains = el("div", { class: "gains" },
        el("span", { class: "soft" }, "predicted"), gainBar(each.predicted, null, most, "var(--soft)"), el("span", {}, gain(each.predicted)),
        el("span", { class: "soft" }, "measured"),
        each.measured === null ? el("span", { class: "soft" }, "not tried") : gainBar(each.measured, each.spread, most, "var(--good)"),
        el("span", {}, each.measured === null ? "" : gain(each.measured)));
      const more = el("div", { class: "more" }, el("p", {}, each.reason));
      if (each.spread) more.append(el("p", { class: "soft" }, `Measured ${gain(each.spread[0])} to ${gain(each.spread[1])} in ${each.runs} ${each.runs === 1 ? "run" : "runs"}, with the loader in child processes.`));
      if (each.code) more.append(el("code", { class: "code", tabindex: 0 }, each.code));
      node.append(el("details", { class: "advice" }, el("summary", { class: "change" }, el("b", {}, each.change), gains), more));
    }
  }

  // ---- stages
  function drawStages() {
    const names = Object.keys(report.stages);
    if (!names.length) return;
    const node = section("stages", "Stages of a sample", "Times are those of the process that does the work. Waiting, copies and the step are no part of the loader's work.");
    const stack = el("div", { class: "stack", role: "img", "aria-label": names.filter((name) => report.stages[name].share).map((name) => `${name} ${percent(report.stages[name].share)}`).join(", ") });
    const body = el("tbody");
    let estimated = false;
    for (const name of names) {
      const cost = report.stages[name];
      estimated = estimated || cost.is_estimated;
      if (cost.share) stack.append(styled(el("span", { title: `${name} ${percent(cost.share)}` }), { width: `${100 * cost.share}%`, background: color(name) }));
      body.append(el("tr", {}, el("td", {}, dot(name), title(name), cost.is_estimated ? " *" : ""),
        el("td", {}, cost.share ? percent(cost.share) : ""), el("td", {}, time(cost.us_per_sample)), el("td", { class: "wide" }, time(cost.p50_us)), el("td", {}, time(cost.p99_us))));
    }
    const head = el("tr", {}, ["stage", "share", "mean", "half below", "99 % below"].map((text) => el("th", { scope: "col", ...(text === "half below" ? { class: "wide" } : {}) }, text)));
    add(node, stack, el("div", { class: "scroll", tabindex: 0 }, el("table", {}, el("thead", {}, head), body)),
      estimated ? el("p", { class: "soft" }, "* estimated: the whole sample is timed, its parts are found by stack sampling.") : null);
  }

  // ---- events: the timeline, and one batch
  // Columns: lane, row, stage, start and duration in microseconds, batch, index, how many were joined.
  function readEvents(columns) {
    return columns.start.map((start, i) => ({
      lane: columns.lane[i], row: columns.row[i], stage: input.stages[columns.stage[i]], start,
      duration: columns.duration[i], batch: columns.batch[i], index: columns.index[i], count: columns.count[i],
    }));
  }
  const keys = new Map(report.keys.map((each) => [each.index, each.key]));
  function describe(event, lanes) {
    const parts = [lanes[event.lane]];
    if (event.batch >= 0) parts.push(`batch ${event.batch}`);
    if (event.index >= 0) parts.push(`sample ${event.index}${keys.get(event.index) ? ` (${keys.get(event.index)})` : ""}`);
    parts.push(event.count > 1 ? `${event.count} × ${title(event.stage)}, together` : title(event.stage), time(event.duration));
    return `${parts.filter(Boolean).join(" · ")}, at ${time(event.start)}`;
  }
  function ticks(span, count) {
    const raw = span / Math.max(1, count);
    const base = 10 ** Math.floor(Math.log10(raw));
    const size = [1, 2, 5, 10].map((each) => each * base).find((each) => each >= raw);
    return Array.from({ length: Math.floor(span / size) + 1 }, (_, i) => i * size);
  }
  function drawEvents(drawing, events, span, rowHeight) {
    events.forEach((event, number) => {
      const target = drawing[event.lane];
      const shape = svg("rect", {
        class: `event ${event.stage}`, "data-n": number, x: `${(100 * event.start) / span}%`, y: 3 + event.row * rowHeight,
        width: `${Math.max((100 * event.duration) / span, 0.03)}%`, height: rowHeight - 2, rx: 1.5, fill: color(event.stage),
      });
      event.shape = shape;
      target.append(shape);
    });
  }
  // Mouse and keys choose an event; its description goes to the readout.
  function makeChoosable(box, events, readout, lanes) {
    let chosen = -1;
    function choose(number) {
      if (chosen >= 0 && events[chosen]) events[chosen].shape.classList.remove("chosen");
      chosen = number;
      const event = events[number];
      event.shape.classList.add("chosen");
      readout.textContent = describe(event, lanes);
    }
    const find = (target) => (target.dataset && target.dataset.n !== undefined ? Number(target.dataset.n) : -1);
    box.addEventListener("mousemove", (move) => { const n = find(move.target); if (n >= 0 && n !== chosen) choose(n); });
    box.addEventListener("click", (click) => { const n = find(click.target); if (n >= 0) choose(n); });
    box.addEventListener("keydown", (press) => {
      const sideways = { ArrowLeft: -1, ArrowRight: 1 }[press.key];
      const upwards = { ArrowUp: -1, ArrowDown: 1 }[press.key];
      if (!sideways && !upwards) return;
      press.preventDefault();
      const shown = events.map((event, n) => ({ event, n })).filter(({ event }) => event.shape.style.display !== "none");
      if (!shown.length) return;
      const current = events[chosen] || null;
      if (!current) { choose(shown[0].n); return; }
      const line = (event) => event.lane * 10 + event.row;
      let next;
      if (sideways) {
        const row = shown.filter(({ event }) => line(event) === line(current)).sort((a, b) => a.event.start - b.event.start);
        next = row[row.findIndex(({ n }) => n === chosen) + sideways];
      } else {
        const others = [...new Set(shown.map(({ event }) => line(event)))].sort((a, b) => a - b);
        const goal = others[others.indexOf(line(current)) + upwards];
        next = shown.filter(({ event }) => line(event) === goal).sort((a, b) => Math.abs(a.event.start - current.start) - Math.abs(b.event.start - current.start))[0];
      }
      if (next) { choose(next.n); next.event.shape.scrollIntoView({ block: "nearest", inline: "nearest" }); }
    });
  }
  function drawTimeline() {
    const timeline = input.timeline;
    if (!timeline.events.start.length) return;
    const events = readEvents(timeline.events);
    const node = section("timeline", "Timeline of some batches", "A lane for the trainer and for each worker. Point at an event, or use the arrow keys, to read what it is.");
    const used = input.stages.filter((stage) => events.some((event) => event.stage === stage));
    const tools = el("div", { class: "tools" });
    for (const stage of used) {
      const button = el("button", { type: "button", "aria-pressed": "true", "data-stage": stage }, dot(stage), title(stage));
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        for (const event of events) if (event.stage === stage) event.shape.style.display = shown ? "" : "none";
      });
      tools.append(button);
    }
    const rowHeight = 11;
    const names = el("div", { class: "names", "aria-hidden": "true" }, el("div"));
    const lanes = el("div", { class: "lanes", tabindex: 0, role: "group", "aria-label": "Timeline: arrow keys choose an event" });
    const axis = svg("svg", { height: 22, "aria-hidden": "true" });
    lanes.append(axis);
    const drawing = timeline.lanes.map((name, lane) => {
      const rows = 1 + Math.max(0, ...events.filter((event) => event.lane === lane).map((event) => event.row));
      const height = 4 + rows * rowHeight;
      const shape = svg("svg", { height, class: "lane", "data-lane": name });
      names.append(styled(el("div", { title: name }, name), { height: `${height + 1}px` }));
      lanes.append(shape);
      return shape;
    });
    drawEvents(drawing, events, timeline.span, rowHeight);
    let zoom = 1;
    function scale(factor) {
      const middle = (lanes.scrollLeft + lanes.clientWidth / 2) / (lanes.clientWidth * zoom || 1);
      zoom = Math.max(1, Math.min(32, zoom * factor));
      for (const shape of [axis, ...drawing]) shape.style.width = `${100 * zoom}%`;
      lanes.scrollLeft = middle * lanes.clientWidth * zoom - lanes.clientWidth / 2;
      axis.replaceChildren();
      const width = lanes.clientWidth * zoom;
      for (const at of ticks(timeline.span, width / (width < 500 ? 75 : 110))) {
        if (at > timeline.span * (1 - 70 / width)) continue; // no room for its text
        const x = `${(100 * at) / timeline.span}%`;
        add(axis, svg("line", { x1: x, x2: x, y1: 14, y2: 22, class: "grid-line" }), svg("text", { x, y: 15, dx: 4 }, time(at)));
      }
    }
    const closer = el("button", { type: "button", id: "closer", "aria-label": "Zoom in" }, "Zoom +");
    const farther = el("button", { type: "button", id: "farther", "aria-label": "Zoom out" }, "Zoom −");
    closer.addEventListener("click", () => scale(2));
    farther.addEventListener("click", () => scale(0.5));
    const readout = el("p", { class: "readout soft", "aria-live": "polite" }, "\u00a0");
    add(tools, closer, farther);
    add(node, tools, el("div", { class: "chart" }, names, lanes), readout);
    if (timeline.note) node.append(el("p", { class: "soft" }, timeline.note));
    makeChoosable(lanes, events, readout, timeline.lanes);
    scale(1);
    addEventListener("resize", () => scale(1));
  }
  function drawBatches() {
    if (!input.batches.length) return;
    const node = section("batch", "One batch", "From left to right: the time that a worker takes for one batch. Below it its samples, and the stages of each.");
    const tools = el("div", { class: "tools choice" });
    const box = el("div");
    function show(which) {
      const batch = input.batches[which];
      tools.querySelectorAll("button").forEach((button, n) => button.setAttribute("aria-pressed", String(n === which)));
      const events = readEvents(batch.events);
      const rows = 1 + Math.max(0, ...events.map((event) => event.row));
      const shape = svg("svg", { height: 6 + rows * 26 });
      const flame = el("div", { class: "flame", tabindex: 0, role: "group", "aria-label": `${batch.title}: arrow keys choose an event` }, shape);
      drawEvents([shape], events, batch.span, 26);
      const readout = el("p", { class: "readout soft", "aria-live": "polite" }, "\u00a0");
      box.replaceChildren(el("p", { class: "soft" }, `${batch.lane}, batch ${batch.number}: ${time(batch.span)}`), flame, readout);
      makeChoosable(flame, events, readout, [batch.lane]);
    }
    input.batches.forEach((batch, n) => {
      const button = el("button", { type: "button", "data-batch": n }, batch.title);
      button.addEventListener("click", () => show(n));
      tools.append(button);
    });
    add(node, tools, box);
    show(0);
  }

  // ---- queue depth and waiting over time
  function plot(values, times, span, fill, unit, kind) {
    const known = values.filter((value) => value !== null);
    const most = Math.max(1e-9, ...known);
    const chart = svg("svg", { class: "plot", viewBox: "0 0 1000 130", preserveAspectRatio: "none", "aria-hidden": "true" });
    const x = (t) => (1000 * t) / span;
    const y = (value) => 128 - (118 * value) / most;
    for (const part of [0, 0.5, 1]) add(chart, svg("line", { x1: 0, x2: 1000, y1: y(part * most), y2: y(part * most), class: "grid-line", "vector-effect": "non-scaling-stroke" }));
    const points = values.map((value, n) => [times[n], value]).filter(([, value]) => value !== null);
    if (kind === "steps") {
      let path = `M${x(points[0][0])},128`;
      points.forEach(([t, value], n) => { path += ` L${x(t)},${y(value)} L${n + 1 < points.length ? x(points[n + 1][0]) : 1000},${y(value)}`; });
      add(chart, svg("path", { d: `${path} L1000,128 Z`, fill, "fill-opacity": 0.35, stroke: fill, "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" }));
    } else {
      for (const [t, value] of points) add(chart, svg("line", { x1: x(t), x2: x(t), y1: 128, y2: y(value), stroke: fill, "stroke-width": 2, "vector-effect": "non-scaling-stroke" }));
    }
    return el("div", {}, chart, el("p", { class: "soft" }, `0 to ${time(span)} after the first step; the highest value is ${unit(most)}.`));
  }
  function drawQueue() {
    const queue = input.queue;
    if (queue.time.length < 2) return;
    const node = section("queue", "Ready batches and waiting over time", "If no batch is ready when the script asks for one, it waits.");
    const span = queue.time[queue.time.length - 1] || 1;
    if (queue.ready.some((value) => value !== null)) {
      add(node, el("p", {}, "Batches that were ready when one was asked for"), plot(queue.ready, queue.time, span, "var(--collate)", (value) => digits(value), "steps"));
    }
    add(node, el("p", {}, "Waiting for each batch"), plot(queue.wait, queue.time, span, "var(--wait)", time, "bars"));
  }

  // ---- slowest samples
  function drawSamples() {
    if (!report.keys.length) return;
    const node = section("samples", "Slowest samples");
    const cards = el("div", { class: "cards" });
    for (const each of report.keys.slice(0, 24)) {
      const source = input.thumbnails[each.index];
      const picture = source ? el("img", { src: source, alt: `Sample ${each.index}`, loading: "lazy" }) : el("div", { class: "blank" }, "no picture");
      const who = each.worker >= 0 ? `worker\u00a0${each.worker}` : "main\u00a0process";
      cards.append(el("figure", {}, picture, el("figcaption", {}, el("b", {}, time(1000 * each.ms)), el("br"), el("span", { class: "key" }, each.key || "no key"), el("br"),
        el("span", { class: "soft" }, `index ${each.index}, ${who}${report.world_size > 1 ? `, rank ${each.rank}` : ""}`))));
    }
    node.append(cards);
  }

  // ---- findings, notes, ranks, processes, machine
  function drawFindings() {
    if (!report.traps.length && !report.notes.length) return;
    const node = section("findings", "Also found");
    for (const each of report.traps) {
      node.append(el("div", { class: `finding ${each.severity}` }, el("p", {}, el("b", {}, each.severity), " · ", el("span", { class: "mono" }, each.where), ` [${each.rule}]`),
        el("p", {}, each.what), each.cost ? el("p", {}, `Costs ${each.cost}.`) : "", el("p", { class: "soft" }, `→ ${each.advice}`),
        el("p", { class: "soft mono" }, each.page)));
    }
    if (report.notes.length) node.append(el("ul", {}, report.notes.map((note) => el("li", {}, note))));
  }
  function drawTable(node, head, rows) {
    node.append(el("div", { class: "scroll", tabindex: 0 }, el("table", {}, el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((text) => el("td", {}, text))))))));
  }
  function drawRanks() {
    if (!report.ranks.length) return;
    const shown = (value) => (value === null || value === undefined ? "–" : typeof value === "number" ? digits(value) : String(value));
    const node = section("ranks", "Ranks", "The rank that others wait for is the straggler.");
    const names = [...new Set(report.ranks.flatMap((row) => Object.keys(row)))];
    drawTable(node, names.map((name) => name.replaceAll("_", " ")), report.ranks.map((row) => names.map((name) => (name === "waiting" ? percent(row[name]) : shown(row[name])))));
  }
  function drawProcesses() {
    if (!report.usage.length) return;
    const node = section("processes", "Processes");
    drawTable(node, ["process", "cores busy", "threads", "memory", "read from disk", "open files"], report.usage.map((each) => [
      each.role, each.wall_ns ? digits(each.cpu_ns / each.wall_ns) : "?", each.threads, each.pss_bytes < 0 ? "?" : bytes(each.pss_bytes), bytes(each.read_bytes), each.descriptors || "?",
    ]));
  }
  function drawValue(name, value) {
    if (value === null) return "not known";
    if (Array.isArray(value)) {
      if (!value.length) return "none";
      return value.every((each) => typeof each !== "object") ? value.join(", ") : value.map((each) => drawValue("", each));
    }
    if (typeof value === "object") {
      const list = el("dl");
      for (const [key, each] of Object.entries(value)) add(list, el("dt", {}, key.replaceAll("_", " ")), el("dd", {}, drawValue(key, each)));
      return list;
    }
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value === "number") return name.endsWith("_bytes") ? bytes(value) : Number.isInteger(value) ? String(value) : digits(value);
    return String(value) || "–";
  }
  function drawMachine() {
    const node = section("machine", "Loader and machine");
    const parts = [["Loader", report.settings], ["Device", report.device], ["Other loaders of the script", report.others], ["Machine", report.machine]];
    for (const [heading, value] of parts) {
      if (!Object.keys(value).length) continue;
      node.append(el("details", heading === "Loader" ? { open: "" } : {}, el("summary", {}, el("b", {}, heading)), add(el("div"), drawValue("", value))));
    }
  }

  const parts = [drawVerdict, drawAdvice, drawStages, drawTimeline, drawBatches, drawQueue, drawSamples, drawFindings, drawRanks, drawProcesses, drawMachine];
  for (const part of parts) part();
  const events = report.events;
  page.append(el("footer", {}, `${events.count.toLocaleString("en")} events, ${report.steps.count} steps after ${report.steps.warm_up} of warm-up, ${report.steps.replayed} with a repeated batch. penstock ${input.penstock}.`));
})();
