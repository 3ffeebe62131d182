"""Which dataset of an HDF5 store is the image, the label, the key: what is stated, else what contents and names say.

::

    train/jpeg   variable-length uint8 (N,)    image: encoded      contents or shapes, then names, choose;
    train/label  int64 (N,)                    label               equally good candidates are an error that lists them
    train/name   text (N,)                     key
    train/score  float32 (N,)                  field "score"       any other dataset of N records beside the image

Nothing is read here: the input is what :mod:`.hdf5.survey` found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.errors import ArgumentError, StoreFormatError
from penstock.fields.names import IMAGE_NAMES, LABEL_NAMES, is_mask_name, rank_name
from penstock.fields.roles import (
    Candidate,
    Stated,
    choose_roles,
    find_image,
    find_key,
    find_label,
    select_paths,
)
from penstock.sample import Field, Schema
from penstock.stores.hdf5.survey import FoundDataset, Survey
from penstock.stores.writing import Skipped
from penstock.wording import counted

__all__ = ["DatasetRoles", "FieldSource", "assign_roles"]

_PIXELS: Final = ("uint8", "uint16", "float32")
_AXES: Final = {3: ("NHW", "NWH"), 4: ("NHWC", "NCHW", "NCWH")}
_MATLAB_AXES: Final = {3: "NWH", 4: "NCWH"}
_FEW: Final = (1, 3, 4)


@dataclass(frozen=True, slots=True)
class FieldSource:
    """The dataset of a field, and what its values become."""

    field: Field  # the field of the schema
    dataset: FoundDataset  # its dataset
    axes: str = ""  # of pixels, as stored: ``NHWC``, ``NCHW``, ``NCWH``, ``NHW`` or ``NWH``; empty for other fields
    is_bgr: bool = False  # whether pixels are stored blue first
    shapes: FoundDataset | None = None  # shapes of the values, in a file that penstock wrote
    missing: FoundDataset | None = None  # the rows without a value, in a file that penstock wrote

    @property
    def is_number(self) -> bool:
        """Whether all values are one column of numbers."""
        return self.field.kind in {"label", "int", "float"}

    @property
    def is_text(self) -> bool:
        """Whether all values are a column of texts."""
        return self.field.kind in {"text", "json"}


@dataclass(frozen=True, slots=True)
class DatasetRoles:
    """The fields of a store, the dataset of its keys, the number of its records, and the datasets that are unused."""

    fields: Mapping[str, FieldSource]
    key: FoundDataset | None
    count: int
    unused: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()  # what a description says of the choice

    @property
    def schema(self) -> Schema:
        """The schema."""
        return Schema({name: source.field for name, source in self.fields.items()})


def assign_roles(survey: Survey, stated: Stated, group: str = "") -> DatasetRoles:
    """Find what each dataset is.

    Raises ArgumentError if a dataset that is stated does not exist or does not fit, or more must be stated; the message
    lists the candidates. Raises StoreFormatError if no dataset has records.
    """
    finder = _Finder(survey, group.strip("/"))
    stated = finder.resolve(stated)
    image = find_image(finder.candidates, stated)
    finder.find_count(image, stated)
    beside = finder.find_beside(image, stated)
    key = find_key(beside, stated, image)
    if stated.fields is None:
        read = [each for each in beside if each.path != key]
    else:
        paths = select_paths(finder.datasets, replace(stated, key=""), "datasets")
        read = [each for each in finder.candidates if each.path in paths]
    roles = choose_roles(read, replace(stated, image=image.path if image else "", key=""))
    if stated.fields is None and stated.label != "":
        finder.refuse_other_files()
    if not roles.fields:
        raise StoreFormatError(f"this HDF5 file has no dataset of images or labels{_list_problems(survey.problems)}")
    order = dict.fromkeys(("image", "label", *roles.fields))
    fields = {name: finder.describe(name, roles.fields[name], stated) for name in order if name in roles.fields}
    used = {key, *(source.dataset.name for source in fields.values())}
    unused = tuple(name for name in survey.datasets if name not in used)
    return DatasetRoles(fields, finder.datasets[key] if key else None, finder.count, unused, roles.doubts)


class _Finder:
    """The datasets in a group, those that are stated, and those that are records of one store."""

    def __init__(self, survey: Survey, group: str) -> None:
        self._survey, self._group, self._prefix = survey, group, f"{group}/" if group else ""
        self.datasets = {name: d for name, d in survey.datasets.items() if name.startswith(self._prefix)}
        self.candidates = [*map(_make_candidate, self.datasets.values())]
        self.count, self._counted, self._image = 0, "", ""
        if not self.datasets:
            within = f" in the group {group!r}" if group else ""
            raise StoreFormatError(f"this HDF5 file has no dataset of records{within}{_list_problems(survey.problems)}")

    def resolve(self, stated: Stated) -> Stated:
        """What is stated, with whole paths."""
        fields = stated.fields
        if isinstance(fields, Mapping):
            fields = {name: self._get(path, name) for name, path in fields.items()}
        elif fields is not None:
            fields = [self._get(path, "fields") for path in fields]
        given = {role: getattr(stated, role) for role in ("image", "label", "key")}
        found = {role: path and self._get(path, role) for role, path in given.items()}
        return replace(stated, fields=fields, **found)

    def _get(self, path: str, what: str) -> str:
        """Return the dataset at a path that was stated: in the group, or from the root."""
        name = path.strip("/")
        names = [f"{self._prefix}{name}", name]
        found = next((each for each in names if each in self.datasets), None)
        if found is None:
            why = next((f": {problem.reason}" for problem in self._survey.problems if problem.key in names), "")
            raise ArgumentError(f"{what} must be one of {_list(self.datasets.values())}, got {path!r}{why}")
        return found

    def find_count(self, image: Candidate | None, stated: Stated) -> None:
        """The number of records: that of the image, of what is stated, or the one that all datasets have.

        Raises ArgumentError if it cannot be known, or a stated dataset has another one.
        """
        listed = [*(stated.fields.values() if isinstance(stated.fields, Mapping) else stated.fields or ())]
        label, key = stated.roles["label"], stated.key
        self._image = image.path if image else ""
        first = next(filter(None, [self._image, label, *listed]), "")
        counts = {d.count for d in self.datasets.values()}
        if not first and len(counts) > 1:
            raise ArgumentError(
                f"which datasets have the records must be stated (image='...', group='...' or fields={{...}}): "
                f"{_list(self.datasets.values())}"
            )
        self.count = self.datasets[first].count if first else counts.pop()
        self._counted = self.datasets[self._image].describe() if image else counted(self.count, "record")
        for option, path in [("label", label), ("key", key), *(("fields", path) for path in listed)]:
            if path and self.datasets[path].count != self.count:
                raise ArgumentError(
                    f"{option} must be a dataset of {self.count} records ({self._counted}), got "
                    f"{self.datasets[path].describe()}"
                )

    def find_beside(self, image: Candidate | None, stated: Stated) -> list[Candidate]:
        """The candidates beside and below the image, or all where those are none; and the label, wherever it is."""
        fitting = [each for each in self.candidates if self.datasets[each.path].count == self.count]
        parent = image.path.rpartition("/")[0] if image else ""
        prefix = f"{parent}/" if parent else ""
        beside = [each for each in fitting if each.path.startswith(prefix)]
        if image is not None and beside != [image]:
            self._prefix = prefix
        else:
            beside = fitting
        if stated.fields is None and stated.label is None:
            others, everywhere = ([each for each in some if each is not image] for some in (beside, fitting))
            if find_label(others, image, stated) is None and (found := find_label(everywhere, image, stated)):
                beside = [*beside, found] if found not in beside else beside
            elif find_label(others, image, stated) is None and (found := find_label(self.candidates, image, stated)):
                raise ArgumentError(
                    f"images and labels must be equally many, got {self._counted}, and the labels {found}; state "
                    "label='...', or label='' for none"
                )
        return [replace(each, name=_name_field(each.path.removeprefix(self._prefix))) for each in beside]

    def refuse_other_files(self) -> None:
        """Refuse a file beside the others of which no dataset has as many records as these."""
        by_file: dict[str, list[FoundDataset]] = {}
        for found in self.datasets.values():
            by_file.setdefault(found.file, []).append(found)
        for beside in by_file.values():
            if all(found.count != self.count for found in beside):
                raise ArgumentError(
                    f"files that are read side by side must have equally many records, got {self._counted}, and "
                    f"{_list(beside)}; state fields={...} to leave that file out"
                )

    def describe(self, name: str, chosen: Candidate, stated: Stated) -> FieldSource:
        """Return what a field is read from."""
        found = self.datasets[chosen.path]
        if name == "image" and chosen.path == self._image:
            return _describe_image(found, stated)
        if name == "label" and stated.roles["label"] != "" and chosen.field.kind in {"label", "float"}:
            classes = found.classes or self._survey.classes if chosen.field.kind == "label" else ()
            return FieldSource(Field(chosen.field.kind, classes), found)
        return FieldSource(
            chosen.field if chosen.holds_encoded or chosen.field.kind == "mask" else _find_field(found), found
        )


def _describe_image(found: FoundDataset, stated: Stated) -> FieldSource:
    if found.holds_images:
        return FieldSource(Field("image"), found)
    rank = len(found.shape)
    if found.form != "array" or found.dtype.name not in _PIXELS or rank not in _AXES:
        raise ArgumentError(
            f"image must be a dataset of encoded images (variable-length uint8) or of pixels ({', '.join(_PIXELS)}; "
            f"axes {', '.join(a for known in _AXES.values() for a in known)}), got {found.describe()}"
        )
    axes = stated.axes
    if axes is not None and axes not in _AXES[rank]:
        raise ArgumentError(f"axes of {found.describe()} must be {', '.join(_AXES[rank])}, got {axes!r}")
    if axes is None and found.is_matlab and (rank == 3 or found.shape[1] in _FEW):
        axes = _MATLAB_AXES[rank]
    if axes is None:
        if rank == 4 and found.shape[1] in _FEW and found.shape[3] not in _FEW:
            raise ArgumentError(
                f"the order of the axes must be stated (axes='NCHW', 'NCWH' or 'NHWC') for {found.describe()}"
            )
        axes = _AXES[rank][0]
    sides = dict(zip(axes, found.shape, strict=True))
    channels = sides.get("C", 1)
    order = stated.channels or found.channels
    if channels in {3, 4} and not order:
        raise ArgumentError(
            f"the order of the channels must be stated (channels='RGB' or 'BGR') for {found.describe()}"
        )
    if 0 in found.shape[1:]:
        raise StoreFormatError(f"images must have pixels, got {found.describe()}")
    kind = f"pixels:{found.dtype.name}[{sides['H']},{sides['W']},{channels}]"
    return FieldSource(Field(kind), found, axes, channels in {3, 4} and order == "BGR")


def _make_candidate(found: FoundDataset) -> Candidate:
    """What a dataset holds; a column of numbers may also have axes of length 1."""
    is_column = found.form == "array" and set(found.shape[1:]) <= {1}
    try:
        field = Field("float" if found.dtype.kind == "f" else "int") if is_column else _find_field(found)
    except ArgumentError:  # raised again if the dataset is read
        field = Field("json")
    return Candidate(found.name, field, _may_be_pixels(found), shown=found.describe())


def _find_field(found: FoundDataset) -> Field:
    """Return the field of a dataset that is neither the image nor the label."""
    if found.form == "text":
        if len(found.shape) > 1:
            raise ArgumentError(f"texts must be one a record, got {found.describe()}; state fields={{...}} without it")
        return Field("text")
    if found.form == "blocks" or (found.form == "ragged" and found.dtype.name == "uint8"):
        return Field("image" if found.holds_images else "bytes")
    if found.form == "ragged":
        return Field(f"{found.dtype.name}[*]")
    if len(found.shape) == 1:
        return Field("float" if found.dtype.kind == "f" else "int")
    return Field(f"{found.dtype.name}[{','.join(map(str, found.shape[1:]))}]")


def _may_be_pixels(found: FoundDataset) -> bool:
    """Whether a dataset may be the image as pixels of usual axes; with a usual name, of any channels."""
    is_usual = not is_mask_name(found.name) and rank_name(found.name, LABEL_NAMES) is None
    if not is_usual or found.form != "array" or found.dtype.name not in _PIXELS:
        return False
    is_named = rank_name(found.name, IMAGE_NAMES) is not None
    if len(found.shape) == 4:
        return is_named or found.shape[3] in _FEW or found.shape[1] in _FEW
    return len(found.shape) == 3 and (is_named or found.dtype.name != "float32")


def _name_field(path: str) -> str:
    """The name of the field of a dataset: its path with dots."""
    name = ".".join(part for part in path.split("/") if part not in {"", ".", ".."}) or "_"
    return re.sub(r"[\x00-\x1f\x7f\\]", "_", name)


def _list(datasets: Iterable[FoundDataset]) -> str:
    found = list(datasets)
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    return ", ".join(each.describe() for each in found[:10]) + more


def _list_problems(problems: Sequence[Skipped]) -> str:
    shown = "; ".join(f"{problem.key!r}: {problem.reason}" for problem in problems[:5])
    return f" ({shown})" if shown else ""
