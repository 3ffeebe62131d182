// The list of keys: every action, by its heading.
import { action, app, el } from "./app.js";

const NAMES = {
  " ": "Space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc", Enter: "↵",
  PageUp: "Page ↑", PageDown: "Page ↓",
};
const FIRST = ["Everywhere", "Pages", "Grid", "Record"];

function place(group) {
  const found = FIRST.indexOf(group);
  return found < 0 ? FIRST.length : found;
}

function headingOf({ id, group }) {
  const word = group ?? id.split(/[-.:_]/)[0];
  return word[0].toUpperCase() + word.slice(1);
}

function listGroups() {
  const groups = new Map();
  for (const each of app.actions.values()) {
    const heading = headingOf(each);
    groups.set(heading, [...groups.get(heading) ?? [], each]);
  }
  return [...groups].sort(([one], [other]) => place(one) - place(other));
}

function showKeys() {
  const close = el("button", { class: "quiet", type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "✕");
  const dialog = el("dialog", { class: "keys", "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    el("header", {}, el("h2", { id: "keys-title" }, "Keys"), close),
    el("div", { class: "columns", tabindex: 0, role: "region", "aria-label": "Actions" },
      listGroups().map(([heading, actions]) => el("section", {}, el("h3", {}, heading), el("dl", {}, actions.map((each) =>
        el("div", {}, el("dt", {}, [each.key].flat().filter((key) => key !== "=").map((key) => el("kbd", {}, NAMES[key] ?? key))), el("dd", {}, each.title))))))));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => { if (event.key === "?") dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
}

document.getElementById("show-keys").addEventListener("click", showKeys);
action({ id: "keys", group: "Everywhere", key: "?", title: "Show this list of keys", run: showKeys });
