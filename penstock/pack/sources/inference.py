"""Finds the schema of samples: the kinds that are given, and for other values the kind that holds those looked at."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from penstock.errors import ArgumentError, PackError
from penstock.fields.kinds import EMPTY, NOTHING, ValueKind, unite_kinds
from penstock.pack.sources.conversion import PictureEncoding, RecordConverter
from penstock.pack.sources.values import guess, names_image, plain
from penstock.sample import Field, Schema, Value
from penstock.stores.fields.record_names import check_classes

__all__ = ["INFERRED_FROM", "STACKLEVEL", "GivenSchema", "SchemaLike", "find_schema", "warn_without_images"]

INFERRED_FROM: Final = 100
"""Number of samples from which a schema is inferred."""

STACKLEVEL: Final = 7
"""From a function that the constructor of a source calls to the caller of :func:`penstock.pack`."""

SchemaLike = Schema | Mapping[str, str | Field | None]
"""What the argument ``schema`` may be: all fields, or the kinds of some; None leaves a value out."""


class GivenSchema:
    """The kinds that a caller gave.

    Parameters
    ----------
    schema : Schema or mapping, optional
        A :class:`Schema` is complete: other values are errors. A mapping gives the kinds of some fields.
    classes : sequence of str, optional
        Names of the classes of the field ``label``.
    known : mapping of str to Field, optional
        Fields that the source says; those of the caller come first.
    known_classes : sequence of str, optional
        The classes of an inferred label, as the source says them.

    Raises
    ------
    ArgumentError
        If a kind is unknown.
    """

    def __init__(
        self,
        schema: SchemaLike | None,
        classes: Sequence[str] | None = None,
        known: Mapping[str, Field] | None = None,
        known_classes: Sequence[str] | None = None,
    ) -> None:
        self.known_classes = tuple(known_classes or ())
        self.is_complete = isinstance(schema, Schema)
        given = schema.fields if isinstance(schema, Schema) else schema or {}
        if not isinstance(given, Mapping):
            raise ArgumentError(f"schema must be a Schema or a mapping of names to kinds, got {type(given).__name__}")
        self.fields: dict[str, Field] = {}
        self.known = dict(known or {})
        for name, kind in given.items():
            if kind is not None:
                self.fields[name] = kind if isinstance(kind, Field) else Field(kind)
        self.dropped = frozenset(name for name, kind in given.items() if kind is None)
        if classes is not None:
            names = check_classes(classes)
            self.fields["label"] = Field(self.fields.get("label", Field("label")).kind, names)


def find_schema(
    samples: Iterable[Mapping[str, Value]], given: GivenSchema, encoding: PictureEncoding, where: str
) -> RecordConverter:
    """The converter of samples like these, with their schema.

    Parameters
    ----------
    samples : iterable of mapping
        Values by name.
    given : GivenSchema
        Kinds that are known.
    encoding : PictureEncoding
        How pictures are stored.
    where : str
        Names the source in errors.

    Raises
    ------
    PackError
        If there are no samples, or a value, or the values of a field together, are of no kind.
    """
    guesses: dict[str, ValueKind] = {}
    order: dict[str, None] = {}
    named: dict[str, str] = {}
    count = 0
    for count, sample in enumerate(samples, 1):  # the number of samples is used below
        for name, value in sample.items():
            order[name] = None
            if isinstance(value, str) and names_image(value):
                named.setdefault(name, str(value))
            if name in given.fields or name in given.dropped or name in given.known or given.is_complete:
                continue
            try:
                found = guess(name, plain(value), encoding.format)
            except PackError as error:
                raise PackError(f"{where}: sample {count - 1}: {error.message}") from error
            before = guesses.get(name)
            united = found if before is None else unite_kinds(before, found)
            if united is None:
                assert before is not None, "one guess is united with itself"
                raise PackError(
                    f"{where}: field {name!r} must have one kind: before sample {count - 1} it is {before.kind}, there "
                    f"it is {found.kind}; give schema={{{name!r}: kind}}, or None as the kind to leave it out"
                )
            guesses[name] = united
    if not count:
        raise PackError(f"{where}: there are no samples to pack")
    fields = {name: Field(_settle(name, found, where)) for name, found in guesses.items()}
    if fields.get("label") == Field("label"):
        fields["label"] = Field("label", given.known_classes)
    if missing := [] if given.is_complete else [name for name in given.fields if name not in order]:
        raise ArgumentError(
            f"{where}: schema names {missing[0]!r}, which the first samples do not have; they have: {', '.join(order)}"
        )
    known = {name: field for name, field in given.known.items() if name not in given.dropped}
    merged = {**fields, **known, **given.fields}
    if not merged:
        raise PackError(f"{where}: a sample must have at least one value")
    ordered = given.fields if given.is_complete else {name: merged[name] for name in order if name in merged}
    warn_without_images(where, ordered, named, given.fields)
    return RecordConverter(Schema(ordered), encoding, given.dropped, inferred=frozenset(fields))


def warn_without_images(
    where: str, fields: Mapping[str, Field], named: Mapping[str, str], given: Collection[str]
) -> None:
    """Warn if no field is an image, although a field of texts that nobody chose has paths of images.

    ``named``: by field, one of the paths. ``given``: fields whose kind the caller gave.
    """
    texts = [name for name, field in fields.items() if named.get(name) and field.kind == "text" and name not in given]
    if texts and not any(field.is_image for field in fields.values()):
        warnings.warn(
            f"{where}: no field is an image, and field {texts[0]!r} has names of images as texts, such as "
            f"{named[texts[0]]!r:.200}; give schema={{{texts[0]!r}: 'image'}} to pack the files, or 'text'",
            stacklevel=STACKLEVEL + 1,
        )


def _settle(name: str, found: ValueKind, where: str) -> str:
    if found.kind == EMPTY:
        return "json"
    if found.kind == NOTHING:
        raise PackError(
            f"{where}: field {name!r} has no value in the samples looked at; give schema={{{name!r}: kind}}, or None "
            "as the kind to leave it out"
        )
    return found.kind
