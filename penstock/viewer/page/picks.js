// Which records are picked.
const picked = new Set();
const listeners = new Set();

function tell() { for (const listener of [...listeners]) listener(); }

export const picks = {
  has: (index) => picked.has(index),
  get size() { return picked.size; },
  toggle(index) { if (!picked.delete(index)) picked.add(index); tell(); },
  set(indices, isOn) { for (const index of indices) { if (isOn) picked.add(index); else picked.delete(index); } tell(); },
  on(listener) { listeners.add(listener); return () => listeners.delete(listener); },
};
