// The records of a store as a grid of thumbnails.
import { api, el, on, register } from "./app.js";

function mount(root) {
  const list = el("ol", { class: "grid" });
  root.append(list);
  const show = async ({ q, sort }) => {
    const { rows } = await api("rows", { q, sort, start: 0, stop: 100 });
    list.replaceChildren(...rows.map((row) => el("li", {}, `${row.index} ${row.key ?? ""}`)));
  };
  show({});
  return on((state, before) => { if (state.q !== before.q || state.sort !== before.sort) show(state); });
}

register({ id: "grid", title: "Grid", key: "g", mount });
