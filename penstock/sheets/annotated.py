"""The annotations of one sample, found by the kinds and names of its values, whatever structure the sample has.

::

    record of a store ──┐                                          image, label
    sample of a dataset ┴─ roles(...) ─> find_annotations(...) ──> boxes, their classes, keypoints, masks, instances

Called by :mod:`.showing`. Kinds come from the schema of the store; values that have none, such as those of a user's
dataset, are found by their names. Nothing here draws or decodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

import numpy as np

from penstock.errors import ArgumentError
from penstock.fields.names import CLASS_NAMES, IMAGE_NAMES, guess_kind, rank_name, split_words
from penstock.sample import Array, Sample, Schema, Tree, tree_map
from penstock.sheets.shown_pixels import as_array

__all__ = ["Annotated", "Role", "find_annotations", "make_roles"]

_MOVED: Final = frozenset({"image", "boxes", "keypoints", "mask"})
_CLASS_WORDS: Final = frozenset(CLASS_NAMES) - {"y"}


@dataclass(frozen=True, slots=True)
class Role:
    """What one value of a sample is."""

    name: str  # name of the field
    kind: str  # its kind, as in a :class:`~penstock.Schema`; empty if it is unknown
    classes: tuple[str, ...] = ()  # names of the classes that it numbers


@dataclass(slots=True)
class Annotated:
    """An image and what is annotated in it; None, or empty, where a sample has nothing of a kind.

    Parameters
    ----------
    image : object
        Encoded bytes, an array, a tensor or a PIL image: the first of the sample.
    label : int or None
        Class of the whole image.
    label_classes, object_classes, mask_classes : tuple of str
        Names of the classes of the label, of the objects, and of the values of masks.
    boxes : object
        (n, 4), x0, y0, x1, y1 in pixels.
    numbers : ndarray or None
        Class of each box, (n,), int64.
    object_names : tuple of str
        Name of the class of each box, where a store has the names themselves.
    keypoints : object
        (n, 2), (n, 3) or (n, k, 2), (n, k, 3).
    masks : list of object
        Encoded, or (H, W): classes of pixels. (n, H, W): a mask for each object.
    instances : sequence or None
        Run-length encoding of each object.
    """

    image: object = None
    label: int | None = None
    label_classes: tuple[str, ...] = ()
    boxes: object = None
    numbers: Array | None = None
    object_classes: tuple[str, ...] = ()
    object_names: tuple[str, ...] = ()
    keypoints: object = None
    masks: list[object] = field(default_factory=list)
    mask_classes: tuple[str, ...] = ()
    instances: Sequence[object] | None = None


def make_roles(schema: Schema, fields: Tree, kinds: Tree) -> Tree:
    """The role of each value of a sample.

    ``schema``: of the store. ``fields``: the field of the store for each value, in the structure of the sample.
    ``kinds``: kinds for transforms, in the same structure; they win over the schema, if ops act on them.
    """

    def make(name: str, kind: str | None) -> Role:
        if name not in schema:
            return Role(name, "")
        stored = schema[name]
        shown = kind if kind in _MOVED else "image" if stored.is_image else stored.kind
        return Role(name, shown, stored.classes)

    roles: Tree = tree_map(make, fields, kinds)
    return roles


def find_annotations(sample: Sample, roles: Tree = None) -> Annotated:
    """The annotations of a sample.

    ``sample``: a bare image, or a tuple, list or mapping of values. ``roles``: in the structure of the sample. Values
    without one have that of their name; the first of a tuple is the image.
    """
    found = Annotated()
    for role, value in _iterate(sample, roles, ""):
        _take(found, role, value)
    if not found.mask_classes and (found.numbers is None or not len(found.numbers)):
        found.mask_classes = found.object_classes  # of a set of masks alone
    return found


def _iterate(value: Sample, roles: Tree, name: str) -> Iterator[tuple[Role, object]]:
    if value is None:
        return
    if isinstance(value, Mapping) and not (isinstance(roles, Role) and roles.kind):
        for key, inner in value.items():
            yield from _iterate(inner, roles.get(key) if isinstance(roles, Mapping) else None, str(key))
    elif isinstance(roles, Role):
        yield roles, value
    elif isinstance(value, tuple | list) and not name:
        aligned = isinstance(roles, tuple | list) and len(roles) == len(value)
        names = getattr(value, "_fields", None) or [None] * len(value)
        for place, (inner, called) in enumerate(zip(value, names, strict=True)):
            unknown = Role("", "image") if place == 0 else None
            yield from _iterate(inner, roles[place] if aligned else unknown, called or f"target{place}")
    else:
        yield (Role(name, _guess(name)) if name else Role("", "image")), value


def _guess(name: str) -> str:
    """Return the kind that a name suggests; empty if it suggests none."""
    last = _last_word(name)
    if rank_name(last, IMAGE_NAMES) is not None:
        return "image"
    return "" if last == "depth" else guess_kind(name) or ""


def _last_word(name: str) -> str:
    words = [word for word in split_words(name) if word not in {"id", "ids"}]
    return words[-1] if words else ""


def _take(found: Annotated, role: Role, value: object) -> None:
    if role.kind == "image":
        found.image = value if found.image is None else found.image
    elif role.kind == "mask":
        found.masks.append(value)
        found.mask_classes = found.mask_classes or role.classes
    elif role.kind == "boxes":
        found.boxes = value if found.boxes is None else found.boxes
    elif role.kind == "keypoints" or (not role.kind.startswith("int") and guess_kind(role.name) == "keypoints"):
        found.keypoints = value if found.keypoints is None else found.keypoints
    elif "instances" in {role.name, role.kind} and (isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 3):
        found.instances = value if isinstance(value, list | tuple) else list(as_array(value))
    elif _is_names(value):
        if _CLASS_WORDS & set(split_words(role.name)):
            found.object_names = tuple(value)
    elif role.kind == "label" or role.classes or _last_word(role.name) in _CLASS_WORDS:
        _take_classes(found, role, value)


def _is_names(value: object) -> TypeGuard[list[str] | tuple[str, ...]]:
    return isinstance(value, list | tuple) and len(value) > 0 and all(type(each) is str for each in value)


def _take_classes(found: Annotated, role: Role, value: object) -> None:
    """A number is the label of the image; a list of numbers has the classes of its objects."""
    try:
        numbers = as_array(value)
    except ArgumentError:
        return
    if numbers.dtype.kind not in "iub":
        return
    if numbers.ndim == 0 and found.label is None:
        found.label, found.label_classes = int(numbers), role.classes
    elif numbers.ndim == 1 and found.numbers is None:
        found.numbers, found.object_classes = numbers.astype(np.int64), role.classes
