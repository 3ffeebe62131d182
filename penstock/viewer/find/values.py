"""The values by which a record is in a list: of the names of its filter and its order, as ``brightness 0.04``.

Called by the request for rows, with the records of one answer. It starts no scan and reads no field that the filter
or the order did not need; texts and classes are left out, because a cell shows the key and the class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.viewer.browse.layers import JsonObject
from penstock.viewer.find.columns import FilterNumbers
from penstock.viewer.find.finder import Finder
from penstock.viewer.find.language import Combination, Condition, QueryToken
from penstock.viewer.find.problems import OUTLIER_NAMES

__all__ = ["describe_values"]

_MOST_NAMES: Final = 4
_OF_PROBLEMS: Final = {"tiny": ("width", "height"), "extreme-aspect": ("aspect",), "box-degenerate": ("area",)}


def describe_values(finder: Finder, query: str, sort: str, indices: Sequence[int]) -> list[JsonObject]:
    """``values``, such as ``["brightness 0.04"]``, of each record, and the ``group`` of a near-duplicate.

    Of an outlier, the value that is farthest from the others is added. Of a list of values, the range is shown.
    """
    node = finder.parse(query)[0]
    order = "" if sort.startswith(("set:", "random")) else sort.strip().removeprefix("-")
    names = [*([] if node is None else _iterate_names(finder, node)), order]
    rows: list[JsonObject] = [{"values": []} for _ in indices]
    for name in list(dict.fromkeys(filter(None, names)))[:_MOST_NAMES]:
        known = finder.column(QueryToken(name))
        if not isinstance(known, FilterNumbers) or known.classes:
            continue
        word = "" if finder.fields.kind(name) is not None else name.removeprefix(".")
        if word == "outlier":
            measures = [f".{each}" for each in OUTLIER_NAMES]
            written = [_write_column(finder, each, indices) for each in measures]
            for row, *texts, kind in zip(rows, *written, finder.outliers()[1][indices].tolist(), strict=True):
                row["values"] += texts[kind]
        for row, texts, first in zip(rows, _write_column(finder, name, indices), indices, strict=True):
            row["values"] += texts
            if word == "duplicate" and texts:
                row["group"] = int(finder.duplicates()[first])
    return rows


def _iterate_names(finder: Finder, node: Condition) -> Iterator[str]:
    if isinstance(node, Combination):
        for each in node.nodes:
            yield from _iterate_names(finder, each)
    elif not finder.is_search(node):
        name = node.name.text
        is_problem = finder.fields.kind(name) is None and name.removeprefix(".") == "problem"
        found = [each for value in node.values for each in _OF_PROBLEMS.get(value.text, ())] if is_problem else [name]
        yield from ("duplicate" if each == "copy" and finder.fields.kind(each) is None else each for each in found)


def _write_column(finder: Finder, name: str, indices: Sequence[int]) -> list[list[str]]:
    """The name and the value of each record, or the least and the largest; nothing where there is none."""
    column = finder.column(QueryToken(name))
    assert isinstance(column, FilterNumbers), "texts are not written"
    missing, written = column.missing(), []
    for index in indices:
        part = slice(index, index + 1) if column.offsets is None else slice(*column.offsets[index : index + 2].tolist())
        values = [] if missing[index] else column.values[part].tolist()
        ends = [min(values), max(values)] if values else []
        texts = dict.fromkeys(f"{each:.0f}" if abs(each) >= 1000 else f"{each:.4g}" for each in ends)
        written.append([f"{name.removeprefix('.')} {' to '.join(texts)}"] if texts else [])
    return written
