"""A ``datasets.Dataset`` of Hugging Face that is in memory, as a store: its Arrow table is read as it lies.

``select``, ``shuffle``, ``filter`` and ``cast`` of the dataset are respected: records are the rows that it has now, in
its order. Formats and transforms (``set_format``, ``set_transform``) are not applied. ``datasets`` itself is not called
to read a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import xxhash

from penstock.errors import ArgumentError
from penstock.stores.arrow.columnar import ColumnarStore, takes_columns
from penstock.stores.arrow.columns import NumberColumn
from penstock.stores.arrow.table import ColumnarReader
from penstock.stores.location import Location
from penstock.wording import counted

if TYPE_CHECKING:
    import datasets

__all__ = ["HuggingFaceStore"]

_SAMPLED_RECORDS = 64


class HuggingFaceStore(ColumnarStore[ColumnarReader]):
    """Records of a ``datasets.Dataset``.

    Parameters
    ----------
    dataset : datasets.Dataset
        The dataset; it is pickled with the store.
    image, label, key, fields, boxes, shape, dtype, channels : optional
        As for :class:`~penstock.stores.arrow.parquet.ParquetStore`.
    allow_paths : bool
        Whether images that are stored as a path may be read from anywhere on this machine.

    Raises
    ------
    ArgumentError
        If it is a ``DatasetDict``, whose splits are datasets, or an option names no column.
    """

    kind: ClassVar[str] = "huggingface"

    @takes_columns
    def __init__(
        self,
        dataset: datasets.Dataset,
        *,
        allow_paths: bool = False,
        **columns: object,
    ) -> None:
        if isinstance(dataset, dict):
            raise ArgumentError(
                f"a dataset must be one split, got {', '.join(dataset)}; open dataset[{min(dataset)!r}]"
            )
        location = Location(self.kind, f"/{dataset._fingerprint}")  # noqa: SLF001  # its public text is its repr
        super().__init__(location, files=(), columns=columns, folder=None, allow_paths=allow_paths)
        self._dataset = dataset
        self._table = dataset.data.table
        indices = dataset._indices  # noqa: SLF001  # `select` and `shuffle` keep the order only there
        self._rows = None if indices is None else NumberColumn(indices.column(0).chunks).to_numpy(is_float=False)
        metadata = dataset.features.arrow_schema.metadata
        schema = self._table.schema.with_metadata(metadata)
        self._set_plan(schema, len(dataset), self.open_files())

    @property
    def description(self) -> str:
        """What was found."""
        return f"huggingface: {counted(len(self), 'row')} of a dataset in memory, {self._plan.describe()}"

    @classmethod
    def wraps(cls, value: object) -> bool:
        """Return whether an object is a dataset, or a mapping of splits to datasets; imports nothing."""
        names = {f"{each.__module__}.{each.__name__}" for each in type(value).__mro__}
        return bool(names & {"datasets.arrow_dataset.Dataset", "datasets.dataset_dict.DatasetDict"})

    def open_files(self) -> ColumnarReader:
        """Return the readers of this process."""
        return self.make_reader(lambda name, _: self._table.column(name).chunks)

    def digest(self) -> str:
        """Hash the dataset's own fingerprint, and the options."""
        return xxhash.xxh3_128(f"{super().digest()}\0{self.location.path}".encode()).hexdigest()

    def fingerprint(self) -> str:
        """Hash the schema, the number of records, and the images and labels of some of them."""
        if not self._fingerprint:
            state = xxhash.xxh3_128(f"{self._schema.to_json()}\0{len(self)}\0".encode())
            sampled = np.linspace(0, len(self) - 1, min(len(self), _SAMPLED_RECORDS)).astype(np.int64).tolist()
            reader, row_of = self.find_rows(self._opened.get(), sampled)
            for index in sampled:
                for value in reader.read(row_of(index)).values():
                    state.update(value if isinstance(value, memoryview | bytes) else repr(value).encode())
            self._fingerprint = state.hexdigest()
        return self._fingerprint

    def __reduce__(self) -> tuple[object, ...]:
        self._refuse_closed()
        return _reopen, (type(self), self._dataset, dict(self._options))


def _reopen(cls: type[HuggingFaceStore], dataset: datasets.Dataset, options: dict[str, object]) -> HuggingFaceStore:
    return cls(dataset, **options)  # type: ignore[arg-type]  # those that it had
