// The records of a filter in its order: asked in pages of 200 around what is seen, kept up to a limit.
import { api, app } from "./app.js";

const PAGE = 200, KEPT = 50, AGAIN_MS = 700;

export class Rows {
  #pages = new Map();
  #asked = new Map();
  #query = {};

  /** changed(): called after records, their number or an error have come. */
  constructor(changed) {
    this.changed = changed;
    this.total = null;
    this.error = "";
  }

  /** Whether positions are indices: no filter and no order is set. */
  get isWhole() { return !this.#query.q && !this.#query.sort; }

  reset(q, sort) {
    this.close();
    this.#query = { q, sort };
    this.total = this.isWhole ? app.session.total : null;
    this.error = "";
    this.#ask(0);
  }

  close() {
    for (const { stop } of this.#asked.values()) stop.abort();
    this.#asked.clear();
    this.#pages.clear();
  }

  /** The record at a position, if it is there. */
  at(position) { return this.#pages.get(Math.floor(position / PAGE))?.[position % PAGE]; }

  /** Its index, if it is known. */
  index(position) { return this.isWhole ? position : this.at(position)?.index; }

  /** Ask for what is seen, then for the pages beside it; requests for other pages are given up. */
  want(first, last) {
    const from = Math.floor(first / PAGE), to = Math.floor(last / PAGE);
    for (const [number, { stop }] of this.#asked) {
      if (number < from - 1 || number > to + 1) {
        stop.abort();
        this.#asked.delete(number);
      }
    }
    let isThere = true;
    for (let number = from; number <= to; number++) isThere = this.#ask(number) && isThere;
    if (isThere && this.total !== null) {
      if ((to + 1) * PAGE < this.total) this.#ask(to + 1);
      if (from > 0) this.#ask(from - 1);
    }
  }

  /** Indices of the records at positions first to last, asked for as far as they are not known. */
  async indices(first, last) {
    if (this.isWhole) return Array.from({ length: last - first + 1 }, (_, at) => first + at);
    const found = [];
    for (let start = first; start <= last; start += 1000) {
      const { rows } = await api("rows", { ...this.#query, start, stop: Math.min(start + 1000, last + 1) });
      found.push(...rows.map((row) => row.index));
    }
    return found;
  }

  /** True if the page is there; else it is asked for. */
  #ask(number) {
    const page = this.#pages.get(number);
    if (page) {
      this.#pages.delete(number);
      this.#pages.set(number, page);
      if (!page.isPending || this.#asked.has(number)) return true;
    } else if (this.#asked.has(number)) return false;
    const stop = new AbortController();
    this.#asked.set(number, { stop });
    this.#load(number, stop, page ? AGAIN_MS : 0);
    return Boolean(page);
  }

  async #load(number, stop, delay) {
    if (delay) await new Promise((done) => { setTimeout(done, delay); });
    if (stop.signal.aborted) return;
    try {
      const start = number * PAGE;
      const options = { signal: stop.signal, quiet: true };
      const answer = await api("rows", { ...this.#query, start, stop: start + PAGE }, options);
      if (stop.signal.aborted) return;
      this.#asked.delete(number);
      answer.rows.isPending = answer.pending;
      this.#pages.set(number, answer.rows);
      this.total = answer.total;
      this.error = "";
      if (this.#pages.size > KEPT) this.#pages.delete(this.#pages.keys().next().value);
    } catch (error) {
      if (stop.signal.aborted) return;
      this.#asked.delete(number);
      this.error = error.message;
      this.total ??= 0;
    }
    this.changed();
  }
}
