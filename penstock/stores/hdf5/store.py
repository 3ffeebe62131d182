"""The ``hdf5`` store: datasets of images, labels, names and other values in HDF5 files, one record for each row.

::

    train.h5                  train_x.h5  train_y.h5        part-0.h5  part-1.h5
    image (N, H, W, 3)        x (N, ...)  y (N, ...)        x, y       x, y
    label (N,)                different datasets:           the same datasets:
                              side by side                  one after another

:mod:`.hdf5.survey` lists the datasets, :mod:`.hdf5.roles` finds what each is, :mod:`.hdf5.rows` reads stored rows, and
here they become values: images as HWC RGB, numbers, texts, small arrays. Numbers and texts are columns, read once; of
other fields one record is read at a time. h5py is needed to open a file; most datasets are then read from the mapped
file, without it.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import ArgumentError, CorruptRecordError, PenstockError, StoreError, StoreFormatError
from penstock.fields.roles import Stated
from penstock.sample import Array, ArrayKind, Record, Schema
from penstock.stores.base import Indices, PathLike
from penstock.stores.common.keys import KeyList
from penstock.stores.common.regular_file import has_magic, identify
from penstock.stores.container import ContainerStore
from penstock.stores.fields.exact_casts import cast_exactly
from penstock.stores.fields.pixels import PixelLayout
from penstock.stores.hdf5.files import Hdf5Files
from penstock.stores.hdf5.format import LAYOUT, Hdf5Layout, array_kind
from penstock.stores.hdf5.roles import DatasetRoles, FieldSource, assign_roles
from penstock.stores.hdf5.rows import LibraryFiles, LocateRow, ReadRow
from penstock.stores.hdf5.survey import LIBRARY_ERRORS, cut_growing, join_surveys
from penstock.stores.indices import list_indices
from penstock.stores.location import Location
from penstock.stores.writing import Skipped, Writer
from penstock.wording import counted

__all__ = ["Hdf5Store"]

T_read = TypeVar("T_read")
_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_USER_BLOCKS: Final = (0, 512, 1024, 2048, 4096)
_ORDERS: Final = {"NCHW": (1, 2, 0), "NCWH": (2, 1, 0), "NWH": (1, 0)}


class Hdf5Store(ContainerStore[LibraryFiles]):
    """Records in HDF5 files.

    Parameters
    ----------
    path : str, path, Location or sequence of paths
        The file, or several: with different datasets (``x`` and ``y``) they are read side by side, with the same
        datasets one after another.
    image, label, key : str, optional
        Paths of the datasets (``"train/jpeg"``). By default they are found by what they hold and by names; ``""``:
        there is none. Integers are keys only if they are stated.
    group : str, optional
        The group whose datasets are used (``"train"``).
    fields : sequence of str or mapping of str to str, optional
        The datasets that are read, or that of each field: ``{"image": "a/b", "caption": "c"}``. By default image and
        label, and every other dataset beside the image that has as many records.
    axes : {"NHWC", "NCHW", "NCWH", "NHW", "NWH"}, optional
        Axes of stored pixels; must be stated where the second axis may be that of the channels. MATLAB stores ``NCWH``
        and ``NWH``, which is found out.
    channels : {"RGB", "BGR"}, optional
        Order of stored channels; must be stated for 3 and 4 channels unless an attribute of the dataset says it.
    missing_label : int, optional
        The label that says that a record has none.
    swmr : bool, optional
        Whether another process writes the file in SWMR mode. By default it is found out. The number of records is then
        that when the store was opened.
    count : int, optional
        Use only so many records, the first ones.

    Raises
    ------
    StoreFormatError
        If a file is damaged, or has no datasets of records.
    ArgumentError
        If something must be stated, or does not fit; the message lists the candidates.
    OptionalPackageError
        If h5py is not installed.

    Notes
    -----
    Pixels and small arrays of native byte order, and encoded images of variable length, are views of the mapped file,
    if the dataset is contiguous or in chunks without filters. gzip and shuffle are undone without h5py, and threads do
    so at once. Other filters, and files in SWMR mode, are read by h5py, which serves one thread at a time. HDF5 has no
    checksums of records: a flipped bit in a picture is not noticed, unless the dataset has the filter ``fletcher32`` or
    ``gzip``.
    """

    kind: ClassVar[str] = "hdf5"
    damage = LIBRARY_ERRORS
    takes_shards: ClassVar[bool] = True

    def __init__(
        self,
        path: PathLike,
        *,
        image: str | None = None,
        label: str | None = None,
        key: str | None = None,
        group: str | None = None,
        fields: Sequence[str] | Mapping[str, str] | None = None,
        axes: str | None = None,
        channels: str | None = None,
        missing_label: int | None = None,
        swmr: bool | None = None,
        count: int | None = None,
    ) -> None:
        stated = Stated(image, label, key, fields, axes=axes, channels=channels)
        others = {"group": group, "missing_label": missing_label, "swmr": swmr, "count": count}
        given = stated.given | {name: value for name, value in others.items() if value is not None}
        super().__init__(path, files=None, **given)
        self._missing_label = missing_label
        self._hdf5 = Hdf5Files(self._files, self.url, swmr=swmr)
        self._written: Hdf5Layout | None = None
        self._roles, self._problems = self._find_roles(stated, group or "")
        self._count = self._roles.count if count is None else self._check_count(count)
        if self._hdf5.is_swmr:  # the same records in every process, whatever is written meanwhile
            self._options.update(swmr=True, count=self._count)
        self._schema = self._roles.schema
        self._readers: dict[str, DatasetReader] = {}

    @property
    def description(self) -> str:
        """Which datasets are used, and as what."""
        if self._written is not None:
            return f"hdf5, written by penstock: {counted(self._count, 'record')}"
        said = []
        for name, source in self._roles.fields.items():
            order = f" {source.axes} {'BGR' if source.is_bgr else ''}".rstrip()
            said.append(f"{name} is {source.dataset.name!r} ({source.field.kind}{order})")
        key = "row numbers" if self._roles.key is None else repr(self._roles.key.name)
        unused = f"; not used: {', '.join(self._roles.unused[:5])}" if self._roles.unused else ""
        swmr = ", open for writing (SWMR)" if self._hdf5.is_swmr else ""
        doubts = "".join(f"; {doubt}" for doubt in self._roles.doubts)
        return f"hdf5: {counted(self._count, 'record')}{swmr}; {', '.join(said)}; keys are {key}{unused}{doubts}"

    def __len__(self) -> int:
        return self._count

    def open_files(self) -> LibraryFiles:
        """Open nothing yet: h5py is needed for columns and for unusual datasets only."""
        return LibraryFiles(self._files, self.url, swmr=self._hdf5.is_swmr)

    def close_files(self, opened: LibraryFiles) -> None:
        """Close the files that h5py has opened; mapped files stay readable."""
        opened.close()

    def announce_places(self, opened: LibraryFiles, indices: Sequence[int]) -> bool:
        """The headers of datasets are read by h5py, in another thread."""
        del opened, indices
        return self._readers.keys() != self._roles.fields.keys()

    def ranges_of(self, opened: LibraryFiles, indices: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """The values of each record, as far as they are read without h5py."""
        del opened
        with contextlib.suppress(*LIBRARY_ERRORS, PenstockError):  # reading the records raises it
            found = [self._get_reader(name).locate for name in self._roles.fields]
            yield from (locate(index) for index in indices for locate in found if locate is not None)

    def read_record(self, opened: LibraryFiles, index: int) -> Record:
        """Read one record; see :meth:`ContainerStore.read_record`."""
        fields = {name: self._get_reader(name).read(index, opened) for name in self._roles.fields}
        return Record(index, self.keys()[index], fields)

    def make_blob_reader(self, opened: LibraryFiles, field: str, indices: Sequence[int]) -> Callable[[int], object]:
        """Return what gives one field, without the others."""
        del indices
        read = self._get_reader(field).read
        return lambda index: read(index, opened)

    def _read_each(
        self, indices: Indices, make_reader: Callable[[LibraryFiles, Sequence[int]], Callable[[int], T_read]]
    ) -> list[T_read]:
        """Read in the order of the file: records of one chunk are inflated once."""
        numbers = list_indices(indices)
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        found = dict(zip(order, super()._read_each([numbers[at] for at in order], make_reader), strict=True))
        return [found[position] for position in range(len(numbers))]

    def column(self, field: str) -> Array:
        """A small field of all records; see :meth:`Store.column`."""
        self._refuse_closed()
        source = self._roles.fields.get(field)
        if source is None or not source.is_number:
            return super().column(field)
        self.get_opened()
        column = self._get_reader(field).column
        assert column is not None, "the field is a number"
        return column[: self._count]

    def lacks_value(self, field: str, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which records lack a value, as the file or ``missing_label`` says; see :meth:`Store.lacks_value`."""
        self.get_opened()
        return self._get_reader(field).lacks_value(indices)

    def close(self) -> None:
        """Close the files; see :meth:`Store.close`. What was read stays readable."""
        super().close()
        self._readers.clear()
        self._hdf5.unmap()

    def digest(self) -> str:
        """Hash as :meth:`ContainerStore.digest`; of a file that grows (SWMR), the options and the number of records."""
        return self._digest_options() if self._hdf5.is_swmr else super().digest()

    def fingerprint(self) -> str:
        """Hash as :meth:`ContainerStore.fingerprint`; of a file that grows (SWMR), as :meth:`digest`."""
        return self._digest_options() if self._hdf5.is_swmr else super().fingerprint()

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Return whether the file begins with HDF5's signature, or has it behind a user block."""
        return has_magic(path, _SIGNATURE, _USER_BLOCKS)

    @classmethod
    def writer(  # type: ignore[override]  # its one option is named
        cls, location: Location, schema: Schema, source: str, *, overwrite: bool = False, compression: str = "none"
    ) -> Writer[tuple[bytes, int]]:
        """Begin or resume a file; see :class:`.hdf5.writer.Hdf5Writer`."""
        from penstock.stores.hdf5.writer import Hdf5Writer  # readers need not load it

        return Hdf5Writer(location, schema, source, overwrite=overwrite, compression=compression)

    def _find_roles(self, stated: Stated, group: str) -> tuple[DatasetRoles, tuple[Skipped, ...]]:
        survey = join_surveys(self._hdf5.survey(LAYOUT), [path.name for path in self._files])
        self._watch(survey.sources)
        if self._hdf5.is_swmr:
            survey = cut_growing(survey)
        try:
            if survey.layout and not stated.given and not group:
                self._written = Hdf5Layout.from_text(survey.layout)
                self._skipped = self._written.skipped
                return self._written.assign(survey), survey.problems
            roles = assign_roles(survey, stated, group)
            _refuse_missing(roles)
        except PenstockError as error:
            error.locate(store=self.url)
            raise
        unused = () if stated.fields is not None else roles.unused
        within = f"{group.strip('/')}/" if group else ""
        missing = {name: found.missing for name, found in survey.datasets.items() if found.missing}
        gone = [Skipped(name, f"it is a view of {what}") for name, what in missing.items()]
        others = [name for name in unused if name.startswith(within) and name not in missing]
        return roles, (*survey.problems, *gone, *(Skipped(name, "this dataset is not read") for name in others))

    def _check_count(self, count: int) -> int:
        if type(count) is not int or not 0 <= count <= self._roles.count:
            raise ArgumentError(f"count must be in 0 .. {self._roles.count}, the records of the files, got {count!r}")
        return count

    def _get_reader(self, name: str) -> DatasetReader:
        reader = self._readers.get(name)
        if reader is None:  # two threads may make it twice
            missing_label = self._missing_label if name == "label" else None
            with self._refusing_again(f"field {name!r}"):
                try:
                    reader = make_reader(self._roles.fields[name], self._hdf5, self._roles.count, missing_label)
                except PenstockError:
                    raise
                except LIBRARY_ERRORS as error:
                    raise CorruptRecordError(f"field {name!r} cannot be read: {error}", store=self.url) from error
            self._readers[name] = reader
        return reader

    def read_keys(self) -> Sequence[str]:
        """Return the texts or numbers of the key dataset; row numbers where there is none."""
        if self._roles.key is None:
            return super().read_keys()
        self.get_opened()
        return read_texts(self._hdf5.read_all(self._roles.key))

    def _digest_options(self) -> str:
        names = sorted(path.name for path in self._files)
        return xxhash.xxh3_128(repr((names, sorted(self._options.items()))).encode()).hexdigest()

    def _refuse_changed(self, files: Iterable[int] | None = None) -> None:
        if not self._hdf5.is_swmr:
            super()._refuse_changed(files)
            return
        for path, opened in zip(self._files, self._identities, strict=True):
            try:
                now = identify(path)
            except OSError:
                now = None
            if now is None or (now.device, now.inode) != (opened.device, opened.inode) or now.nbytes < opened.nbytes:
                raise StoreError(f"{path.name} was replaced while this store was open; open it again", store=self.url)


