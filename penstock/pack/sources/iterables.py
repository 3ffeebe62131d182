"""Iterators, generators and loaders as sources: read once, in order, by this process.

A stream has no identity. With ``source_id`` the caller promises one: the same id means the same samples in the same
order, and an interrupted pack is resumed behind the samples that are committed.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Self

import xxhash

from penstock.errors import ArgumentError, PackError, PenstockError
from penstock.pack.sources.base import Source, SourceItem, SourceOptions
from penstock.pack.sources.conversion import PictureEncoding
from penstock.pack.sources.inference import INFERRED_FROM, GivenSchema, find_schema
from penstock.pack.sources.samples import SampleNames
from penstock.sample import DatasetLike, Field, Index, Sample, Value

__all__ = ["IterableSource", "check_source_id", "unbatch"]

_OPTIONS = ("schema", "classes", "names", "key", "images", "source_id", "root")


class IterableSource(Source):
    """Samples of an iterable, converted to records in threads.

    Parameters
    ----------
    samples : iterable
        What is iterated, once.
    options : SourceOptions
        Schema, names, key, images, root and ``source_id``.
    total : int, optional
        Number of samples, if it is known.
    what : str
        Names it in messages.
    known : mapping of str to Field, optional
        Fields that the iterable says.
    """

    is_exact = True  # where there is a digest: the caller promises it
    has_jobs: ClassVar[bool] = False
    has_random_access: ClassVar[bool] = False

    def __init__(
        self,
        samples: Iterable[Sample],
        options: SourceOptions,
        total: int | None,
        what: str,
        known: Mapping[str, Field] | None = None,
    ) -> None:
        self.url = f"({what})"
        self.total, self._source_id = total, check_source_id(options.source_id)
        self._iterator = self._guard(samples)
        self._buffer = list(itertools.islice(self._iterator, INFERRED_FROM))
        if not self._buffer:
            raise PackError(f"{what}: there are no samples to pack")
        self._names = SampleNames(self._buffer[0], options.names, options.key)
        self._converter = find_schema(
            map(self._names.read, self._buffer),
            GivenSchema(options.schema, options.classes, known),
            PictureEncoding.parse(options.images or "png"),
            what,
        ).below(options.root)
        self.schema, self.numbers_records = self._converter.schema, self._names.are_numbered
        self._is_begun = False

    @classmethod
    def recognises(cls, src: object) -> bool:
        """Everything that can be iterated, and is no text."""
        return isinstance(src, Iterable) and not isinstance(src, str | bytes)

    @classmethod
    def open(cls, src: DatasetLike, options: SourceOptions) -> Self:
        """Read the first samples, and find their schema."""
        options.refuse_others(_OPTIONS, "an iterable")
        what = type(src).__name__
        if _is_loader(src):
            if src.batch_size is None and src.batch_sampler is None:
                return cls(src, options, None, what)
            return cls(unbatch(src), options, None, f"rows of the batches of a {what}")
        if isinstance(src, Mapping):
            raise ArgumentError(
                "a mapping is a source if its values are columns of one length (arrays, lists), got "
                f"{ {name: type(value).__name__ for name, value in list(src.items())[:5]} }"
            )
        hint = operator.length_hint(src, -1)
        return cls(src, options, hint if hint >= 0 else None, what)

    def items(self, start: int) -> Iterator[SourceItem]:
        """Key and sample; can be called once."""
        assert not self._is_begun, "a stream is read once"
        self._is_begun = True
        samples = itertools.chain(self._buffer, self._iterator)
        self._buffer = []
        for position, sample in enumerate(samples):
            if position >= start:
                yield SourceItem(self._names.get_key(sample, position), sample)

    def load(self, token: Index) -> Mapping[str, Value]:
        """Convert a sample to the fields of a record."""
        return self._converter.convert(self._names.read(token))

    def digest(self) -> str | None:
        """Hash the id that the caller gave; None without one."""
        if self._source_id is None:
            return None
        state = xxhash.xxh3_128(f"iterable\0{self._source_id}\0{self.schema.to_json()}".encode())
        return state.hexdigest()

    def _guard(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """The samples; an error of the iterator says at which one it was raised."""
        count = 0
        try:
            for sample in samples:
                count += 1
                yield sample
        except PenstockError:
            raise
        except Exception as error:
            raise PackError(
                f"the iterator that is packed raised {type(error).__name__} after {count} samples: {error}"
            ) from error


def check_source_id(source_id: object) -> str | None:
    """Return the id of a source; ArgumentError unless it is text."""
    if source_id is None or (isinstance(source_id, str) and source_id):
        return source_id
    raise ArgumentError(f"source_id must be text that names the samples and their order, got {source_id!r:.80}")


def unbatch(batches: Iterable[Sample]) -> Iterator[Sample]:
    """Yield the rows of collated batches: dicts or tuples of columns, or one array.

    Raises PackError if the columns of a batch have no common length.
    """
    for number, batch in enumerate(batches):
        columns = (
            batch
            if isinstance(batch, Mapping)
            else dict(enumerate(batch if isinstance(batch, tuple | list) else [batch]))
        )
        try:
            lengths = {len(column) for column in columns.values()}
        except TypeError as error:
            raise PackError(
                f"batch {number} must be columns of one length, to be divided into records: {error}"
            ) from error
        if len(lengths) != 1:
            raise PackError(
                f"batch {number} must be columns of one length, to be divided into records, got {sorted(lengths)}"
            )
        for row in range(lengths.pop()):
            values = {name: column[row] for name, column in columns.items()}
            if isinstance(batch, Mapping):
                yield values
            elif isinstance(batch, tuple | list):
                yield tuple(values.values())
            else:
                yield values[0]


def _is_loader(src: object) -> bool:
    """Return whether it is a loader: torch's, penstock's, or one with their attributes."""
    return all(hasattr(src, name) for name in ("dataset", "batch_sampler", "batch_size", "collate_fn"))
