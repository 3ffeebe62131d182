// What every page shares: the session, the state in the address, requests, actions with keys.
//
//   import { api, app, action, el, register } from "./app.js";
//
// State is in the address after "#", so that a link shows the same: #view=grid&q=label+%3D+dog&index=7.
// Data is text: it enters the page by el() and textContent, never as HTML.

export const app = { session: null, state: {}, listeners: new Set(), pages: new Map(), panels: [], actions: new Map() };

/** Resolved when the first pictures are there, or after two seconds: what takes the server long is asked then. */
export const firstPictures = new Promise((done) => { app.drawn = done; setTimeout(done, 2000); });

const SVG = new Set(["svg", "path", "text", "g", "rect", "line", "circle", "polyline"]);

/** An element: el("button", {class: "quiet", onclick: run, "aria-label": text}, "text", child, ...). */
export function el(tag, attributes = {}, ...children) {
  const made = SVG.has(tag) || attributes.svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "svg" || value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** The sentence of a picture that did not come. */
export async function explain(url) {
  const response = await fetch(url).catch(() => null);
  return plain(response && !response.ok ? (await response.json()).error : "The picture did not come.");
}

/** The JSON of a request; an error is shown in the status line and thrown. `quiet`: it is only thrown. */
export async function api(path, query = {}, options = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const url = `api/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
  let response, body;
  try {
    response = await fetch(url, options);
    body = await response.json();
  } catch (error) {
    if (error.name !== "AbortError") say("The viewer does not answer; is it still running?", true);
    throw error;
  }
  if (!response.ok) {
    if (!options.quiet) say(body.error, true);
    throw Object.assign(new Error(body.error), { status: response.status });
  }
  return body;
}

/** A line in the status bar, which screen readers say. */
export function say(text, isError = false) {
  const status = document.getElementById("status");
  status.textContent = text;
  status.classList.toggle("error", isError);
}

/** Copy a text, or select `shown` where the page may not write to the clipboard; whether it was copied. */
export async function copyText(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(shown);
    return false;
  }
}

/**
 * Show a picture that is much smaller than its place, which it fills as far as it fits, at the largest whole multiple
 * of its size: each pixel is a square. `img.parentElement` is the place, with what is drawn over the picture.
 */
export function sharpen(img) {
  const { parentElement: place, naturalWidth: width, naturalHeight: height } = img;
  const fill = Math.min(place.clientWidth / width, place.clientHeight / height) * (window.devicePixelRatio || 1);
  const isSmall = width > 0 && fill >= 2;
  img.classList.toggle("sharp", isSmall);
  place.classList.toggle("whole", isSmall);
  if (isSmall) place.style.setProperty("--whole", Math.floor(fill) / fill);
}

/** A number with its thousands apart: 1,000,000. */
export const count = (number) => number.toLocaleString("en-US");

/** A text of a store as it can be shown: control characters by their symbols, none that turns the direction. */
export function plain(text) {
  return String(text ?? "")
    .replace(/[\u0000-\u001f]/g, (found) => String.fromCharCode(0x2400 + found.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, "\ufffd");
}

/** What the address need not say; `view` is that of the session. */
export const DEFAULTS = { view: "grid" };

export function readState() {
  return { ...DEFAULTS, ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) };
}

/** Change the state: set({q: "label = dog", index: null}); null takes it out. `replace`: no entry in the history. */
export function set(changes, { replace = false } = {}) {
  const next = { ...app.state };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") delete next[name];
    else next[name] = String(value);
  }
  const shown = Object.entries(next).filter(([name, value]) => DEFAULTS[name] !== value);
  const hash = `#${new URLSearchParams(shown)}`;
  if (hash !== (location.hash || "#")) history[replace ? "replaceState" : "pushState"](null, "", hash);
  update();
}

/** Be told of each change: listener(state, before). Returns what ends it. */
export function on(listener) {
  app.listeners.add(listener);
  return () => app.listeners.delete(listener);
}

export function update() {
  const before = app.state;
  app.state = readState();
  for (const listener of [...app.listeners]) listener(app.state, before);
}

/** A page: register({id, title, key, feature, mount(root) -> unmount}); with `feature`, where the session has it. */
export function register(page) { app.pages.set(page.id, page); }

/** Whether a page is there: it is registered, and the session has what it shows. */
export function hasPage(id) {
  const page = app.pages.get(id);
  return Boolean(page && (!page.feature || app.session.features.includes(page.feature)));
}

/** A panel beside the grid: panel({id, side: "left" | "right", mount(root)}). */
export function panel(made) { app.panels.push(made); }

/**
 * What a key does: action({id, key, title, run(event), when(), group}). `key` as KeyboardEvent.key: "?", "g", "Escape",
 * or a list of them; `group` is its heading in the list of keys.
 */
export function action(made) { app.actions.set(made.id, made); }

export function run(id, event) { app.actions.get(id)?.run(event); }

/** A colour of a class, the same everywhere; equal numbers have equal colours. */
export function classColor(number) {
  const hue = ((Number(number) * 137.508) % 360 + 360) % 360;
  return `oklch(0.72 0.15 ${hue.toFixed(1)})`;
}

// What is drawn over pictures. `hide` in the address has the layers that are off, and "names".
const layers = new Map();

export function hiddenLayers(state = app.state) {
  return new Set((state.hide ?? "").split(",").filter(Boolean));
}

/** Turn a layer off or on. */
export function toggleLayer(id) {
  const hidden = hiddenLayers();
  if (!hidden.delete(id)) hidden.add(id);
  set({ hide: [...hidden].join(",") }, { replace: true });
}

/** Note which layers there are; true if one is new. */
export function noteLayers(found) {
  const before = layers.size;
  for (const { id, name, kind } of found) if (!layers.has(id)) layers.set(id, { id, name, kind });
  return layers.size > before;
}

export const knownLayers = () => [...layers.values()];
