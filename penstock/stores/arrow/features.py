"""What Arrow types and the features of ``datasets`` say of a column: axes and class names.

:mod:`.arrow.fields` plans the fields of records with it. Features are JSON in the metadata of a schema; those that are
damaged are ignored, since the types of the columns are known without them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.stores.arrow.columns import is_number

__all__ = [
    "axes_of",
    "class_names",
    "feature_of_child",
    "has_child",
    "is_binary",
    "read_features",
    "storage_type_of",
]

ArrowType = Any


def read_features(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The features that ``datasets`` stores in the metadata of a schema, by column; empty where there are none."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def feature_of_child(feature: Any, name: str) -> Any:
    """The feature of a child of a struct, a list of structs, or a sequence."""
    while isinstance(feature, list) and feature:
        feature = feature[0]
    while isinstance(feature, dict) and feature.get("_type") in {"Sequence", "List", "LargeList"}:
        feature = feature.get("feature")
    return feature.get(name) if isinstance(feature, dict) else None


def class_names(feature: Any) -> tuple[str, ...]:
    """The names of a ClassLabel, or of one inside a sequence."""
    while isinstance(feature, dict) and feature.get("_type") in {"Sequence", "List", "LargeList"}:
        feature = feature.get("feature")
    if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel":
        return ()
    names = feature.get("names")
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def storage_type_of(arrow_type: ArrowType) -> ArrowType:
    """The type below an extension type."""
    while hasattr(arrow_type, "storage_type"):
        arrow_type = arrow_type.storage_type
    return arrow_type


def is_binary(arrow_type: ArrowType) -> bool:
    """Whether values of a type are bytes."""
    kind = str(arrow_type)
    if kind.startswith("dictionary"):
        return is_binary(arrow_type.value_type)
    return kind in {"binary", "large_binary", "binary_view"} or kind.startswith("fixed_size_binary")


def axes_of(arrow_type: ArrowType) -> tuple[str, ArrowType | None]:
    """The axes of nested lists of numbers as a kind writes them, and the type of the numbers."""
    axes = []
    while True:
        kind = str(arrow_type)
        if kind.startswith("fixed_size_list"):
            axes.append(str(arrow_type.list_size))
        elif kind.startswith(("list<", "large_list<")):
            axes.append("*")
        else:
            return ",".join(axes), arrow_type if is_number(arrow_type) and axes else None
        arrow_type = storage_type_of(arrow_type.value_type)


def has_child(arrow_type: ArrowType, path: Sequence[str]) -> bool:
    """Whether a struct type has a child at a path; every type has one at the empty path."""
    for name in path:
        if not str(arrow_type).startswith("struct") or arrow_type.get_field_index(name) < 0:
            return False
        arrow_type = storage_type_of(arrow_type.field(name).type)
    return True
