"""Small arrays of records as samples have them: of the shape and dtype that the store's schema says, or an error.

A row of a batch would broadcast an array of another shape, and cast one of another dtype, without a word; a batch of
samples would have another shape than the schema says. Called for both, so that filling equals collating.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import CorruptRecordError
from penstock.sample import ArraySpec, Field, Record

__all__ = ["array_spec", "record_array"]


def array_spec(field: Field) -> ArraySpec | None:
    """Shape and dtype of a field's arrays; None where they vary, or it holds none."""
    kind = field.array
    return None if kind is None or kind.shape is None else ArraySpec(kind.shape, kind.dtype)


def record_array(record: Record, field: str, spec: ArraySpec, store: str) -> NDArray[Any]:
    """The array of a record.

    Parameters
    ----------
    record : Record
        As the store gives it.
    field : str
        Which of its fields.
    spec : ArraySpec
        As :func:`array_spec` has it for that field.
    store : str
        URL of the store, for the error.

    Raises
    ------
    CorruptRecordError
        If it has another shape or dtype; names store, key and index.
    """
    array = np.asarray(record.fields[field])
    if array.shape != spec.shape or array.dtype != spec.dtype:
        raise CorruptRecordError(
            f"field {field!r} is {array.dtype} of shape {array.shape}; the store's schema says {spec.dtype} of shape "
            f"{spec.shape}",
            store=store,
            key=record.key,
            index=record.index,
        )
    return array
