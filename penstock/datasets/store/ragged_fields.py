"""Fields of a store whose length differs from record to record, and what a batch holds of them.

Used by :mod:`penstock.datasets.store.sample_plan`. :func:`ragged_forms` is the question that loaders ask of any dataset
where samples are collated. Nothing here reads a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.ragged import RaggedSpec, check_form
from penstock.sample import ArrayKind, Field, Tree

__all__ = ["INSTANCES", "choose_forms", "ragged_forms", "ragged_spec"]

INSTANCES: Final = "uint8[*,*,*]"
"""What a sample holds of instances that follow the image: a mask for each object."""


def ragged_forms(dataset: object) -> Tree | None:
    """The form of each ragged field of a dataset's samples, in their structure, and None for every other field.

    None where ``dataset`` has none: it defines no ``ragged_forms()``, or that says so.
    """
    method = getattr(dataset, "ragged_forms", None)
    return method() if callable(method) else None


def choose_forms(
    stored: Mapping[object, str], names: Mapping[object, str], ragged: str | Mapping[str, str] | None
) -> dict[object, str]:
    """Return the form of each field of varying length, by its name in the sample.

    ``stored`` and ``names``: the kind of each field in the store, and its name there, by its name in the sample.
    ``ragged``: one form for all of them, or a form for each, by the names in the store. Raises ArgumentError if a form
    is unknown, or a field is not in the sample, or has a fixed shape.
    """
    varying = {name for name, kind in stored.items() if _varies(Field(kind).array)}
    if ragged is None:
        return {}
    if not isinstance(ragged, Mapping):
        return dict.fromkeys((name for name in stored if name in varying), check_form(ragged))
    chosen: dict[object, str] = {}
    for field, form in ragged.items():
        found = [name for name, own in names.items() if own == field]
        if not found:
            raise ArgumentError(f"ragged must name fields of the sample ({', '.join(names.values())}), got {field!r}")
        if wrong := [stored[name] for name in found if name not in varying]:
            raise ArgumentError(
                f"ragged must name arrays whose first length varies, such as 'float32[*,4]', got {field!r}, which is "
                f"{wrong[0]}"
            )
        chosen |= dict.fromkeys(found, check_form(form))
    return chosen


def ragged_spec(kind: str, form: str, *, moved: bool) -> RaggedSpec | None:
    """Return the spec of a field of varying length; None where other lengths than the first vary too.

    ``moved``: whether ops move its values, which are then float32.
    """
    array = Field(kind).array
    assert array is not None, "chosen by choose_forms"
    lengths = [length for axis in array.axes[1:] if axis is not None and len(axis) == 1 for length in axis]
    if len(lengths) != len(array.axes) - 1:
        return None
    return RaggedSpec(tuple(lengths), np.dtype(np.float32) if moved else array.dtype, form)


def _varies(array: ArrayKind | None) -> bool:
    return array is not None and array.axes[0] is None
