"""Small arrays of records: of the shape and dtype that the schema of the store says, or an error.

Without the check, assigning to a row of a batch would silently broadcast another shape and cast another dtype, and a
collated batch would differ from the schema. Both paths call this, such that filling equals collating.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import CorruptRecordError
from penstock.sample import Array, ArraySpec, Field, Record

__all__ = ["get_array", "get_array_spec"]


def get_array_spec(field: Field) -> ArraySpec | None:
    """Shape and dtype of the arrays of a field; None if they vary, or it holds no arrays."""
    kind = field.array
    return None if kind is None or kind.shape is None else ArraySpec(kind.shape, kind.dtype)


def get_array(record: Record, field: str, spec: ArraySpec, store: str) -> Array:
    """The array of a record.

    Parameters
    ----------
    record : Record
        The record, from a store.
    field : str
        The field.
    spec : ArraySpec
        As :func:`get_array_spec` returns it for that field.
    store : str
        URL of the store, for the error.

    Raises
    ------
    CorruptRecordError
        If the array has another shape or dtype; names store, key and index.
    """
    array = np.asarray(record.fields[field])
    if array.shape != spec.shape or array.dtype != spec.dtype:
        raise CorruptRecordError(
            f"field {field!r} must be {spec.dtype} of shape {spec.shape}, as the schema of the store says, got "
            f"{array.dtype} of shape {array.shape}",
            store=store,
            key=record.key,
            index=record.index,
        )
    return array
