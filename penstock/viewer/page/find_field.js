// The field in which a filter is written: suggestions of names and classes, and where an error is.
import { el, plain } from "./app.js";

const WAIT_MS = 300;
const MOST_SHOWN = 12;
const WORD = /[^\s()=<>!~,"']*$/;
const NAMED = String.raw`(?:^|[\s(])\.?([^\s()=<>!~,"']+|"[^"]*")`;
const SIGN = String.raw`\s*(?:!?==?|!?~|(?:not\s+)?in\s*\((?:[^()]*,)?)\s*`;
const VALUE = new RegExp(`${NAMED}${SIGN}("[^"]*|${WORD.source.slice(0, -1)})$`, "i");
const PLAIN = /^[^\s"'()<>=~!,]+$/;
const KEYWORDS = ["and", "or", "not", "in", "is", "missing"];

export function quote(text) {
  if (PLAIN.test(text) && !KEYWORDS.includes(text.toLowerCase())) return text;
  return `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** {root, show(text), text(), fail(found), focus()}; `apply(text, {push})` is told of what is typed. */
export function makeField({ names, apply }) {
  const list = el("ul", {
    id: "find-suggestions", class: "find-suggestions", role: "listbox", "aria-label": "Suggestions", hidden: true,
  });
  const input = el("input", {
    id: "find-q", type: "search", autocomplete: "off", autocapitalize: "none", spellcheck: "false", maxlength: 4000,
    placeholder: "label = dog and width > 640", role: "combobox", "aria-expanded": "false", "aria-autocomplete": "list",
    "aria-controls": "find-suggestions", "aria-describedby": "find-error", enterkeyhint: "search",
  });
  const error = el("div", { id: "find-error", class: "find-error", role: "alert" });
  const root = el("div", { class: "find-field" }, el("label", { for: "find-q" }, "Filter"), input, list, error);
  let timer = 0, chosen = -1, found = [], shown = null;

  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(() => apply(input.value.trim(), { push: false }), WAIT_MS);
  };
  const now = () => {
    clearTimeout(timer);
    apply(input.value.trim(), { push: true });
  };

  function close() {
    list.hidden = true;
    chosen = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function suggest() {
    found = findSuggestions(input.value.slice(0, input.selectionStart), names());
    chosen = -1;
    input.removeAttribute("aria-activedescendant");
    list.replaceChildren(...found.map((each, place) => el("li", {
      id: `find-suggestion-${place}`, role: "option", "aria-selected": "false",
      onmousedown: (event) => { event.preventDefault(); take(place); },
    }, el("b", {}, plain(each.text)), el("span", {}, each.about))));
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(found.length > 0));
  }

  function mark(place) {
    chosen = place;
    [...list.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === place)));
    if (place < 0) input.removeAttribute("aria-activedescendant");
    else {
      input.setAttribute("aria-activedescendant", `find-suggestion-${place}`);
      list.children[place].scrollIntoView({ block: "nearest" });
    }
  }

  function take(place) {
    const { begin, written } = found[place], end = input.selectionStart;
    input.setRangeText(`${written} `, begin, end, "end");
    suggestOrClose();
    later();
  }

  function suggestOrClose() {
    if (input.value.trim()) suggest(); else close();
  }

  input.addEventListener("input", () => { suggestOrClose(); later(); });
  input.addEventListener("blur", () => { close(); now(); });
  input.addEventListener("keydown", (event) => {
    const count = list.hidden ? 0 : found.length;
    if (event.key === "Escape") {
      event.stopPropagation();
      if (!list.hidden) close(); else input.blur();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (chosen >= 0) take(chosen); else { close(); now(); }
    } else if (event.key === "Tab" && chosen >= 0 && !event.shiftKey) {
      event.preventDefault();
      take(chosen);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!count) { suggest(); return; }
      const step = event.key === "ArrowDown" ? 1 : -1;
      mark(((chosen + 1 + step + count + 1) % (count + 1)) - 1);
    }
  });

  return {
    root, text: () => input.value.trim(), focus: () => { input.focus(); input.select(); },
    /** Show the filter of the address, if it is another one than before: what is typed stays. */
    show(text) {
      if (text === shown) return;
      shown = text;
      if (input.value.trim() !== text) input.value = text;
    },
    /** Show an error, with the character it is at; null: none. */
    fail(wrong) {
      input.setAttribute("aria-invalid", String(Boolean(wrong)));
      error.replaceChildren();
      if (!wrong) return;
      const text = input.value.trim(), at = wrong.at;
      error.append(el("p", {}, wrong.error));
      if (at === null || at === undefined) return;
      const begin = Math.max(0, at - 20), rest = text.slice(at + 1, at + 30);
      error.append(el("code", { "aria-label": `at character ${at + 1}` },
        `${begin ? "…" : ""}${text.slice(begin, at)}`, el("mark", {}, text[at] ?? "␣"), rest));
    },
  };
}

/** What the word before the caret may become: [{text, about, written, begin}]. */
export function findSuggestions(before, names) {
  const value = before.match(VALUE);
  if (value) {
    const name = value[1].replace(/^"|"$/g, ""), typed = value[2].replace(/^"/, "").toLowerCase();
    const classes = names.find((each) => each.name === name)?.classes ?? [];
    return pick(classes.map((text) => ({ text, about: "" })), typed, before.length - value[2].length, quote);
  }
  const [typed] = before.match(WORD);
  if (!typed) return [];
  const words = names.map(({ name, about, kind }) =>
    ({ text: name, about: about === "a field" ? `${kind} field` : about }));
  const keywords = ["and", "or", "not"].map((text) => ({ text, about: "" }));
  return pick([...words, ...keywords], typed.toLowerCase(), before.length - typed.length, (text) =>
    keywords.some((each) => each.text === text) ? text : quote(text));
}

function pick(all, typed, begin, write) {
  const starting = all.filter(({ text }) => text.toLowerCase().startsWith(typed));
  const inside = all.filter(({ text }) => !text.toLowerCase().startsWith(typed) && text.toLowerCase().includes(typed));
  const found = [...starting, ...inside].filter(({ text }) => text.toLowerCase() !== typed);
  return found.slice(0, MOST_SHOWN).map((each) => ({ ...each, begin, written: write(each.text) }));
}
