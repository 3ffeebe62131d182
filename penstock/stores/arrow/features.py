"""What Arrow types and the features of ``datasets`` say of a column: numbers, bytes, axes and class names.

:mod:`.arrow.fields` plans the fields of records with it. Features are JSON in the metadata of a schema; those that are
damaged are ignored, since the types of the columns are known without them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.sample import DType
from penstock.stores.fields.record_names import share_classes

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "axes_of",
    "children_of",
    "class_names",
    "feature_of_child",
    "has_child",
    "is_binary",
    "is_list",
    "is_text",
    "make_dtype",
    "read_features",
    "refuse_other_classes",
    "storage_type_of",
]

_LISTS: Final = frozenset({"Sequence", "List", "LargeList"})


def read_features(metadata: Mapping[bytes, bytes]) -> dict[str, object]:
    """Return the features that ``datasets`` stores in the metadata of a schema, by column.

    It is empty where there are none.
    """
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def refuse_other_classes(metadata: Mapping[bytes, bytes] | None, others: Mapping[bytes, bytes] | None) -> None:
    """Raise ValueError unless the metadata of two files give the same names to the classes of each column.

    A file may name none.
    """
    if metadata != others:
        found, held = _list_classes(read_features(metadata or {})), _list_classes(read_features(others or {}))
        for path in found.keys() & held.keys():
            share_classes((("the first file", held[path]), ("", found[path])))


def _list_classes(features: object) -> dict[str, tuple[str, ...]]:
    """The names of all classes, by where they are."""
    found: dict[str, tuple[str, ...]] = {}
    nested = [("", features)]
    while nested:
        path, feature = nested.pop()
        if isinstance(feature, dict):
            found[path] = class_names(feature)
            nested += [(f"{path}/{name}", each) for name, each in feature.items()]
        elif isinstance(feature, list):
            nested += [(path, each) for each in feature]
    return found


def feature_of_child(feature: object, name: str) -> object:
    """Return the feature of a child of a struct, a list of structs, or a sequence."""
    while isinstance(feature, list) and feature:
        feature = feature[0]
    feature = _skip_lists(feature)
    return feature.get(name) if isinstance(feature, dict) else None


def class_names(feature: object) -> tuple[str, ...]:
    """The names of a ClassLabel, or of one inside a sequence."""
    feature = _skip_lists(feature)
    names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _skip_lists(feature: object) -> object:
    while isinstance(feature, dict) and feature.get("_type") in _LISTS:
        feature = feature.get("feature")
    return feature


def storage_type_of(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type below an extension type."""
    while hasattr(arrow_type, "storage_type"):
        arrow_type = arrow_type.storage_type
    return arrow_type


def make_dtype(arrow_type: pa.DataType) -> DType | None:
    """Return the NumPy dtype of an Arrow type of numbers or booleans; None for other types."""
    from pyarrow import types

    tests = (types.is_boolean, types.is_floating, types.is_signed_integer, types.is_unsigned_integer)
    found = next((kind for kind, is_kind in zip("bfiu", tests, strict=True) if is_kind(arrow_type)), None)
    # `to_pandas_dtype` imports pandas in some versions of pyarrow.
    return None if found is None else np.dtype(f"{found}{max(arrow_type.bit_width // 8, 1)}")


def is_binary(arrow_type: pa.DataType) -> bool:
    """Return whether values of a type are bytes."""
    from pyarrow import types

    if types.is_dictionary(arrow_type):
        return is_binary(arrow_type.value_type)
    kinds = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return any(is_kind(arrow_type) for is_kind in kinds)


def is_text(arrow_type: pa.DataType) -> bool:
    """Return whether values of a type are text."""
    from pyarrow import types

    return any(is_kind(arrow_type) for is_kind in (types.is_string, types.is_large_string, types.is_string_view))


def is_list(arrow_type: pa.DataType) -> bool:
    """Return whether values of a type are lists, of one length or of any."""
    from pyarrow import types

    return any(is_kind(arrow_type) for is_kind in (types.is_list, types.is_large_list, types.is_fixed_size_list))


def axes_of(arrow_type: pa.DataType) -> tuple[str, DType | None]:
    """The axes of nested lists of numbers as a kind writes them, and the dtype of the numbers."""
    axes = []
    while is_list(arrow_type):
        axes.append(str(getattr(arrow_type, "list_size", "*")))
        arrow_type = storage_type_of(arrow_type.value_type)
    return ",".join(axes), make_dtype(arrow_type) if axes else None


def children_of(arrow_type: pa.DataType) -> dict[str, pa.DataType]:
    """Return the types of the children of a struct, by name; empty for other types."""
    from pyarrow import types

    if not types.is_struct(arrow_type):
        return {}
    fields = map(arrow_type.field, range(arrow_type.num_fields))
    return {field.name: storage_type_of(field.type) for field in fields}


def has_child(arrow_type: pa.DataType, path: Sequence[str]) -> bool:
    """Return whether a struct type has a child at a path; every type has one at the empty path."""
    return not path or (path[0] in (found := children_of(arrow_type)) and has_child(found[path[0]], path[1:]))