def _refuse_missing(roles: DatasetRoles) -> None:
    """Refuse a dataset that is used and is a view of files of which one is missing: HDF5 reads its fill value."""
    keys = [] if roles.key is None else [roles.key]
    for dataset in (*(source.dataset for source in roles.fields.values()), *keys):
        if dataset.missing:
            raise StoreFormatError(
                f"dataset {dataset.name!r} is a view of {dataset.missing}; HDF5 would give its fill value. Put the "
                "values in a file beside this one, or name the datasets to use in fields={...}"
            )


class DatasetReader:
    """Reads one field of records.

    Parameters
    ----------
    read : callable
        Gives the value of a row; ValueError if it is damaged.
    missing : ndarray of bool, optional
        Whether each record has none.
    column : ndarray, optional
        Of a field of numbers: those of all records.
    locate : callable, optional
        Where in the files the value of a row is.
    """

    def __init__(
        self,
        read: Callable[[int, LibraryFiles], object],
        missing: Array | None,
        column: Array | None = None,
        locate: LocateRow | None = None,
    ) -> None:
        self._read, self.column, self.locate = read, column, locate
        self._is_missing = missing.data if missing is not None and missing.any() else None

    def lacks_value(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each of some records has none."""
        missing = self._is_missing
        return np.zeros(len(rows), np.bool_) if missing is None else np.asarray(missing)[rows]

    def read(self, row: int, files: LibraryFiles) -> object:
        """The value of a record; None if it has none."""
        if self._is_missing is not None and self._is_missing[row]:
            return None
        return self._read(row, files)


def make_reader(source: FieldSource, files: Hdf5Files, count: int, missing_label: int | None) -> DatasetReader:
    """Return the reader of a field.

    Parameters
    ----------
    source : FieldSource
        The field and its dataset.
    files : Hdf5Files
        The files.
    count : int
        Number of records.
    missing_label : int, optional
        The label that says that a record has none.

    Raises
    ------
    ValueError, and others of :data:`~penstock.stores.hdf5.survey.LIBRARY_ERRORS`
        If the files are damaged.
    """
    missing = None if source.missing is None else _flag_rows(files.read_all(source.missing), count)
    if source.is_number:
        values = files.read_all(source.dataset)[:count].reshape(-1)
        if missing_label is not None:
            missing = (values == missing_label) if missing is None else missing | (values == missing_label)
        column = _make_column(values, missing, is_float=source.field.kind == "float")
        return DatasetReader(lambda row, _: column.item(row), missing, column)
    if source.is_text:
        texts = read_texts(files.read_all(source.dataset)[:count])
        parse = json.loads if source.field.kind == "json" else str
        return DatasetReader(lambda row, _: parse(texts[row]), missing)
    read, locate = files.open_rows(source.dataset)
    if source.shapes is not None:
        return DatasetReader(_shape_values(read, source, files.read_all(source.shapes)), missing, None, locate)
    convert = _make_converter(source)
    converted = read if convert is None else lambda row, opened: convert(read(row, opened))
    return DatasetReader(converted, missing, None, locate)


def _make_column(values: Array, missing: Array | None, *, is_float: bool) -> Array:
    """Numbers in 64 bits, those of records without one as NaN or -1."""
    column = cast_exactly(values, np.dtype(np.float64 if is_float else np.int64))
    if missing is not None:
        column = np.where(missing, np.nan if is_float else -1, column)
    column.flags.writeable = False
    return column


def read_texts(values: Array) -> KeyList:
    """Return a column of texts, or of integers that are names. Bytes that are no UTF-8, and zeros, are escaped."""
    if values.dtype.kind in "iu":
        return KeyList.from_names(map(str, values.tolist()))
    return KeyList.from_names(_decode(value) for value in values.tolist())


def _decode(value: bytes | str) -> str:
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _flag_rows(rows: Array, count: int) -> Array:
    if len(rows) and (rows.min() < 0 or rows.max() >= count):
        raise ValueError("a row without a value is outside the column")
    flags = np.zeros(count, np.bool_)
    flags[rows] = True
    return flags


def _shape_values(read: ReadRow, source: FieldSource, shapes: Array) -> Callable[[int, LibraryFiles], Array]:
    """Return what reads arrays whose shapes are stored beside them."""
    kind = array_kind(source.field)
    assert kind is not None, "only arrays have shapes"

    def read_array(row: int, files: LibraryFiles) -> Array:
        shape = tuple(shapes[row].tolist())
        if min(shape) < 0 or not kind.allows(shape):
            raise ValueError(f"its shape {shape} must be that of {kind}")
        return _to_shape(read(row, files), kind, shape)

    return read_array


def _make_converter(source: FieldSource) -> Callable[..., object] | None:
    """Return what makes a value of the field of a stored one; None where it is stored so."""
    kind, dtype = array_kind(source.field), source.dataset.dtype
    if source.axes:
        return _make_pixel_converter(source)
    if kind is None:
        return _view_bytes
    rest = tuple(-1 if lengths is None else lengths[0] for lengths in kind.axes)
    is_fixed = kind.shape is not None
    if dtype == kind.dtype and dtype.isnative and dtype != np.uint8 and (is_fixed or len(rest) == 1):
        return None
    return functools.partial(_to_shape, kind=kind, shape=rest if is_fixed else (-1, *rest[1:]))


def _view_bytes(value: bytes | memoryview | Array) -> bytes | memoryview:
    """Return the bytes of an encoded image; h5py gives an array."""
    return value.data if isinstance(value, np.ndarray) else value


def _to_shape(value: object, kind: ArrayKind, shape: tuple[int, ...]) -> Array:
    array = cast_exactly(np.asarray(value), kind.dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _make_pixel_converter(source: FieldSource) -> Callable[[Array], Array] | None:
    """Pixels to HWC, three channels RGB, in native byte order; None where the file has them so."""
    if source.axes == "NHWC" and not source.is_bgr and source.dataset.dtype.isnative:
        return None
    layout, order = PixelLayout("BGR" if source.is_bgr else "RGB"), _ORDERS.get(source.axes)
    return lambda stored: layout.convert(stored if order is None else stored.transpose(order))
