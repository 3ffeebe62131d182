"""The fields of a sample of a store: their names or positions, structure and kinds.

Used by :mod:`penstock.datasets.store.sample_plan`; nothing here reads a record or transforms anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np

from penstock.datasets.store.record_arrays import get_array, get_array_spec, get_missing, warn_of_missing_label
from penstock.errors import ArgumentError
from penstock.fields.names import guess_kind
from penstock.pixel_rows import to_rgb
from penstock.sample import KINDS, Array, Field, Index, Record, Tree
from penstock.stores.base import Store
from penstock.stores.fields.image_signatures import refuse_array

if TYPE_CHECKING:
    from penstock.transforms.base import Op

__all__ = ["FOLLOWERS", "FieldSelection"]

FOLLOWERS: Final = frozenset({"boxes", "keypoints", "mask", "instances"})
"""Kinds of values that move with the image."""

_RECORD_FIELDS: Final = {"index": "int", "key": "text"}
"""Attributes of every :class:`~penstock.sample.Record` besides its fields, and their kinds."""


class FieldSelection:
    """The fields of a sample, by name or position, and the structure of the sample.

    Attributes
    ----------
    structure : type
        Of a sample: dict, tuple, or str for a single value.
    names : dict
        The field of the store for each name or position in the sample.
    stored, kind_of : dict
        The kind of each value in the store, and for transforms.
    arrays : dict
        Shape and dtype of the small arrays of fixed shape, by name.
    pixels : dict
        Dtype and shapes of the images that are stored as their pixels, by name.
    is_mixed : bool
        Whether gray and colour images are side by side as their pixels.
    instances : set
        Names of the instances that follow the image.
    upright : bool, optional
        Which picture boxes, keypoints, masks and instances are of, as in :class:`~penstock.sample.Field`.
    missing : dict
        What a sample holds where a record has no value, by name.

    Raises
    ------
    ArgumentError
        If there is no field, or a field is not in the store.
    """

    def __init__(self, store: Store, fields: object) -> None:
        self.structure: type = dict
        if fields is None:
            self.names: dict[Index, str] = {name: name for name in store.schema.fields}
        elif isinstance(fields, str):
            self.structure, self.names = str, {0: fields}
        elif isinstance(fields, Mapping):
            self.names = dict(fields)
        elif isinstance(fields, Iterable):
            self.structure, self.names = tuple, dict(enumerate(fields))
        else:
            self._refuse_names(fields)  # refused below
        if not self.names:
            raise ArgumentError(f"fields must name at least one field, got {fields!r}")
        if not all(isinstance(field, str) for field in self.names.values()):
            self._refuse_names(fields)
        stored = {name: _get_field(store, field) for name, field in self.names.items()}
        self.stored: dict[Index, str] = {name: field.kind for name, field in stored.items()}
        self.pixels = {name: field.pixels for name, field in stored.items() if field.pixels is not None}
        self.is_mixed = any(kind.axes[2] is None for kind in self.pixels.values())
        self.kind_of: dict[Index, str | None] = {**self.stored, **dict.fromkeys(self.pixels, "image")}
        shapes = [name for name, field in self.names.items() if field == "instances" and self.stored[name] == "json"]
        self.kind_of.update(dict.fromkeys(shapes, "instances"))
        of_objects = (name for name, field in stored.items() if self.names[name] == "keypoints" and _has_points(field))
        self.kind_of.update(dict.fromkeys(of_objects, "keypoints"))
        self.instances: set[Index] = set()
        self._own = {name: field for name, field in self.names.items() if field not in store.schema}
        self._blobs = [name for name, field in stored.items() if field.is_blob and field.pixels is None]
        self.array_kinds = {name: field.array for name, field in stored.items() if field.array is not None}
        self.missing = {name: value for name, field in stored.items() if (value := get_missing(field)) is not None}
        specs = {name: get_array_spec(field) for name, field in stored.items()}
        self.arrays = {name: spec for name, spec in specs.items() if spec is not None}
        self.upright = store.schema.upright
        self._url = store.url

    def _refuse_names(self, fields: object) -> NoReturn:
        raise ArgumentError(
            f"fields must be names of fields of the store, got {fields!r:.200}; give transforms as transform="
        )

    def is_number(self, name: Hashable) -> bool:
        """Return whether the value is the index of the record."""
        return self._own.get(name) == "index"

    @property
    def kinds(self) -> Tree:
        """The kind of each value, in the structure of the sample."""
        return self.to_tree(self.kind_of)

    def set_field_kinds(self, kinds: Mapping[str, str | None]) -> None:
        """Replace the kinds of the schema, by the names of the fields in the store."""
        for field, kind in kinds.items():
            if kind is not None and kind != "instances":
                Field(kind)
            names = [name for name, own in self.names.items() if own == field]
            if not names:
                raise ArgumentError(
                    f"kinds must name fields of the sample ({', '.join(self.names.values())}), got {field!r}"
                )
            self.kind_of.update(dict.fromkeys(names, kind))

    def find_label(self) -> Index:
        """The name of the only label.

        Raises ArgumentError if there is none, or there are several.
        """
        labels = [name for name, kind in self.stored.items() if kind == "label"]
        if len(labels) != 1:
            raise ArgumentError(
                f"target_transform needs one label among the fields {', '.join(self.names.values())}, got "
                f"{len(labels)}; transform= gets the whole sample"
            )
        return labels[0]

    def unknown_targets(self, given: Mapping[str, str | None]) -> list[tuple[str, str, str]]:
        """Fields whose names look like targets, but which have another kind: name, field, suggested kind."""
        found = []
        for name, field in self.names.items():
            stored = self.stored[name]
            for called in (field, name):
                looks = guess_kind(called)
                is_array = stored not in KINDS or (stored == "bytes" and looks == "mask")
                if looks and is_array and self.kind_of[name] == stored and field not in given:
                    found.append((called, field, looks))
        return found

    def refuse_followers(self, transform: str, given: Mapping[str, str | None]) -> None:
        """Refuse boxes, keypoints and masks, because torchvision's transforms of v1 get only the image."""
        followers = [*self.followers, *(field for _, field, _ in self.unknown_targets(given))]
        if followers:
            raise ArgumentError(
                f"{transform} is called with the image alone, and {followers[0]!r} would stay in place while it moves "
                "the image; give a penstock.transforms.Pipeline, which moves both, or "
                f"kinds={{{followers[0]!r}: None}} to leave it there"
            )

    @property
    def followers(self) -> list[str]:
        """The fields that follow the image."""
        return [self.names[name] for name, kind in self.kind_of.items() if kind in FOLLOWERS]

    def refuse_encoded(self, ops: Sequence[Op]) -> None:
        """Refuse ops that need pixels, where images of the store are encoded."""
        is_encoded = any(kind == "image" and name not in self.pixels for name, kind in self.kind_of.items())
        if ops and is_encoded and ops[0].takes_pixels:
            raise ArgumentError(
                f"{ops[0]!r} needs pixels, got a store's encoded images; put T.Decode() first in the pipeline"
            )

    def hold_instances(self, kind: str | None) -> None:
        """Say what samples hold of instances, if they follow the image; None: they stay as they are stored."""
        found = {name for name, own in self.kind_of.items() if own == "instances"}
        if kind is None:
            self.kind_of.update((name, self.stored[name]) for name in found)
        else:
            self.instances = found
            self.stored.update(dict.fromkeys(found, kind))

    def set_tree_kinds(self, kinds: Tree) -> None:
        """Replace all kinds, given in the structure of the sample; a value that is not named has no kind."""
        fits = isinstance(kinds, Mapping) if self.structure is dict else not isinstance(kinds, Mapping)
        if self.structure is tuple:
            fits = isinstance(kinds, tuple | list) and len(kinds) == len(self.names)
        given = self.from_tree(kinds) if fits else {}
        if not given or not given.keys() <= self.names.keys():
            raise ArgumentError(
                f"the kinds of the pipeline must have the structure of the fields {self.to_tree(self.names)!r}, "
                f"got {kinds!r}"
            )
        self.kind_of = {name: given.get(name) for name in self.names}

    def to_tree(self, values: Mapping[Hashable, Index]) -> Tree:
        """Convert values by name or position to the structure of the sample."""
        if self.structure is str:
            return values[0]
        return tuple(values.values()) if self.structure is tuple else values

    def from_tree(self, tree: Tree) -> Mapping[Hashable, Index]:
        """Return the inverse of :meth:`to_tree`."""
        if self.structure is str:
            return {0: tree}
        return dict(enumerate(tree)) if self.structure is tuple else tree

    def take_pixels(self, pixels: Array) -> Array:
        """Return pixels for a transform of another library: RGB, as if decoded, where gray and colour are mixed."""
        return to_rgb(pixels) if self.is_mixed else pixels

    def get_values(self, record: Record, *, views: bool) -> dict[Hashable, Index]:
        """The fields of a record by name. Blobs are bytes; images and masks are views of the store if ``views``."""
        values: dict[Hashable, Index] = {
            name: getattr(record, field) if name in self._own else record.fields[field]
            for name, field in self.names.items()
        }
        for name, missing in self.missing.items():
            if values[name] is None:
                values[name] = missing
                if self.stored[name] == "label":
                    warn_of_missing_label(self._url, self.names[name])
        for name in self.pixels:
            if not (views and self.kind_of[name] == "image"):
                values[name] = np.array(values[name])  # a copy: the array of a store is a read-only view
        for name in self._blobs:
            refuse_array(self.names[name], values[name])
            if not (views and self.kind_of[name] in {"image", "mask"}):
                values[name] = bytes(values[name])
        for name in self.array_kinds:
            if name in self.arrays:
                values[name] = self.get_array(name, record)
            values[name] = np.array(values[name])  # a copy: the array of a store is a read-only view
        return values

    def get_array(self, name: Index, record: Record) -> Array:
        """The array of a record, checked as by :func:`get_array`."""
        return get_array(record, self.names[name], self.array_kinds[name], self._url, self.missing.get(name))


def _has_points(field: Field) -> bool:
    """Return whether it holds the points of each object, (n, k, 2) or (n, k, 3)."""
    kind = field.array
    return kind is not None and kind.dtype == np.float32 and len(kind.axes) == 3 and kind.axes[2] in {(2,), (3,)}


def _get_field(store: Store, name: str) -> Field:
    """A field of the store, or an attribute of every record."""
    if name in store.schema:
        return store.schema[name]
    try:
        return Field(_RECORD_FIELDS[name])
    except KeyError:
        raise ArgumentError(
            f"no field {name!r}; this store has: {', '.join(store.schema.fields)}; every record has index and key"
        ) from None
