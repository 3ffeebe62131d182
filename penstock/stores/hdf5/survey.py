"""Which datasets the files of an HDF5 store have: their names, shapes, types of elements, and what attributes say.

Called when a store is opened; reads headers, attributes, and three values of bytes. Links to other files are not
followed: a container of unknown origin must not name the files that are read.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import ArgumentError, StoreError, StoreFormatError
from penstock.registry import require
from penstock.sample import Array, DType
from penstock.stores.common.regular_file import open_by_library
from penstock.stores.container import DAMAGE
from penstock.stores.fields.image_signatures import are_images
from penstock.stores.fields.record_names import share_classes
from penstock.stores.hdf5.virtual_sources import VirtualSources, describe_external, follow_links
from penstock.stores.writing import Skipped

if TYPE_CHECKING:
    import h5py

__all__ = [
    "LIBRARY_ERRORS",
    "FoundDataset",
    "Survey",
    "cut_growing",
    "join_surveys",
    "open_library_file",
    "survey_file",
]

LIBRARY_ERRORS: Final = (OSError, RuntimeError, MemoryError, *DAMAGE)
"""What h5py raises for wrong bytes."""

_MAX_OBJECTS: Final = 100_000
_MAX_CLASSES: Final = 1 << 16
_SPARSE_NBYTES: Final = 1 << 30
_MAX_BLOCK_NBYTES: Final = 1 << 28
_MAX_RATIO: Final = 2000  # deflate compresses to 1/1032 at most
_CLASS_NAMES: Final = frozenset({"classes", "class_names", "classnames", "list_classes", "label_names", "categories"})
_ORDERS: Final = {"RGB": "RGB", "BGR": "BGR", "RGBA": "RGB", "BGRA": "BGR"}
_ORDER_ATTRIBUTES: Final = ("channels", "channel_order", "color_order", "IMAGE_COLORMODEL", "colorspace", "color_space")
_LOCKED: Final = re.compile(r"unable to lock|already open for write|Resource temporarily unavailable")


@dataclass(frozen=True, slots=True)
class FoundDataset:
    """A dataset, or the datasets of this name in all shards."""

    name: str  # its path in the file, without the first ``/``
    form: str
    """``array`` (numbers of one shape), ``ragged`` (variable-length numbers), ``text``, or ``blocks`` (bytes of one
    length); ``other`` for types that are not read."""
    dtype: DType  # of the numbers; of ``blocks`` and ``text`` that of NumPy
    shape: tuple[int, ...]  # of all records; the first axis counts records
    files: tuple[int, ...] = (0,)  # numbers of the files that have it
    counts: tuple[int, ...] = (0,)  # number of its records in each of them
    classes: tuple[str, ...] = ()  # names of classes that it states
    channels: str = ""  # ``RGB`` or ``BGR``, if it states one
    grows: bool = False  # whether records may be appended
    is_matlab: bool = False
    """Whether MATLAB wrote it: the axes are in reverse order, and a column of numbers is one row."""
    holds_images: bool = False
    """Whether its bytes (``blocks``, or ``ragged`` of uint8) are encoded images."""
    file: str = ""  # the name of its file, where the files of a store have different datasets
    missing: str = ""  # of a view of other files: what of them is missing, which would be read as the fill value

    @property
    def count(self) -> int:
        """Number of records."""
        return self.shape[0]

    def describe(self) -> str:
        """Name, type and shape, for messages."""
        kind = {"array": str(self.dtype), "ragged": f"variable-length {self.dtype}"}.get(self.form, self.form)
        where = f" in {self.file}" if self.file else ""
        return f"{self.name!r} ({kind}, {self.shape}){where}"


@dataclass(frozen=True, slots=True)
class Survey:
    """The datasets of a store by name; those that cannot be read; names of classes; the text of our own layout."""

    datasets: Mapping[str, FoundDataset]
    problems: tuple[Skipped, ...] = ()
    classes: tuple[str, ...] = ()
    layout: str = ""
    sources: tuple[Path, ...] = ()
    """Other files that are read through virtual datasets."""


def open_library_file(path: Path, url: str, *, swmr: bool, kept_nbytes: int = 1 << 20) -> h5py.File:
    """Open a file with h5py for reading, which keeps so many bytes of the chunks of a dataset (HDF5's default: 1 MiB).

    Raises StoreFormatError if it is damaged, or no HDF5 file. Raises StoreError if it cannot be read, or another
    process writes it and is not in SWMR mode.
    """
    h5py = require("h5py", extra="hdf5", purpose="to read HDF5 files")
    try:
        file = open_by_library(path)
    except OSError as error:
        raise StoreError(f"{path.name} cannot be read: {error.strerror or error}", store=url) from error
    try:
        if file is not path:
            return h5py.File(file, "r", rdcc_nbytes=kept_nbytes)
        # some file systems have no locks
        return h5py.File(path, "r", swmr=swmr, locking="best-effort", rdcc_nbytes=kept_nbytes)
    except StoreError:
        raise
    except LIBRARY_ERRORS as error:
        if _LOCKED.search(str(error)):
            raise StoreError(
                f"{path.name} is open for writing in another process, which is not in SWMR mode, or was not closed "
                f"when its writer ended (h5clear -s repairs that): {error}",
                store=url,
            ) from error
        raise StoreFormatError(f"{path.name} is damaged, or no HDF5 file: {error}", store=url) from error


def survey_file(file: h5py.File, number: int, layout_name: str, sources: VirtualSources) -> Survey:
    """The datasets of an open file; raises one of :data:`LIBRARY_ERRORS` for wrong bytes.

    ``sources``: of virtual datasets, to which their files are added.
    """
    library = require("h5py")
    datasets: dict[str, FoundDataset] = {}
    problems: list[Skipped] = []
    classes: list[tuple[str, ...]] = []
    layout: list[str] = []
    seen = 0

    def visit(name: str | bytes, found: h5py.Group | h5py.Dataset) -> bool | None:
        nonlocal seen
        seen += 1
        if isinstance(name, bytes):
            problems.append(Skipped(ascii(name), "its name is no UTF-8"))
        elif isinstance(found, library.Dataset) and name == layout_name and found.shape == ():
            layout.append(_text(found[()]))
        elif isinstance(found, library.Dataset) and found.shape:
            dataset = _find_form(name, found, number)
            reason = _why_unreadable(found, dataset)
            if reason:
                problems.append(Skipped(name, reason))
            elif dataset.form == "text" and name.rpartition("/")[2].lower() in _CLASS_NAMES:
                classes.append(_class_texts(found[:_MAX_CLASSES]))
            else:
                missing = sources.find_missing(found) if found.is_virtual else ""
                datasets[name] = replace(dataset, missing=missing) if missing else dataset
        return True if seen >= _MAX_OBJECTS else None

    links = itertools.count(1)

    def visit_link(name: str | bytes, link: object) -> bool | None:
        if isinstance(link, library.ExternalLink):
            problems.append(Skipped(str(name), f"it is a link to another file, {link.filename!r}, which is not read"))
        elif isinstance(link, library.SoftLink):
            try:
                other, _ = follow_links(file, str(name))
            except ValueError as error:
                problems.append(Skipped(str(name), f"it is a link to {link.path!r}, which leads nowhere: {error}"))
            else:
                if other:
                    problems.append(Skipped(str(name), f"it is a link to another file, {other!r}, which is not read"))
        return True if next(links) >= _MAX_OBJECTS else None

    if file.visititems(visit):
        problems.append(Skipped("/", f"it has more than {_MAX_OBJECTS} groups and datasets; only those are looked at"))
    file.visititems_links(visit_link)
    stated = _stated_classes(file.attrs)
    names = stated or (classes[0] if classes else ())
    return Survey(datasets, tuple(problems), names, layout[0] if layout else "", tuple(sources.files))


def join_surveys(surveys: Sequence[Survey], names: Sequence[str]) -> Survey:
    """Return the datasets of several files: of equal names, one after another; of different names, side by side.

    Raises ArgumentError if some names are equal and others are not, or datasets of one name differ in type or shape.
    """
    if len(surveys) == 1:
        return surveys[0]
    problems = tuple(problem for survey in surveys for problem in survey.problems)
    classes = _share_classes([survey.classes for survey in surveys], names)
    sources = tuple(dict.fromkeys(source for survey in surveys for source in survey.sources))
    sets = [set(survey.datasets) for survey in surveys]
    if all(names_of == sets[0] for names_of in sets):
        joined = {name: _concatenate([survey.datasets[name] for survey in surveys], names) for name in sets[0]}
        ordered = {name: joined[name] for name in surveys[0].datasets}
        return Survey(ordered, problems, classes, surveys[0].layout, sources)
    union: dict[str, FoundDataset] = {}
    for survey, file in zip(surveys, names, strict=True):
        if shared := sorted(union.keys() & survey.datasets.keys()):
            raise ArgumentError(
                f"files must have the same datasets (shards, read one after another) or different ones (x and y, read "
                f"side by side), got some of both in {', '.join(names)}: {', '.join(shared[:5])} are in several"
            )
        union.update({name: replace(found, file=file) for name, found in survey.datasets.items()})
    return Survey(union, problems, classes, sources=sources)


def cut_growing(survey: Survey) -> Survey:
    """Cut datasets that grow to as many records as the shortest of them has.

    A writer in SWMR mode appends to one dataset after another.
    """
    count = min((found.count for found in survey.datasets.values() if found.grows), default=0)
    cut = {
        name: replace(found, shape=(count, *found.shape[1:]), counts=(count,))
        if found.grows and len(found.files) == 1
        else found
        for name, found in survey.datasets.items()
    }
    return replace(survey, datasets=cut)


def _concatenate(datasets: Sequence[FoundDataset], names: Sequence[str]) -> FoundDataset:
    first = datasets[0]
    for dataset, name in zip(datasets, names, strict=True):
        if (dataset.form, dataset.dtype, dataset.shape[1:]) != (first.form, first.dtype, first.shape[1:]):
            raise ArgumentError(
                f"shards must have datasets of one type and shape, got {first.describe()} in {names[0]} and "
                f"{dataset.describe()} in {name}"
            )
    return replace(
        first,
        shape=(sum(dataset.count for dataset in datasets), *first.shape[1:]),
        files=tuple(dataset.files[0] for dataset in datasets),
        counts=tuple(dataset.count for dataset in datasets),
        classes=_share_classes([dataset.classes for dataset in datasets], names),
        holds_images=2 * sum(dataset.holds_images for dataset in datasets) > len(datasets),
        missing=next((dataset.missing for dataset in datasets if dataset.missing), ""),
    )


def _share_classes(stated: Sequence[tuple[str, ...]], names: Sequence[str]) -> tuple[str, ...]:
    try:
        return share_classes(zip(names, stated, strict=True))
    except ValueError as error:
        raise ArgumentError(f"files must number their classes in one way: of one of them, {error}") from error


def _find_form(name: str, found: h5py.Dataset, number: int) -> FoundDataset:
    library = require("h5py")
    if found.file.swmr_mode:
        found.refresh()  # the library may have the headers from an earlier opening in this process
    dtype = found.dtype
    form = "other"
    classes = _stated_classes(found.attrs)
    enumerated = library.check_enum_dtype(dtype)
    base = library.check_vlen_dtype(dtype)
    text = library.check_string_dtype(dtype)
    if enumerated and sorted(enumerated.values()) == list(range(len(enumerated))):
        classes = classes or tuple(sorted(enumerated, key=enumerated.__getitem__))
    holds_images = False
    if text is not None:
        holds_images = dtype.kind == "S" and _holds_images(found, empty=False)
        form = "blocks" if holds_images else "text"
    elif base is not None:
        if isinstance(base, np.dtype) and base.kind in "biuf":
            form, dtype = "ragged", base
            holds_images = base.name == "uint8" and _holds_images(found)
    elif dtype.kind in "biuf" and dtype.itemsize <= 8:  # no long double
        form = "array"
    elif dtype.kind == "V" and dtype.names is None and dtype.subdtype is None:
        form, holds_images = "blocks", _holds_images(found)
    if form in {"array", "ragged"}:
        dtype = np.dtype(dtype.str)  # without h5py's metadata
    shape = tuple(map(int, found.shape))
    is_matlab = "MATLAB_class" in found.attrs
    if is_matlab and form == "array" and len(shape) == 2 and shape[0] == 1:
        shape = shape[1:]
    channels = _stated_channels(found.attrs)
    grows = bool(found.maxshape) and found.maxshape[0] is None
    return FoundDataset(
        name, form, dtype, shape, (number,), (shape[0],), classes, channels, grows, is_matlab, holds_images
    )


def _holds_images(found: h5py.Dataset, *, empty: bool = True) -> bool:
    """Whether most of three values, spread over a column of bytes, begin as images; ``empty`` if none can be seen.

    Byte strings of one length are a column that NumPy makes of a list of images.
    """
    if len(found.shape) != 1 or (found.chunks or (1,))[0] * found.dtype.itemsize > _MAX_BLOCK_NBYTES:
        return False
    values = []
    for index in sorted({0, found.shape[0] // 2, found.shape[0] - 1}) if found.shape[0] else ():
        with contextlib.suppress(*LIBRARY_ERRORS):  # reading the record raises it
            values.append(np.asarray(found[index]).tobytes())
    return are_images(values) if any(values) else empty


def _why_unreadable(found: h5py.Dataset, dataset: FoundDataset) -> str:
    """Why a dataset is not read; empty if it is."""
    if dataset.form == "other":
        return f"its type {dataset.dtype} is not read"
    if found.external:
        return f"its {describe_external(found)}"
    files = [source.file_name for source in found.virtual_sources()] if found.is_virtual else []
    if any(file not in {".", Path(file).name} for file in files):
        return "it is a view of files in other folders, which are not read"
    declared = int(np.prod(dataset.shape, dtype=object)) * found.dtype.itemsize
    if declared > _SPARSE_NBYTES and not found.is_virtual and declared > _MAX_RATIO * found.id.get_storage_size():
        return f"it declares {declared} bytes and stores {found.id.get_storage_size()}"
    return ""


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _read_attribute(attributes: h5py.AttributeManager, name: str) -> object:
    """Return the value of an attribute; None if there is none, or it cannot be read."""
    try:
        return attributes[name] if name in attributes else None  # noqa: SIM401  # h5py's get reads it twice
    except LIBRARY_ERRORS:
        return None


def _class_texts(values: Array) -> tuple[str, ...]:
    return tuple(_text(value) for value in np.asarray(values).ravel())


def _stated_classes(attributes: h5py.AttributeManager) -> tuple[str, ...]:
    for name in _CLASS_NAMES:
        values = _read_attribute(attributes, name)
        if isinstance(values, np.ndarray) and values.ndim == 1 and len(values) and values.dtype.kind in "OSU":
            names = _class_texts(values)
            if len(set(names)) == len(names):
                return names
    return ()


def _stated_channels(attributes: h5py.AttributeManager) -> str:
    for name in _ORDER_ATTRIBUTES:
        value = _read_attribute(attributes, name)
        if isinstance(value, str | bytes) and _text(value).strip("\0 ").upper() in _ORDERS:
            return _ORDERS[_text(value).strip("\0 ").upper()]
    return ""
