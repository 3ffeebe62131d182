"""The words every layer shares: record, schema, array spec, tree, ragged rows, sample keys.

Plain frozen dataclasses over NumPy; no behaviour beyond checking and walking. Everything above this
module speaks of samples in these terms; this module knows no store, dataset or loader.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError

__all__ = [
    "KINDS",
    "MAX_NAME_NBYTES",
    "ArraySpec",
    "Field",
    "Record",
    "SampleKeys",
    "Schema",
    "Tree",
    "refuse_field_name",
    "tree_leaves",
    "tree_map",
]

_ARRAY_KIND = re.compile(r"^(u?int(8|16|32|64)|float(16|32|64)|bool)\[(\*|\d+)(,(\*|\d+))*\]$")

KINDS: Final = ("image", "mask", "boxes", "keypoints", "label", "int", "float", "text", "bytes")
"""What a field may be. ``image``: encoded image bytes; ``label``: a class number; ``boxes``: float32 (n, 4) xyxy
absolute pixels; ``keypoints``: float32 (n, 2|3); ``mask``: an encoded single-channel image. A small array is
written ``dtype[shape]`` with ``*`` for a length that varies (``"float32[*,4]"``)."""

MAX_NAME_NBYTES: Final = 200
"""Most bytes of a field's name in UTF-8: file names are made of it, and file systems allow 255 bytes."""

_NOT_IN_NAMES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, surrogates, line separators

Tree = Any
"""A nesting of tuples, lists and dicts (str keys) with leaves of one type. No Python type says so."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record.

    Parameters
    ----------
    kind : str
        One of :data:`KINDS`, or a small array such as ``"float32[*,4]"``.
    classes : tuple of str
        Names of a label's classes, by number; empty where they are unknown.
    """

    kind: str
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS and not _ARRAY_KIND.match(self.kind):
            raise ArgumentError(
                f"field kind {self.kind!r} is not one of {', '.join(KINDS)}, nor a small array such as 'float32[*,4]'"
            )

    @property
    def is_blob(self) -> bool:
        """Whether the value is encoded bytes, stored after the small fields and read without copying."""
        return self.kind in {"image", "mask", "bytes"}


def refuse_field_name(name: object) -> None:
    """Raise :class:`ArgumentError` unless ``name`` may be the name of a field.

    A name is 1 to :data:`MAX_NAME_NBYTES` bytes of UTF-8 in any script. Spaces, dots and punctuation are allowed; path
    separators, control characters, ``.`` and ``..`` are not, since a field's name becomes a part of file names.
    """
    if type(name) is str and name not in {"", ".", ".."} and not {"/", "\\"} & set(name):
        categories = {unicodedata.category(character) for character in name}
        if not _NOT_IN_NAMES & categories and len(name.encode()) <= MAX_NAME_NBYTES:
            return
    shown = ascii(name)
    shown = shown if len(shown) <= MAX_NAME_NBYTES else f"{shown[:MAX_NAME_NBYTES]}..."
    raise ArgumentError(
        f"a field name must be text of 1 to {MAX_NAME_NBYTES} bytes in UTF-8, without '/', '\\' and control "
        f"characters, and not '.' or '..', got {shown}"
    )


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a store's records, in order: name to :class:`Field`.

    Raises
    ------
    ArgumentError
        If there is no field, or a name is not allowed (:func:`refuse_field_name`).
    """

    fields: Mapping[str, Field]

    def __post_init__(self) -> None:
        if not self.fields:
            raise ArgumentError("a schema needs at least one field")
        for name in self.fields:
            refuse_field_name(name)

    def __getitem__(self, name: str) -> Field:
        try:
            return self.fields[name]
        except KeyError:
            raise ArgumentError(f"no field {name!r}; this store has: {', '.join(self.fields)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    @property
    def blobs(self) -> tuple[str, ...]:
        """Names of the fields stored as encoded bytes, in order."""
        return tuple(name for name, f in self.fields.items() if f.is_blob)

    @property
    def small(self) -> tuple[str, ...]:
        """Names of the other fields, in order."""
        return tuple(name for name, f in self.fields.items() if not f.is_blob)

    def refuse_small(self, name: str) -> None:
        """Raise :class:`ArgumentError` unless field ``name`` is there and stored as encoded bytes."""
        if not self[name].is_blob:
            raise ArgumentError(f"field {name!r} is {self[name].kind}, not encoded bytes")

    def to_json(self) -> dict[str, Any]:
        """A JSON-able form; :meth:`from_json` is its inverse."""
        return {
            name: {"kind": f.kind, **({"classes": list(f.classes)} if f.classes else {})}
            for name, f in self.fields.items()
        }

    @classmethod
    def from_json(cls, value: Any) -> Schema:
        """Rebuild a schema from :meth:`to_json`'s form; anything else is an :class:`ArgumentError`."""
        try:
            return cls({n: Field(str(f["kind"]), tuple(map(str, f.get("classes", ())))) for n, f in value.items()})
        except (AttributeError, KeyError, TypeError) as error:
            raise ArgumentError(f"not a schema: {value!r:.200}") from error


@dataclass(frozen=True, slots=True)
class Record:
    """One stored example: encoded bytes and small fields.

    Parameters
    ----------
    index : int
        Position in the store.
    key : str
        Its name in the source; ``str(index)`` where the source has none.
    fields : mapping of str to object
        Blobs are ``bytes`` or read-only ``memoryview`` (valid while the store is open); small fields are
        ``int``, ``float``, ``str`` or NumPy arrays.
    """

    index: int
    key: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of one sample's array (without the batch dimension)."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of one sample."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class SampleKeys:
    """What a chunk's randomness hangs on: (seed, epoch, index) and nothing else.

    ``indices`` are those the sampler drew (the outermost dataset's), so that a sample looks the same
    whichever worker, rank or chunk builds it.
    """

    seed: int
    epoch: int
    indices: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> SampleKeys:
        """The keys of some rows."""
        return SampleKeys(self.seed, self.epoch, self.indices[rows])


def tree_map(function: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Apply ``function`` leaf by leaf over trees of one structure; containers keep their types, named tuples too."""
    if isinstance(tree, Mapping):
        return {name: tree_map(function, value, *(r[name] for r in rest)) for name, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(tree_map(function, *values) for values in zip(tree, *rest, strict=True)))
    if isinstance(tree, (tuple, list)):
        return type(tree)(tree_map(function, *values) for values in zip(tree, *rest, strict=True))
    return function(tree, *rest)


def tree_leaves(tree: Tree) -> list[Any]:
    """The leaves of a tree, in order."""
    if isinstance(tree, Mapping):
        return [leaf for value in tree.values() for leaf in tree_leaves(value)]
    if isinstance(tree, (tuple, list)):
        return [leaf for value in tree for leaf in tree_leaves(value)]
    return [tree]
