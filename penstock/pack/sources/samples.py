"""What a dataset or an iterator gives, as values by name: dicts, tuples, single values, records.

::

    {"image": ..., "label": 3}        the values by their names
    (image, 3)                        image, label          (image, {"boxes": ...})    image, boxes
    (a, b, c)                         "0", "1", "2"; the first is "image" if it is one
    image | "text" | anything else    image | text | value
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.errors import ArgumentError, PackError
from penstock.pack.sources.base import KEY
from penstock.pack.sources.values import guess, plain
from penstock.sample import Record, Sample, Value

__all__ = ["NUMBERED", "SampleNames"]

NUMBERED: Final = "index"
"""The value of ``key`` that names records by their numbers, unless a value has this name."""


class SampleNames:
    """Gives names to the values of samples.

    ``first``: the first sample: names of values without names are found from it. ``names``: names of the values of a
    tuple, or of one value. ``key``: the value that names a record. Raises ArgumentError if there are names for values
    that have names, or another number of them, or no value ``key``.
    """

    def __init__(self, first: object, names: str | Sequence[str] | None, key: str | None) -> None:
        given = [names] if isinstance(names, str) else None if names is None else list(names)
        self._names: tuple[str, ...] = ()
        self._merges = False
        if isinstance(first, Mapping | Record) or hasattr(first, "_fields"):
            if given is not None:
                raise ArgumentError(
                    "names are for samples that are tuples or one value, and these have names of their own"
                )
        elif isinstance(first, tuple | list):
            self._merges = len(first) == 2 and isinstance(first[1], Mapping)
            self._names = tuple(given or _name_values(first, merges=self._merges))
            expected = 1 if self._merges else len(first)
            if len(self._names) != expected or len(set(self._names)) < expected:
                raise ArgumentError(
                    f"names must be {expected} different names, one for each value, got {list(self._names)}"
                )
        else:
            if given is not None and len(given) != 1:
                raise ArgumentError(f"names must be one name for samples of one value, got {given}")
            self._names = tuple(given or [_name_value(first)])
        values = self._get_values(first)
        has_key = isinstance(first, Record) or KEY in values
        if key is not None and key != NUMBERED and key not in values:
            raise ArgumentError(
                f"key must be one of the values of a sample ({', '.join(values)}) or 'index', got {key!r}"
            )
        self._key = KEY if key is None and has_key else None if key == NUMBERED and key not in values else key

    @property
    def are_numbered(self) -> bool:
        """Whether records are named by their numbers."""
        return self._key is None

    def read(self, sample: object) -> dict[str, Value]:
        """The values of a sample, by name.

        Raises
        ------
        PackError
            If it has another structure than the first one.
        """
        values = dict(self._get_values(sample))
        values.pop(KEY, None)
        return values

    def get_key(self, sample: object, position: int) -> str:
        """The name of the record of a sample."""
        if self._key is None:
            return str(position)
        values = self._get_values(sample)
        if self._key not in values:
            raise PackError(f"sample {position} has no value {self._key!r}, which names its record")
        found = plain(values[self._key])
        if isinstance(found, str | int | Path):
            return str(found)
        raise PackError(
            f"sample {position}: the value {self._key!r} names its record and must be text or an int, got {found!r:.80}"
        )

    def _get_values(self, sample: object) -> Mapping[str, Sample]:
        if not self._names:
            if isinstance(sample, Record):
                return {**sample.fields, KEY: sample.key}
            if hasattr(sample, "_asdict"):
                found: dict[str, Sample] = sample._asdict()
                return found
            if isinstance(sample, Mapping):
                return sample
            raise PackError(f"a sample must be a dict, as the first one is, got {type(sample).__name__}")
        if len(self._names) == 1 and not self._merges:
            return {self._names[0]: sample[0] if isinstance(sample, tuple) and len(sample) == 1 else sample}
        if not isinstance(sample, tuple | list) or len(sample) != len(self._names) + self._merges:
            raise PackError(
                f"a sample must be a tuple of {len(self._names) + self._merges} values, as the first one is"
            )
        if self._merges:
            return {self._names[0]: sample[0], **sample[1]}
        return dict(zip(self._names, sample, strict=True))


def _name_values(values: Sequence[Sample], *, merges: bool) -> list[str]:
    first = _name_value(values[0])
    head = "image" if first == "image" else "0"
    if merges:
        return [head]
    if len(values) == 2 and head == "image":
        second = plain(values[1])
        return [head, "label" if isinstance(second, int) else "target"]
    return [head, *map(str, range(1, len(values)))] if len(values) > 1 else [first]


def _name_value(value: object) -> str:
    found = plain(value)
    if isinstance(found, str):
        return "text"
    kind = guess("value", found, "png").kind
    if kind == "image" or kind.startswith("pixels:"):
        return "image"
    return "value"
