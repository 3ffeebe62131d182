"""What an annotation format must offer."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from penstock.annotations.records import RecordBuilder
from penstock.annotations.source import AnnotationSource
from penstock.errors import ArgumentError

__all__ = ["AnnotationFormat", "refuse_unknown_options", "refuse_unknown_split"]


class AnnotationFormat(ABC):
    """A format of annotations; one subclass each, registered in ``penstock.annotations.FORMATS``.

    Options of a format are keyword-only parameters of its constructor.
    """

    name: ClassVar[str]
    """As registered."""
    lists_images: ClassVar[bool] = True
    """Whether images are those that annotations name, and others are no part of the records."""

    @classmethod
    @abstractmethod
    def recognises(cls, source: AnnotationSource) -> bool:
        """Return whether a source is of this format, by the names of its files and the beginning of one of them."""

    @abstractmethod
    def read(self, source: AnnotationSource, builder: RecordBuilder, split: str | None) -> None:
        """Add all images of the source, or of one of its splits, to the builder.

        Raises
        ------
        AnnotationError
            If a file that everything depends on cannot be read. What concerns one image or object is given to
            :meth:`RecordBuilder.note` instead.
        """

    @classmethod
    def refuse_unknown_options(cls, options: Mapping[str, object]) -> None:
        """Raise ArgumentError for options that the constructor does not name."""
        refuse_unknown_options(cls, options, f"the annotation format {cls.name!r} has")


def refuse_unknown_options(kind: type, options: Mapping[str, object], what: str) -> None:
    """Raise ArgumentError for options that are no keyword-only parameters of the constructor of a class."""
    parameters = inspect.signature(kind).parameters.values() if options else ()
    allowed = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    if unknown := [name for name in options if name not in allowed]:
        raise ArgumentError(f"{what} the options {', '.join(allowed) or 'none'}, got {', '.join(map(repr, unknown))}")


def refuse_unknown_split(split: str | None, known: Iterable[str]) -> None:
    """Raise ArgumentError if a split is given that a source does not have."""
    names = list(known)
    if split is not None and split not in names:
        raise ArgumentError(f"split must be one of {', '.join(names) or 'none'}, got {split!r}")
