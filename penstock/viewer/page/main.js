// Starts the page: asks for the session, shows the page of the state, sends keys to actions.
import { action, api, app, el, on, set, update } from "./app.js";
import "./grid.js";
import "./live.js";

let shown = null, unmount = null;

function isTyping(event) {
  return event.target.matches?.("input, textarea, select, [contenteditable]") && event.key !== "Escape";
}

document.addEventListener("keydown", (event) => {
  if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
  for (const each of app.actions.values()) {
    if (each.key === event.key && (!each.when || each.when())) {
      event.preventDefault();
      each.run(event);
      return;
    }
  }
});

function listPages() {
  return [...app.pages.values()].filter((page) => !page.feature || app.session.features.includes(page.feature));
}

on((state) => {
  const page = app.pages.get(state.view) ?? app.pages.get("grid");
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.dataset.id === page.id) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  if (page.id === shown) return;
  unmount?.();
  shown = page.id;
  const root = document.getElementById("page");
  root.replaceChildren();
  unmount = page.mount(root);
});

app.session = await api("session");
document.title = `${app.session.name} · penstock view`;
document.getElementById("name").textContent = app.session.name;
document.getElementById("pages").append(...listPages().map((page) =>
  el("a", { href: `#view=${page.id}`, "data-id": page.id }, page.title)));
for (const page of listPages()) {
  if (page.key) action({ id: `page-${page.id}`, key: page.key, title: page.title, run: () => set({ view: page.id }) });
}
for (const { side, mount } of app.panels) mount(document.getElementById(side));
window.addEventListener("popstate", update);
window.addEventListener("hashchange", update);
update();
