"""Which column of a container is the image, the label and the key, and under which names the others are read.

::

    columns, datasets, features, paths, items ──the container──> Candidate ... ──choose_roles──> Roles: fields, key
                                               image=, label=, fields=, ... ──> Stated ──┘

What is stated counts first, then what a candidate holds, then its name. An image that several candidates may be is
refused; a label that several may be is none, which the description says. ``docs/stores.md`` has the rule as a table.
Nothing is read here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from penstock.errors import ArgumentError, check_choice
from penstock.fields.names import (
    BOX_NAMES,
    IMAGE_NAMES,
    KEY_NAMES,
    LABEL_NAMES,
    PLURAL,
    WEAK_IMAGE_NAMES,
    WORD,
    find_words,
    is_mask_name,
    rank_name,
)
from penstock.sample import Field, Schema

__all__ = ["Candidate", "Roles", "Stated", "choose_roles", "find_image", "find_key", "find_label", "select_paths"]

Rank = tuple[int, ...]

_NUMBERS: Final = frozenset({"int", "label", "float"})
_NO_LABELS: Final = frozenset({"boxes", "keypoints", "json"})
_KEYS: Final = frozenset({"text", "int", "label"})
_MOST_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """A column, dataset, feature or path that can become a field."""

    path: str  # as the container writes it; the number of an item of a tuple
    field: Field  # what it holds, without a role
    holds_images: bool = False  # whether it may be the image though its field is another one: pixels without an order
    name: str = ""  # its field, where it has no role; by default its path with dots
    shown: str = ""  # how errors describe it, by default the path
    is_plain: bool = True  # whether it may be the label or the key unless that is stated; texts of ids may not

    @property
    def may_be_image(self) -> bool:
        """Whether its values are images."""
        return self.holds_images or self.field.is_image or self.field.kind == "mask"

    @property
    def holds_encoded(self) -> bool:
        """Whether its values are encoded images."""
        return self.field.kind == "image" or (self.field.kind == "bytes" and self.holds_images)

    @property
    def may_be_label(self) -> bool:
        """Whether its values are numbers, texts or arrays of them."""
        return not self.field.is_blob and self.field.kind not in _NO_LABELS

    def __str__(self) -> str:
        return self.shown or repr(self.path)


@dataclass(frozen=True, slots=True)
class Stated:
    """What a person says of a container, in the same words for every kind.

    ``image``, ``label``, ``key``: a path; empty: there is none; None: that is not said. ``fields``: the paths that are
    read, or a mapping of fields to paths.
    """

    image: str | None = None
    label: str | None = None
    key: str | None = None
    fields: Sequence[str] | Mapping[str, str] | None = None
    classes: Sequence[str] | None = None
    shape: Sequence[int | str] | None = None
    dtype: str | None = None
    axes: str | None = None
    channels: str | None = None
    boxes: str | None = None
    units: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.fields, str):
            raise ArgumentError(f"fields must be a sequence of names, or a mapping, got {self.fields!r:.200}")
        for name in ("fields", "classes", "shape"):
            if isinstance(value := getattr(self, name), Iterable) and not isinstance(value, str | Mapping):
                object.__setattr__(self, name, tuple(value))
        for name in ("image", "label", "key"):
            if type(value := getattr(self, name)) is int:  # an item of a tuple, as the command line reads it
                object.__setattr__(self, name, str(value))
        check_choice("channels", self.channels, ("RGB", "BGR"), optional=True)
        check_choice("units", self.units, ("relative", "pixels"), optional=True)

    @property
    def given(self) -> dict[str, object]:
        """What is stated, by name."""
        stated = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in stated.items() if value is not None}

    @property
    def roles(self) -> dict[str, str | None]:
        """The stated path of each role; those of a mapping of fields are its own."""
        given = {"image": self.image, "label": self.label, "key": self.key}
        if isinstance(self.fields, Mapping):
            given |= {role: self.fields.get(role, given[role] or "") for role in ("image", "label")}
        return given


@dataclass(frozen=True, slots=True)
class Roles:
    """The fields of a store, in the order of the candidates; each candidate has the kind of its role."""

    fields: Mapping[str, Candidate]
    key: str | None  # the path of the keys; None: records have no names
    doubts: tuple[str, ...] = ()  # what a description says: roles that nobody has, fields with other names

    @property
    def schema(self) -> Schema:
        """The schema."""
        return Schema({name: each.field for name, each in self.fields.items()})

    @property
    def columns(self) -> list[str]:
        """The path of each field of the schema; behind them that of the keys, if it is none of these."""
        paths = [each.path for each in self.fields.values()]
        return paths if self.key is None or self.key in paths else [*paths, self.key]

    def describe(self) -> str:
        """Return what is where, and the doubts: the end of a description."""
        image, label = self.fields.get("image"), self.fields.get("label")
        parts = []
        if image is not None and image.field.is_image:
            parts.append(f"{'pixels' if image.field.pixels else 'images'} in {image}")
        if label is not None and label.field.kind == "label":
            classes = f" of {len(label.field.classes)} classes" if label.field.classes else ""
            parts.append(f"labels{classes} in {label}")
        return ", ".join([*parts, "no keys" if self.key is None else f"keys in {self.key!r}", *self.doubts])


def select_paths(paths: Collection[str], stated: Stated, noun: str = "columns") -> list[str]:
    """The paths that are read: those of ``fields`` and of the stated roles, or all; in the order of the container.

    Raises ArgumentError if one is not there.
    """
    listed = stated.fields.values() if isinstance(stated.fields, Mapping) else stated.fields or ()
    wanted = [("fields", path) for path in listed] + [(role, path) for role, path in stated.roles.items() if path]
    for option, path in wanted:
        if path not in paths:
            raise ArgumentError(f"{option} must name {noun} of {_list(map(repr, paths))}, got {path!r:.200}")
    if stated.fields is None:
        return list(paths)
    names = {path for _, path in wanted}
    return [path for path in paths if path in names]


def choose_roles(candidates: Sequence[Candidate], stated: Stated) -> Roles:
    """Find the image, the label and the key, and name the fields.

    Parameters
    ----------
    candidates : sequence of Candidate
        What is read, in the order of the container (:func:`select_paths`).
    stated : Stated
        What a person says.

    Raises
    ------
    ArgumentError
        If a stated candidate cannot have its role, or several may be the image.
    """
    doubts: list[str] = []
    image = find_image(candidates, stated, doubts)
    label = find_label([each for each in candidates if each is not image], image, stated, doubts)
    key = find_key(candidates, stated, image, doubts)
    given = {role: _take(each, role, role) for role, each in (("image", image), ("label", label)) if each is not None}
    if label is not None and stated.classes and given["label"].field.kind == "label":
        given["label"] = replace(given["label"], field=Field("label", tuple(stated.classes)))
    if isinstance(stated.fields, Mapping):
        found = {name: _get(candidates, path, name) for name, path in stated.fields.items()}
        chosen = {name: given.get(name, _take(each, name)) for name, each in found.items() if each is not None}
        return Roles({name: each for name, each in given.items() if name not in chosen} | chosen, key)
    roles = {each.path: role for role, each in given.items()}
    named: dict[str, Candidate] = {}
    for each in candidates:
        if role := roles.get(each.path):
            named[role] = given[role]
            continue
        dotted = each.path.replace("/", ".").replace("\\", ".")
        name = wanted = each.name or dotted
        if name in named or name in given:
            name = dotted
        while name in named or name in given:
            name += "_"
        if name != wanted:
            doubts.append(f"{each} is the field {name!r}")
        named[name] = _take(each, name)
    return Roles(named, key, tuple(doubts))


def find_image(candidates: Sequence[Candidate], stated: Stated, doubts: list[str] | None = None) -> Candidate | None:
    """Return the image: the stated one, else the one whose name fits best among those that hold images.

    Raises ArgumentError if several fit equally well, and ``fields`` does not say what is read.
    """
    doubts = [] if doubts is None else doubts
    images = [each for each in candidates if each.may_be_image or each.field.array is not None]
    found = _choose("image", candidates, stated.roles["image"], images, "images", _rank_image, doubts)
    if found is None and doubts and stated.fields is None:
        raise ArgumentError(doubts[0])
    for each in candidates if stated.image is None else ():
        rank = rank_name(each.path, IMAGE_NAMES) if each.field.kind == "bytes" and not each.may_be_image else None
        if rank is not None and rank[0] < WORD:
            doubts.append(f"{each} holds bytes that are no encoded images")
    return found


def find_label(
    candidates: Sequence[Candidate], image: Candidate | None, stated: Stated, doubts: list[str] | None = None
) -> Candidate | None:
    """The label: the stated one, else the one whose name fits best among numbers, texts and lists; None in a tie.

    Raises ArgumentError if the stated one holds none of these.
    """
    labels = [each for each in candidates if each.may_be_label]
    words = LABEL_NAMES if image is not None and "x" in find_words(image.path) else _LABEL_WORDS
    is_item = image is not None and all(each.path.replace(".", "").isdecimal() for each in candidates)
    has_boxes = len(candidates) > 1 if is_item else any(map(_may_be_boxes, candidates))
    rank = functools.partial(_rank_label, words=words, has_boxes=has_boxes, is_item=is_item)
    wanted = "numbers, texts or lists of them"
    return _choose("label", candidates, stated.roles["label"], labels, wanted, rank, doubts)


def find_key(
    candidates: Sequence[Candidate], stated: Stated, image: Candidate | None = None, doubts: list[str] | None = None
) -> str | None:
    """Return the path of the keys: the stated one, else texts with a usual name, beside, above or in the image.

    Raises ArgumentError if the stated one holds neither texts nor integers.
    """
    keys = [each for each in candidates if each.field.kind in _KEYS]
    rank = functools.partial(_rank_key, place=[] if image is None else _split(image.path))
    found = _choose("key", candidates, stated.key, keys, "texts or integers", rank, doubts)
    return None if found is None else found.path


def _choose(
    role: str,
    candidates: Sequence[Candidate],
    path: str | None,
    fitting: Sequence[Candidate],
    wanted: str,
    rank: Callable[[Candidate], Rank | None],
    doubts: list[str] | None,
) -> Candidate | None:
    """Return the candidate at a stated path, which must be one of those that fit; else the best one, if it is alone."""
    if path is not None:
        found = _get(candidates, path, role)
        if found is not None and found not in fitting:
            raise ArgumentError(f"{role} must hold {wanted}, got {found}, which is {found.field.kind}")
        return found
    ranked = [(found_rank, each) for each in fitting if (found_rank := rank(each)) is not None]
    least = min((found_rank for found_rank, _ in ranked), default=())
    best = [each for found_rank, each in ranked if found_rank == least]
    if len(best) > 1 and doubts is not None:
        doubts.append(
            f"each of {_list(map(str, best))} may be the {role}; say {role}={best[0].path!r} to choose one, or "
            f"{role}='' for none"
        )
    return best[0] if len(best) == 1 else None


_LABEL_WORDS: Final = tuple(name for name in LABEL_NAMES if len(name) > 1)
"""Names of labels that count as a word of another name: that of ``pos_y`` does beside an image ``pos_x`` alone."""


def _rank_image(each: Candidate) -> Rank | None:
    if is_mask_name(each.path) or not each.may_be_image:
        return None
    strong, weak = rank_name(each.path, IMAGE_NAMES), rank_name(each.path, WEAK_IMAGE_NAMES)
    if strong is not None:
        return (0, *strong)
    if weak is not None:
        return (1, *weak)
    return (3,) if rank_name(each.path, LABEL_NAMES) else (2,)


def _rank_label(each: Candidate, *, words: Sequence[str], has_boxes: bool, is_item: bool) -> Rank | None:
    """``is_item``: whether the candidates are items of tuples, without names, beside an image."""
    array, kind = each.field.array, each.field.kind
    is_list = array is not None and len(array.axes) == 1
    if not each.is_plain or not (kind in _NUMBERS or kind == "text" or (is_list and not has_boxes)):
        return None
    form = 0 if kind in _NUMBERS else 2 if is_list else 1  # numbers before texts before lists
    rank = rank_name(each.path, LABEL_NAMES)
    if rank is not None and rank[0] < PLURAL:
        return (rank[0], form if rank[0] > 1 else 0, rank[1])
    if not is_list and rank is not None and rank_name(each.path, words) == (WORD, 0):
        return (WORD, form)
    if is_item:
        return (WORD + 1, int(kind not in {"int", "label"}), int(is_list))
    return (WORD + 1,) if kind == "label" else None


def _rank_key(each: Candidate, *, place: list[str]) -> Rank | None:
    """``place``: the parts of the path of the image, if there is one. A name in another value is not the record's."""
    *parents, _ = _split(each.path)
    rank = rank_name(each.path, KEY_NAMES) if each.is_plain and each.field.kind == "text" else None
    if rank is None or rank[0] == WORD or (place and place[: len(parents)] != parents):
        return None
    return (rank[1], len(parents), rank[0])


