// Starts the page: asks for the session, shows the page of the state, sends keys to actions.
import { action, api, app, count, DEFAULTS, el, hasPage, on, plain, say, set, update } from "./app.js";
import "./grid.js";
import "./picks.js";
import "./compare.js";
import "./predictions.js";
import "./record.js";
import "./model.js";
import "./keys.js";
import "./find.js";
import "./live.js";

let shown = null, unmount = null;
const narrow = matchMedia("(max-width: 760px)");
const wide = matchMedia("(min-width: 1180px)");
const TEXT_FIELDS = "select, textarea, [contenteditable], input:not([type=checkbox], [type=radio], [type=range])";
const SIDES = { left: "[", right: "]" };

/** Whether a key belongs to what has the focus: a letter to a text field, an arrow to a slider, Enter to a button. */
function isTaken({ target, key }) {
  if (key === "Escape" || !target.matches) return false;
  if (target.matches(TEXT_FIELDS)) return true;
  if (target.matches("input")) return /^(Arrow.*|Home|End|Page.*| )$/.test(key);
  return target.matches("button, a[href], summary, [role=button], [role=tab]") && (key === "Enter" || key === " ");
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTaken(event)) return;
  if (document.querySelector("dialog.keys[open]")) return;
  for (const each of app.actions.values()) {
    if ([each.key].flat().includes(event.key) && (!each.when || each.when())) {
      event.preventDefault();
      if (event.key === "f" || event.key === "/") showSide("left", true);
      each.run(event);
      return;
    }
  }
});

/** Show or hide the panels of one side; on a narrow screen they lie over the page. */
function showSide(side, isOpen = document.body.dataset[side] !== "open") {
  if (isOpen && narrow.matches) for (const other of Object.keys(SIDES)) showSide(other, false);
  document.body.dataset[side] = isOpen ? "open" : "closed";
  document.getElementById(`show-${side}`).setAttribute("aria-expanded", String(isOpen));
}

function setUpSides() {
  for (const [side, key] of Object.entries(SIDES)) {
    const root = document.getElementById(side);
    const button = document.getElementById(`show-${side}`);
    for (const each of app.panels) if (each.side === side) each.mount(root);
    if (!root.childElementCount) continue;
    button.hidden = false;
    button.setAttribute("aria-controls", side);
    button.title = `Show or hide (${key})`;
    button.addEventListener("click", () => showSide(side));
    action({ id: `side-${side}`, group: "Everywhere", key, title: `Show or hide: ${button.textContent}`,
      when: () => app.state.view === "grid" && app.state.index === undefined, run: () => showSide(side) });
  }
  const adapt = () => { showSide("left", !narrow.matches); showSide("right", wide.matches); };
  for (const query of [narrow, wide]) query.addEventListener("change", adapt);
  adapt();
  document.getElementById("page").addEventListener("pointerdown", () => {
    if (narrow.matches) Object.keys(SIDES).forEach((side) => showSide(side, false));
  });
}

/** Go to a page; the grid shows its records, not the one that was open. */
function go(id) { set(id === "grid" ? { view: id, index: null } : { view: id }); }

function showPage(state) {
  const page = app.pages.get(hasPage(state.view) ? state.view : "grid");
  document.body.dataset.view = page.id;
  for (const link of document.querySelectorAll("#pages a")) {
    link.toggleAttribute("aria-current", false);
    if (link.dataset.id === page.id) link.setAttribute("aria-current", "page");
  }
  if (page.id === shown) return;
  unmount?.();
  shown = page.id;
  say("");
  const root = document.getElementById("page");
  root.replaceChildren();
  unmount = page.mount(root);
}

async function start() {
  try {
    app.session = await api("session");
  } catch (error) {
    document.getElementById("page").append(el("p", { class: "empty" }, `The viewer does not answer: ${error.message}`));
    return;
  }
  const { name, url, total, start: first } = app.session;
  DEFAULTS.view = first;
  document.title = `${plain(name)} · penstock view`;
  document.getElementById("name").textContent = plain(name);
  document.getElementById("name").title = plain(url);
  document.getElementById("count").textContent = total === 1 ? "1 record" : `${count(total)} records`;
  const pages = [...app.pages.values()].filter((page) => hasPage(page.id));
  if (pages.length > 1) {
    document.getElementById("pages").append(...pages.map((page) => el("a", {
      href: `#view=${page.id}`, "data-id": page.id, title: page.key ? `${page.title} (${page.key})` : page.title,
      onclick: (event) => { event.preventDefault(); go(page.id); },
    }, page.title)));
  }
  for (const { id, key, title } of pages) {
    if (key) action({ id: `page-${id}`, group: "Pages", key, title, run: () => go(id) });
  }
  setUpSides();
  on((state, before) => { if (state !== before) showPage(state); });
  window.addEventListener("popstate", update);
  window.addEventListener("hashchange", update);
  update();
}

await start();
