"""The types that all layers share: record, schema, array spec, tree, sample keys, watch.

Frozen dataclasses over NumPy, which check their values, and functions over trees. Nothing here depends on stores,
datasets or loaders.
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.wording import NotebookView, describe_value

__all__ = [
    "KINDS",
    "MAX_NAME_NBYTES",
    "Array",
    "ArrayKind",
    "ArraySpec",
    "Batch",
    "Blob",
    "DType",
    "DatasetLike",
    "Field",
    "Index",
    "Record",
    "Sample",
    "SampleKeys",
    "SamplerLike",
    "Schema",
    "State",
    "StateDict",
    "Tree",
    "Value",
    "Watch",
    "refuse_field_name",
    "tree_leaves",
    "tree_map",
]

_ARRAY_KIND: Final = re.compile(
    r"(u?int(?:8|16|32|64)|float(?:16|32|64)|bool)\[((?:\*|[0-9]{1,10})(?:,(?:\*|[0-9]{1,10}))*)\]"
)
_PIXELS: Final = re.compile(r"pixels:(uint8|uint16|float32)\[((?:(?:\*|[1-9][0-9]{0,9}),){2}(?:\*|[1-9][0-9]{0,3}))\]")
_ARRAY_AXES: Final[Mapping[str, tuple[tuple[int, ...] | None, ...]]] = {
    "boxes": (None, (4,)),
    "keypoints": (None, (2, 3)),
}
_MAX_AXES: Final = 31  # NumPy's limit before version 2, less the axis of the batch
_MAX_ARRAY_NBYTES: Final = 0xFFFFFFFF  # what an LMDB record holds

KINDS: Final = ("image", "mask", "boxes", "keypoints", "label", "int", "float", "text", "json", "bytes")
"""What a field may be. ``image``: encoded image bytes; ``label``: a class number; ``boxes``: float32 (n, 4) xyxy
absolute pixels; ``keypoints``: float32 (n, 2|3); ``mask``: an encoded single-channel image; ``json``: an object that
JSON can hold. A small array is written ``dtype[shape]`` with ``*`` for a length that varies (``"float32[*,4]"``). An
image that is stored as its pixels is written ``pixels:dtype[height,width,channels]``, with uint8, uint16 or float32
(``"pixels:uint8[*,*,3]"``); three channels are RGB, and ``*`` channels are those of each image: gray and colour side by
side."""

MAX_NAME_NBYTES: Final = 200
"""Most bytes of a field's name in UTF-8: file names are made of it, and file systems allow 255 bytes."""

_MAX_FIELDS: Final = 0xFFFF  # a record's header counts them in 16 bits
_NOT_IN_NAMES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, surrogates, line separators

Tree = Any
"""Nested tuples, lists and dicts (str keys) with leaves of one type; Python has no type for it."""

Array = NDArray[Any]
"""A NumPy array of any dtype."""

DType = np.dtype[Any]
"""A dtype of any scalar type."""

Blob = Any
"""A large field of a record: bytes or a memoryview of them, or an array of pixels. Type checkers know what these have
in common, the buffer protocol, from Python 3.12 on."""

Sample = Any
"""What ``dataset[index]`` returns: any object of the user's."""

Value = Any
"""The value of a field of a record, of JSON or of an annotation: of any type until its kind is known."""

Batch = Any
"""What a loader yields: any object that ``collate_fn`` returns; by default a :data:`Tree` of arrays or tensors."""

Index = Any
"""What a sampler draws: an int as a rule, or any object that the dataset accepts."""

DatasetLike = Any
"""A dataset of penstock's, torch's or the user's: any object with ``__getitem__``, or that can be iterated."""

SamplerLike = Any
"""A sampler or batch sampler of penstock's, torch's or the user's: any iterable of indices, or of batches of them."""

StateDict = dict[str, Any]
"""What a loader's ``state_dict()`` returns."""