def _split(path: str) -> list[str]:
    return path.replace("/", ".").split(".")


def _take(each: Candidate, name: str, role: str = "") -> Candidate:
    """Return a candidate with the kind that its role, or the name of its field, gives it."""
    kind = each.field.kind
    if role == "image":
        kind = "image" if kind in {"bytes", "mask"} else kind
    elif role == "label":
        kind = "label" if kind == "int" else kind
    elif each.holds_encoded and (is_mask_name(each.path) or is_mask_name(name) or name == "label"):
        kind = "mask"
    return each if kind == each.field.kind else replace(each, field=replace(each.field, kind=kind))


def _may_be_boxes(each: Candidate) -> bool:
    array = each.field.array
    is_named = rank_name(each.path, BOX_NAMES) is not None
    return (is_named and (array is not None or each.field.kind == "json")) or (
        array is not None and len(array.axes) == 2 and array.axes[1] == (4,)
    )


def _get(candidates: Sequence[Candidate], path: str, option: str) -> Candidate | None:
    """Return the candidate of a stated path; None for an empty one, which says that there is none."""
    found = next((each for each in candidates if each.path == path), None)
    if path and found is None:
        raise ArgumentError(f"{option} must name one of {_list(map(str, candidates))}, got {path!r:.200}")
    return found


def _list(shown: Iterable[str]) -> str:
    names = list(shown)
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return (", ".join(names[:_MOST_LISTED]) or "none") + more
