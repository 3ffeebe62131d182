"""What the files of a sample in a tar shard mean: suffixes become fields, bytes become values.

::

    jpg, png, webp ...      "image"      of a record that has one of them; others of the same record keep their suffix,
                                         as does a mask (seg.png); of left.jpg and image.jpg the name that fits best,
                                         or the one that is stated
    cls                     "label"      a class number; a float or a text where the files hold those; also label.txt
    index, id, count        int          by the last part of the suffix, as the decoders of webdataset choose
    txt, json               text, json
    npy                     a small array, where all of them have one dtype; pickles in them are never read
    others                  bytes

A shard that penstock wrote declares its fields in a member ``__penstock__``, which other readers leave out: it has no
suffix. Called by the store, the stream and the writer of tar shards.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.errors import ArgumentError
from penstock.fields.names import IMAGE_NAMES, WORD, is_mask_name, rank_name
from penstock.fields.roles import Candidate, Stated, find_image, find_label
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Array, ArrayKind, Field, Schema, Value, refuse_field_name
from penstock.stores.fields.exact_casts import UnfitValueError, to_float, to_whole
from penstock.stores.fields.npy_arrays import find_array_kind, read_array

__all__ = [
    "ADVICE",
    "DECLARATION",
    "Content",
    "FieldPlan",
    "StoredField",
    "find_kind_by_contents",
    "is_valid_suffix",
    "parse_declaration",
    "plan_fields",
]

DECLARATION: Final = b"__penstock__"
"""The name of the member that declares the fields of a shard."""
ADVICE: Final = (
    "a key ends at the first dot of a file's name; dotted_keys=True (--option dotted_keys=true) ends it at the last one"
)
"""What helps where suffixes are parts of names with dots."""

_VERSION: Final = 1
_PROBED: Final = 16
"""Files whose values say what a suffix of numbers holds."""
_MAX_NUMBER: Final = 400  # bytes
_KINDS: Final = {
    **dict.fromkeys(("cls", "cls2", "class"), "label"),
    **dict.fromkeys(("index", "inx", "id", "count"), "int"),
    **dict.fromkeys(("txt", "text", "transcript"), "text"),
    **dict.fromkeys(("json", "jsn"), "json"),
}
Content = bytes | memoryview
Parser = Callable[[Content], object]


@dataclass(frozen=True, slots=True)
class StoredField:
    """Where a field is stored: in the files of a suffix, or under its name in the JSON object of these files."""

    name: str
    field: Field
    suffix: str
    in_object: bool = False


class FieldPlan:
    """The fields of records, and how they are read from the files of a record.

    ``fields``: in the order of the schema. ``images``: the suffixes of the field ``image``, if its suffix differs from
    record to record.
    """

    def __init__(self, fields: Sequence[StoredField], images: Sequence[str] = ()) -> None:
        self.fields, self.images = tuple(fields), tuple(images)
        self.schema = Schema({each.name: each.field for each in fields})
        self._readers: dict[str, list[tuple[str, Parser]]] = {}
        self._objects: dict[str, list[StoredField]] = {}
        for each in fields:
            if each.in_object:
                self._objects.setdefault(each.suffix, []).append(each)
                continue
            parse = _find_parser(each.field)
            for suffix in self.images if each.suffix == "" else (each.suffix,):
                self._readers.setdefault(suffix, []).append((each.name, parse))
        self._empty: dict[str, object] = dict.fromkeys(self.schema.fields)

    def read(self, files: Iterable[tuple[str, Content]]) -> dict[str, object]:
        """The values of a record; None where it has no file of a field.

        Raises
        ------
        ValueError, KeyError, TypeError
            If the bytes of a file are not those of a value of its field.
        """
        values = self._empty.copy()
        for suffix, content in files:
            for name, parse in self._readers.get(suffix, ()):
                values[name] = parse(content)
            if suffix in self._objects:
                parsed = _parse_object(content)
                for each in self._objects[suffix]:
                    values[each.name] = _from_json(parsed.get(each.name), each.field)
        return values

    def find_suffixes(self, name: str) -> tuple[str, ...]:
        """Return the suffixes of the files that hold a field."""
        each = next(each for each in self.fields if each.name == name)
        return self.images if each.suffix == "" else (each.suffix,)

    def knows(self, suffix: str) -> bool:
        """Return whether the files of a suffix hold a field."""
        return suffix in self._readers or suffix in self._objects

    def is_plain(self, name: str) -> bool:
        """Return whether the value of a field is the bytes of its file."""
        return self.schema[name].is_blob and self.schema[name].pixels is None

    def to_declaration(self) -> bytes:
        """Return the content of the member :data:`DECLARATION`; :func:`parse_declaration` is the inverse."""
        declared: Mapping[str, Value] = self.schema.to_json()
        fields = [
            {
                "name": each.name,
                **declared[each.name],
                **({"suffix": each.suffix} if each.suffix else {}),
                **({"in_object": True} if each.in_object else {}),
            }
            for each in self.fields
        ]
        return json.dumps({"version": _VERSION, "fields": fields}, ensure_ascii=False, indent=1).encode()


def parse_declaration(content: Content) -> tuple[StoredField, ...]:
    """Return the fields that a shard declares.

    Raises ValueError if it is no declaration, or one of another version.
    """
    try:
        parsed = json.loads(bytes(content))
        if parsed["version"] != _VERSION:
            raise ValueError(f"version {parsed['version']!r:.20} is not known")  # noqa: TRY301  # one handler
        entries = parsed["fields"]
        schema = Schema.from_json({entry["name"]: entry for entry in entries})
        fields = tuple(
            StoredField(name, schema[name], str(entry.get("suffix", "")), bool(entry.get("in_object", False)))
            for name, entry in zip(schema.fields, entries, strict=True)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the member {DECLARATION.decode()} declares no fields: {error}") from error
    for each in fields:
        if each.in_object and (each.field.is_blob or each.field.array is not None):
            raise ValueError(f"the field {each.name!r} of kind {each.field.kind} cannot be in an object")
    return fields


def plan_fields(
    suffixes: Sequence[str],
    groups: Collection[Sequence[str]],
    kinds: Mapping[str, str],
    declared: Sequence[StoredField] = (),
    image: str | None = None,
) -> FieldPlan:
    """Return how the fields of records are read.

    Parameters
    ----------
    suffixes : sequence of str
        All suffixes, in the order of their first files; each is a valid name of a field.
    groups : collection of sequences of str
        The suffixes that occur in one record together.
    kinds : mapping of str to str
        Kinds of suffixes by what their files hold, such as ``{"npy": "float32[*]"}``; the others have their usual one.
    declared : sequence of StoredField
        What the shards declare; they have no other fields then.
    image : str, optional
        The name of the image, with or without its type (``left``, ``left.jpg``); empty: there is none.

    Raises
    ------
    ArgumentError
        If there is no such image, or several fit equally well and none is stated.
    """
    found = {each: Candidate(_find_stem(each), Field(kinds.get(each) or _find_kind(each))) for each in suffixes}
    if declared:
        others = {each.suffix for each in declared}
        return FieldPlan(declared, _unite([each for each in suffixes if each not in others and _is_bare(each)], groups))
    images = _unite(_find_images(found, image), groups)
    label = find_label([each for suffix, each in found.items() if suffix not in images], None, Stated())
    roles = {"image" if images else "", "" if label is None else "label"}
    fields: dict[str, StoredField] = {}
    for suffix, each in found.items():
        if suffix in images:
            fields.setdefault("image", StoredField("image", Field("image"), ""))
            continue
        name = "label" if each is label else suffix
        while name in fields or (name in roles and each is not label):
            name += "_"
        kind = "label" if each is label and each.field.kind == "int" else each.field.kind
        fields[name] = StoredField(name, Field(kind), suffix)
    return FieldPlan(tuple(fields.values()), images)


def _find_stem(suffix: str) -> str:
    """Return what a suffix says of its files beside their type: ``mask`` of ``mask.png``; ``cls`` of itself."""
    return suffix.rpartition(".")[0] or suffix


def _find_kind(suffix: str) -> str:
    """Return the usual kind of the files of a suffix."""
    last = suffix.rpartition(".")[2]
    if f".{last}" in IMAGE_SUFFIXES:
        return "mask" if is_mask_name(stem := _find_stem(suffix)) or stem == "label" else "image"
    return _KINDS.get(last, "bytes")


def _is_bare(suffix: str) -> bool:
    """Whether a suffix is the type of images, without a name."""
    return f".{suffix}" in IMAGE_SUFFIXES


def _find_images(found: Mapping[str, Candidate], image: str | None) -> list[str]:
    """The suffixes of images without a name; else those of the image that is stated, or whose name fits best."""
    bare = [suffix for suffix in found if _is_bare(suffix)]
    if image is None and bare:
        return sorted(bare, key=lambda suffix: rank_name(suffix, IMAGE_NAMES) or (WORD, 0))
    named = {suffix: each for suffix, each in found.items() if each.may_be_image}
    candidates = {each.path: each for each in named.values()}
    try:
        best = find_image([*candidates.values()], Stated(_find_stem(image) if image in named else image))
    except ArgumentError as error:
        raise error if image is not None else ArgumentError(f"{error.message}; {ADVICE}") from None
    return [suffix for suffix, each in named.items() if best is not None and each.path == best.path]


def _unite(candidates: Sequence[str], groups: Collection[Sequence[str]]) -> tuple[str, ...]:
    """The suffixes that are the field ``image``, the first one of those that occur in one record together."""
    images: list[str] = []
    for suffix in candidates:
        if all(suffix not in group or set(images).isdisjoint(group) for group in groups):
            images.append(suffix)
    return tuple(images)


def is_valid_suffix(suffix: str) -> bool:
    """Return whether a suffix can name a field."""
    try:
        refuse_field_name(suffix)
    except ArgumentError:
        return False
    return True


# ---------------------------------------------------------------- values


def _find_parser(field: Field) -> Parser:
    if field.kind in {"label", "int"}:
        return _parse_int
    if field.kind == "float":
        return _parse_float
    if field.kind == "text":
        return lambda content: str(content, "utf-8")
    if field.kind == "json":
        return _parse_json
    kind = field.pixels or field.array
    if kind is None:
        return lambda content: content
    return lambda content: _read_array_of(content, kind)


def _parse_float(content: Content) -> float | None:
    text = bytes(content).strip()
    return float(text) if text else None


def _parse_int(content: Content) -> int | None:
    text = bytes(content).strip()
    if not text:
        return None
    return to_whole(int(text))


def _parse_json(content: Content) -> object:
    try:
        return json.loads(bytes(content))
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error


def _parse_object(content: Content) -> dict[str, object]:
    parsed = _parse_json(content)
    if not isinstance(parsed, dict):
        raise ValueError(f"its JSON must be an object, got {type(parsed).__name__}")  # noqa: TRY004  # what the bytes say
    return parsed


def _from_json(value: object, field: Field) -> object:
    """Return a value of an object, checked against the kind of its field."""
    if value is None or field.kind == "json" or (field.kind == "text" and isinstance(value, str)):
        return value
    if field.kind == "float" and type(value) in {float, int}:
        return to_float(value)
    if field.kind in {"label", "int"} and type(value) is int:
        return to_whole(value)
    raise ValueError(f"a value of kind {field.kind} is {value!r:.80}")


def _read_array_of(content: Content, kind: ArrayKind) -> Array:
    array = read_array(content)
    if array.dtype != kind.dtype or not kind.allows(array.shape):
        raise UnfitValueError(f"an array must be {kind}, got {array.dtype} of shape {array.shape}")
    return array


def find_kind_by_contents(suffix: str, contents: Iterable[Content]) -> str:
    """Return the kind of a suffix by what its files hold; empty: the usual one.

    Of arrays, see :func:`find_array_kind`. A suffix of whole numbers is ``text`` or ``float`` where none of its first
    files has another value: a single damaged file changes nothing.
    """
    last = suffix.rpartition(".")[2]
    if last == "npy":
        return find_array_kind(contents)
    if _KINDS.get(last) not in {"label", "int"}:
        return ""
    texts = [text for content in itertools.islice(contents, _PROBED) if (text := bytes(content[:_MAX_NUMBER]).strip())]
    kinds = set(map(_find_number_kind, texts))
    if kinds == {"text"}:
        return "text"
    return "float" if "float" in kinds and "text" not in kinds else ""


def _find_number_kind(text: bytes) -> str:
    for kind, parse in (("int", int), ("float", float)):
        try:
            parse(text)
        except ValueError:
            continue
        return kind
    return "text"