State = Any
"""What ``state_dict()`` returns: as a rule a mapping that JSON can hold."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record.

    Parameters
    ----------
    kind : str
        One of :data:`KINDS`, a small array such as ``"float32[*,4]"``, or pixels such as ``"pixels:uint8[*,*,3]"``.
    classes : tuple of str
        Names of a label's classes, by number; empty where they are unknown.
    upright : bool, optional
        Of boxes, keypoints, masks and instances: which picture they are of, where its file has an Exif orientation.
        True: the upright picture, as viewers and tools of annotation show it; ``Decode`` then turns it. False: the
        picture as its rows are stored. None: that is not said.

    Raises
    ------
    ArgumentError
        If the kind is unknown, or a small array has more than 31 axes or 4 GiB.
    """

    kind: str
    classes: tuple[str, ...] = ()
    upright: bool | None = None

    def __post_init__(self) -> None:
        if self.upright is not None and type(self.upright) is not bool:
            raise ArgumentError(f"upright must be True, False or None, got {self.upright!r:.80}")
        if self.kind in KINDS or self.pixels is not None:
            return
        array = _parse_kind(self.kind, _ARRAY_KIND) if type(self.kind) is str else None
        if array is None:
            raise ArgumentError(
                f"kind must be one of {', '.join(KINDS)}, a small array such as 'float32[*,4]', or pixels such as "
                f"'pixels:uint8[*,*,3]', got {self.kind!r:.200}"
            )
        if len(array.axes) > _MAX_AXES or array.least_nbytes > _MAX_ARRAY_NBYTES:
            raise ArgumentError(
                f"a small array must have at most {_MAX_AXES} axes and {_MAX_ARRAY_NBYTES} bytes, got {self.kind:.200}"
            )

    @property
    def is_blob(self) -> bool:
        """Whether the value is encoded bytes or pixels, stored after the small fields and read without copying."""
        return self.kind in {"image", "mask", "bytes"} or self.pixels is not None

    @property
    def is_image(self) -> bool:
        """Whether the value is an image, encoded or as its pixels."""
        return self.kind == "image" or self.pixels is not None

    @property
    def pixels(self) -> ArrayKind | None:
        """Dtype and shapes (height, width, channels) of an image that is stored as its pixels; None for other kinds."""
        return _parse_kind(self.kind, _PIXELS) if type(self.kind) is str else None

    @property
    def array(self) -> ArrayKind | None:
        """Dtype and shapes of a small array; None for other kinds."""
        return _parse_kind(self.kind, _ARRAY_KIND)


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """Dtype of a small array, and the allowed lengths of each axis; None for an axis of any length."""

    dtype: DType
    axes: tuple[tuple[int, ...] | None, ...]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape, if only one is allowed."""
        shape = tuple(lengths[0] for lengths in self.axes if lengths is not None and len(lengths) == 1)
        return shape if len(shape) == len(self.axes) else None

    @property
    def empty_shape(self) -> tuple[int, ...] | None:
        """The shape of an empty list, if the first axis may have any length."""
        if self.axes[0] is not None:
            return None
        return tuple(0 if lengths is None else lengths[0] for lengths in self.axes)

    @property
    def least_nbytes(self) -> int:
        """Bytes of a value, if axes of any length have length 1."""
        return math.prod(lengths[0] for lengths in self.axes if lengths is not None) * self.dtype.itemsize

    def allows(self, shape: Sequence[int]) -> bool:
        """Return whether an array may have this shape."""
        return len(shape) == len(self.axes) and all(
            lengths is None or length in lengths for length, lengths in zip(shape, self.axes, strict=True)
        )

    def __str__(self) -> str:
        lengths = ("*" if each is None else " or ".join(map(str, each)) for each in self.axes)
        return f"{self.dtype} of shape ({', '.join(lengths)}{',' if len(self.axes) == 1 else ''})"


@functools.lru_cache(maxsize=256)
def _parse_kind(kind: str, pattern: re.Pattern[str]) -> ArrayKind | None:
    if pattern is _ARRAY_KIND and kind in _ARRAY_AXES:
        return ArrayKind(np.dtype(np.float32), _ARRAY_AXES[kind])
    found = pattern.fullmatch(kind)
    if found is None:
        return None
    axes = tuple(None if length == "*" else (int(length),) for length in found[2].split(","))
    return ArrayKind(np.dtype(found[1]), axes)


def refuse_field_name(name: object) -> None:
    """Raise :class:`ArgumentError` unless ``name`` is a valid name of a field.

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
        If there is no field, or more than 65535, or a name is not valid (:func:`refuse_field_name`).
    """

    fields: Mapping[str, Field]

    def __post_init__(self) -> None:
        if not self.fields:
            raise ArgumentError("a schema must have at least one field")
        if len(self.fields) > _MAX_FIELDS:
            raise ArgumentError(f"a schema must have at most {_MAX_FIELDS} fields, got {len(self.fields)}")
        for name in self.fields:
            refuse_field_name(name)

    def __getitem__(self, name: str) -> Field:
        try:
            return self.fields[name]
        except KeyError:
            raise ArgumentError(f"field must be one of {', '.join(self.fields)}, got {name!r}") from None

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

    @property
    def upright(self) -> bool | None:
        """What the fields say of the picture that they are of, as each :class:`Field`; None where none says it.

        Raises :class:`ArgumentError` where they differ.
        """
        said = {field.upright: name for name, field in self.fields.items() if field.upright is not None}
        if len(said) > 1:
            raise ArgumentError(
                f"the fields of a record must be of one picture: {said[True]!r} is of the upright one, and "
                f"{said[False]!r} of the stored one"
            )
        return next(iter(said), None)

    def refuse_small(self, name: str) -> None:
        """Raise :class:`ArgumentError` unless field ``name`` exists and is stored as encoded bytes."""
        if not self[name].is_blob:
            raise ArgumentError(f"field {name!r} must hold encoded bytes, got kind {self[name].kind}")

    def refuse_encoded(self, name: str) -> None:
        """Raise :class:`ArgumentError` unless field ``name`` exists and is stored as pixels."""
        if self[name].pixels is None:
            raise ArgumentError(f"field {name!r} must hold pixels, got kind {self[name].kind}")

    def to_json(self) -> dict[str, object]:
        """Return the schema as JSON-able values; see :meth:`from_json`."""
        return {
            name: {
                "kind": f.kind,
                **({"classes": list(f.classes)} if f.classes else {}),
                **({} if f.upright is None else {"upright": f.upright}),
            }
            for name, f in self.fields.items()
        }

    @classmethod
    def from_json(cls, value: State) -> Schema:
        """Return the schema from the result of :meth:`to_json`; other values raise :class:`ArgumentError`."""
        try:
            return cls(
                {name: Field(each["kind"], _class_names(each), each.get("upright")) for name, each in value.items()}
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ArgumentError(f"a schema must be a mapping of names to kinds, got {value!r:.200}") from error


def _class_names(field: Mapping[str, object]) -> tuple[str, ...]:
    names = field.get("classes", [])
    if type(names) is not list or not all(type(name) is str for name in names):
        raise ArgumentError(f"the classes of a field must be a list of texts, got {names!r:.200}")
    try:
        "".join(names).encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"the classes of a field must be valid Unicode, got {names!a:.200}") from error
    return tuple(names)


@dataclass(frozen=True, slots=True, repr=False)
class Record(NotebookView):
    """A stored example: encoded bytes and small fields.

    Parameters
    ----------
    index : int
        Position in the store.
    key : str
        Name in the source; ``str(index)`` if it has none.
    fields : mapping of str to object
        Blobs are ``bytes`` or read-only ``memoryview`` (valid while the store is open), pixels are read-only HWC
        arrays; small fields are ``int``, ``float``, ``str``, NumPy arrays or what JSON can hold. None: this record has
        no value.
    """

    index: int
    key: str
    fields: Mapping[str, Sample]

    def __repr__(self) -> str:
        return f"Record({self.index}, {self.key!r}, {describe_value(dict(self.fields))})"


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of one sample's array (without the batch dimension)."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        """The number of bytes of one sample."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class SampleKeys:
    """The keys of all random numbers of some samples: (seed, epoch, index).

    ``indices`` are those of the sampler, for the outermost dataset. So a sample is the same whichever worker, rank or
    chunk builds it.
    """

    seed: int
    epoch: int
    indices: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, rows: slice | Sequence[int] | Array) -> SampleKeys:
        """The keys of the samples at some positions."""
        return SampleKeys(self.seed, self.epoch, self.indices[rows])


