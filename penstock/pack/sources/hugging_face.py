"""Datasets of Hugging Face as sources: encoded images and sounds as they are stored, kinds by their features.

No picture is decoded: the bytes in the dataset are those in the pack. Formats and transforms of the dataset are not
applied, since its columns are packed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from penstock.errors import ArgumentError
from penstock.fields.kinds import NUMBER_DTYPES
from penstock.fields.names import CLASS_NAMES, is_mask_name
from penstock.pack.sources.base import SourceOptions
from penstock.pack.sources.datasets import DatasetSource
from penstock.pack.sources.iterables import IterableSource
from penstock.sample import DatasetLike, Field, Value

__all__ = ["HuggingFaceSource", "HuggingFaceStream"]


class HuggingFaceSource(DatasetSource):
    """The rows of a ``datasets.Dataset``."""

    @classmethod
    def recognises(cls, src: object) -> bool:
        """Recognise a ``datasets.Dataset``, or a mapping of splits."""
        return _is_a(src, "Dataset") or _is_a(src, "DatasetDict") or _is_a(src, "IterableDatasetDict")

    @classmethod
    def open(cls, src: DatasetLike, options: SourceOptions) -> Self:
        """Leave images and sounds encoded, and take kinds and classes from the features."""
        if not _is_a(src, "Dataset"):
            raise ArgumentError(
                f"a source must be one split, got splits {', '.join(map(repr, src))}; give dataset[split]"
            )
        options.refuse_others(("schema", "classes", "key", "images", "source_id"), "a dataset of Hugging Face")
        features = src.features
        rows = UndecodedRows(_leave_encoded(src.with_format(None)), _list_files(features))
        return cls(rows, options, type(src).__name__, f"datasets {src._fingerprint}", _find_fields(features))  # noqa: SLF001  # the library's own identity of a dataset


class HuggingFaceStream(IterableSource):
    """The rows of a ``datasets.IterableDataset``."""

    @classmethod
    def recognises(cls, src: object) -> bool:
        """Recognise a ``datasets.IterableDataset``."""
        return _is_a(src, "IterableDataset")

    @classmethod
    def open(cls, src: DatasetLike, options: SourceOptions) -> Self:
        """Open a stream of Hugging Face; without features, kinds are found from the first rows."""
        options.refuse_others(("schema", "classes", "key", "images", "source_id"), "a dataset of Hugging Face")
        features = src.features or {}
        files = _list_files(features)
        rows = (_take_bytes(row, files) for row in _leave_encoded(src))
        return cls(rows, options, None, type(src).__name__, _find_fields(features))


class UndecodedRows:
    """Rows of a dataset, with encoded images and sounds as bytes, or as the path where only that is known."""

    def __init__(self, dataset: DatasetLike, files: frozenset[str]) -> None:
        self._dataset, self._files = dataset, files

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> dict[str, Value]:
        return _take_bytes(self._dataset[index], self._files)


def _take_bytes(row: Mapping[str, Value], files: frozenset[str]) -> dict[str, Value]:
    values = dict(row)
    for name in files:
        stored = values[name]
        if isinstance(stored, Mapping):
            values[name] = stored["bytes"] if stored.get("bytes") is not None else Path(stored["path"])
    return values


def _is_a(src: object, name: str) -> bool:
    """Return whether it is of a class of the library, if that is imported."""
    kind = getattr(sys.modules.get("datasets"), name, None)
    return isinstance(kind, type) and isinstance(src, kind)


def _leave_encoded(dataset: DatasetLike) -> DatasetLike:
    """Return the dataset with images and sounds that are not decoded."""
    library = sys.modules["datasets"]
    for name, feature in (dataset.features or {}).items():
        if isinstance(feature, library.Image | library.Audio):
            dataset = dataset.cast_column(name, type(feature)(decode=False))
    return dataset


def _list_files(features: Mapping[str, object]) -> frozenset[str]:
    library = sys.modules["datasets"]
    return frozenset(name for name, each in features.items() if isinstance(each, library.Image | library.Audio))


def _find_fields(features: Mapping[str, object]) -> dict[str, Field]:
    """Return the fields that features say; for others, kinds are found from the values."""
    found = {name: _find_field(name, feature) for name, feature in features.items()}
    return {name: field for name, field in found.items() if field is not None}


def _find_field(name: str, feature: object) -> Field | None:  # noqa: PLR0911  # a return for each feature
    library = sys.modules["datasets"]
    if isinstance(feature, library.ClassLabel):
        return Field("label", tuple(feature.names))
    if isinstance(feature, library.Image):
        return Field("mask" if is_mask_name(name) else "image")
    if isinstance(feature, library.Audio):
        return Field("bytes")
    inner = getattr(feature, "feature", None)
    if inner is not None and getattr(feature, "length", -1) in {-1, None}:
        if isinstance(inner, library.ClassLabel):
            return Field("int64[*]", tuple(inner.names))
        dtype = inner.dtype if isinstance(inner, library.Value) else ""
        return Field(f"{dtype}[*]") if dtype in NUMBER_DTYPES else None
    if not isinstance(feature, library.Value):
        return None
    dtype = feature.dtype
    if dtype in {"string", "large_string"}:
        return Field("text")
    if dtype.startswith("float"):
        return Field("float")
    if dtype in NUMBER_DTYPES:
        return Field("label" if name.lower() in CLASS_NAMES else "int")
    return None
