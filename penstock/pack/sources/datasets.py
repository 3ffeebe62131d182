"""Map-style datasets, sequences and columns of arrays as sources: read by index, in threads or processes.

A dataset's samples are its code's: that two runs give the same ones can only be supposed. Its digest is made of its
class, its length and a few samples, so that an interrupted pack is resumed. A finished one is used again only where the
digest is exact: columns of arrays, which are hashed whole, or a ``source_id``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import xxhash

from penstock.datasets.base import find_upright
from penstock.errors import PackError, PenstockError
from penstock.frameworks import stream_types
from penstock.pack.sources.base import KEY, Source, SourceOptions
from penstock.pack.sources.conversion import PictureEncoding
from penstock.pack.sources.inference import INFERRED_FROM, GivenSchema, find_schema
from penstock.pack.sources.iterables import check_source_id
from penstock.pack.sources.samples import SampleNames
from penstock.pack.sources.values import plain
from penstock.pack.upright_fields import find_role, state_upright
from penstock.sample import DatasetLike, Field, Index, Sample, Value

__all__ = ["DatasetSource"]

_OPTIONS: Final = ("schema", "classes", "names", "key", "images", "source_id", "root")
_DIGEST_SAMPLES: Final = 8


class DatasetSource(Source):
    """Samples of a dataset with ``__getitem__`` and ``__len__``.

    Parameters
    ----------
    dataset : dataset
        Any map-style dataset, or a sequence of samples.
    options : SourceOptions
        Schema, names, key, images, root and ``source_id``.
    what : str
        Names it in messages.
    identity : str, optional
        A text that differs wherever a sample does.
    known : mapping of str to Field, optional
        Fields that the dataset says.
    """

    total: int

    def __init__(
        self,
        dataset: DatasetLike,
        options: SourceOptions,
        what: str,
        identity: str | None = None,
        known: Mapping[str, Field] | None = None,
    ) -> None:
        self.url = f"({what})"
        self._dataset, self.total = dataset, len(dataset)
        source_id = check_source_id(options.source_id)
        self._identity = identity if source_id is None else f"id {source_id}"
        self.is_exact = self._identity is not None
        if not self.total:
            raise PackError(f"{what}: there are no samples to pack")
        samples = self._get_some()
        self._names = SampleNames(samples[0], options.names, options.key)
        self._converter = find_schema(
            map(self._names.read, samples),
            GivenSchema(options.schema, options.classes, known, _find_classes(dataset)),
            PictureEncoding.parse(options.images or "png"),
            what,
        ).below(options.root)
        self.schema, self.numbers_records = self._converter.schema, self._names.are_numbered
        upright = find_upright(dataset)
        if upright is not None and any(find_role(name, field) for name, field in self.schema.fields.items()):
            self.schema = state_upright(self.schema, upright=upright)

    @classmethod
    def recognises(cls, src: object) -> bool:
        """Recognise a dataset, a list, an array, or a mapping of columns."""
        if isinstance(src, Mapping):
            return is_columns(src)
        has_length = hasattr(src, "__len__") and hasattr(src, "__getitem__")
        return has_length and not isinstance(src, (str, bytes, *stream_types()))

    @classmethod
    def open(cls, src: DatasetLike, options: SourceOptions) -> Self:
        """Read some samples, and find their schema."""
        options.refuse_others(_OPTIONS, "a dataset")
        if isinstance(src, Mapping):
            columns = ColumnRows({str(name): _as_column(column) for name, column in src.items()})
            return cls(columns, options, f"columns {', '.join(columns.columns)}", columns.hash())
        if isinstance(src, np.ndarray) and src.dtype.names:
            return cls.open({name: src[name] for name in src.dtype.names}, options)
        if isinstance(src, np.ndarray) or hasattr(src, "detach"):
            array = plain(src)
            return cls(array, options, f"array of shape {array.shape}", _hash_array(array))
        return cls(src, options, type(src).__name__)

    def load(self, token: Index) -> Mapping[str, Value]:
        """Build a sample, and convert it to the fields of a record."""
        sample = self._get(token)
        fields = self._converter.convert(self._names.read(sample))
        return fields if self.numbers_records else {**fields, KEY: self._names.get_key(sample, token)}

    def load_batch(self, tokens: Sequence[Value]) -> Mapping[str, Value] | None:
        """Rows of columns that are arrays and need no conversion, without an object for each."""
        if not isinstance(self._dataset, ColumnRows) or not self.numbers_records:
            return None
        columns = {name: self._dataset.columns.get(name) for name in self.schema.fields}
        if not all(_is_stored_as_is(column, self.schema[name]) for name, column in columns.items()):
            return None
        begin, end = tokens[0], tokens[-1] + 1  # tokens are consecutive indices
        return {name: column[begin:end] for name, column in columns.items() if column is not None}

    def digest(self) -> str:
        """Hash the dataset's identity if there is one, else its class, its length and some records."""
        state = xxhash.xxh3_128(f"dataset\0{self.total}\0{self.schema.to_json()}\0".encode())
        if self._identity is not None:
            state.update(self._identity.encode())
            return state.hexdigest()
        state.update(f"{type(self._dataset).__module__}.{type(self._dataset).__qualname__}\0".encode())
        for index in _spread(self.total, _DIGEST_SAMPLES):
            try:
                loaded = self.load(index)
                state.update(msgpack.packb(loaded, default=_to_bytes, unicode_errors="surrogatepass"))
            except PackError as error:
                state.update(error.message.encode())
        return state.hexdigest()

    def _get_some(self) -> list[Sample]:
        """Samples from all over the dataset; those that cannot be built are left out here, and listed when packed."""
        samples = []
        failure: PackError | None = None
        for index in _spread(self.total, INFERRED_FROM):
            try:
                samples.append(self._get(index))
            except PackError as error:
                failure = failure or error
        if not samples and failure is not None:
            raise failure
        return samples

    def _get(self, index: int) -> Sample:
        try:
            return self._dataset[index]
        except PenstockError as error:
            raise PackError(f"sample {index}: {error}") from error
        except Exception as error:
            raise PackError(f"dataset[{index}] raised {type(error).__name__}: {error}") from error