class Watch(Protocol):
    """Called in a worker before each call of user code that builds samples: see :class:`~penstock.workers.base.Job`."""

    def __call__(self, place: int, count: int = 1) -> None:
        """Report that the call for samples ``place`` to ``place + count - 1`` begins.

        ``place``: position in the batch or chunk that is being built; -1 if the call builds no samples (a collation).
        ``count``: number of samples; the call may take as long as this number of calls for one sample.
        """
        ...


def tree_map(function: Callable[..., object], tree: Tree, *rest: Tree) -> Tree:
    """Apply ``function`` to the leaves of trees of one structure; tuples, lists and named tuples keep their types."""
    if isinstance(tree, Mapping):
        return {name: tree_map(function, value, *(r[name] for r in rest)) for name, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(tree_map(function, *values) for values in zip(tree, *rest, strict=True)))
    if isinstance(tree, (tuple, list)):
        return type(tree)(tree_map(function, *values) for values in zip(tree, *rest, strict=True))
    return function(tree, *rest)


def tree_leaves(tree: Tree) -> list[Tree]:
    """The leaves of a tree, in order."""
    if isinstance(tree, Mapping):
        return [leaf for value in tree.values() for leaf in tree_leaves(value)]
    if isinstance(tree, (tuple, list)):
        return [leaf for value in tree for leaf in tree_leaves(value)]
    return [tree]