class ColumnRows:
    """Columns of one length as a sequence of dicts.

    ``columns``: arrays, tensors or lists.
    """

    def __init__(self, columns: Mapping[str, Value]) -> None:
        self.columns = dict(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> dict[str, Value]:
        return {name: column[index] for name, column in self.columns.items()}

    def hash(self) -> str | None:
        """A hash of all values, if the columns are arrays of numbers; else None."""
        hashes = [_hash_array(column) for column in self.columns.values()]
        return None if None in hashes else " ".join(map(str, hashes))


def is_columns(mapping: Mapping[Value, Value]) -> bool:
    """Return whether the values of a mapping are columns of one length."""
    columns = list(mapping.values())
    if not columns or any(isinstance(each, str | bytes) or not hasattr(each, "__len__") for each in columns):
        return False
    return len({len(each) for each in columns}) == 1 and all(hasattr(each, "__getitem__") for each in columns)


def _is_stored_as_is(column: object, field: Field) -> bool:
    """Return whether the rows of a column are values of a field, without conversion."""
    if not isinstance(column, np.ndarray):
        return False
    kind = field.pixels or field.array
    if kind is not None:
        return column.dtype == kind.dtype and kind.allows(column.shape[1:])
    is_number = column.ndim == 1 and column.dtype != np.uint64
    return is_number and column.dtype.kind in {"float": "f", "int": "iu", "label": "iu"}.get(field.kind, "")


def _as_column(column: object) -> Value:
    """Return a column as a sequence; masked numbers are None."""
    if isinstance(column, np.ma.MaskedArray) and column.ndim == 1:
        return column.tolist() if np.ma.is_masked(column) else plain(column)
    return column if isinstance(column, list | tuple) else plain(column)


def _hash_array(array: object) -> str | None:
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        return None
    state = xxhash.xxh3_128(f"{array.dtype.str}{array.shape}".encode())
    for row in np.array_split(array, max(1, array.nbytes >> 24)) if len(array) else []:
        state.update(np.ascontiguousarray(row).tobytes())
    return state.hexdigest()


def _find_classes(dataset: object) -> Sequence[str] | None:
    """The names of the classes of a dataset that says them as torchvision's do."""
    classes = getattr(dataset, "classes", None)
    if isinstance(classes, list | tuple) and classes and all(isinstance(name, str) for name in classes):
        return classes if len(set(classes)) == len(classes) else None
    return None


def _spread(length: int, count: int) -> list[int]:
    """Return at most ``count`` indices from the first to the last, evenly spaced."""
    spread: list[int] = np.unique(np.linspace(0, length - 1, min(length, count)).astype(np.int64)).tolist()
    return spread


def _to_bytes(value: object) -> bytes:
    array = np.ascontiguousarray(value)
    return f"{array.dtype.str}{array.shape}".encode() + array.tobytes()
