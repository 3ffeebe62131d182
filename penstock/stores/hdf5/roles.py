"""Which dataset of an HDF5 store is the image, the label, the key: what is stated, else what names and shapes say.

::

    train/jpeg   variable-length uint8 (N,)    image: encoded      names (image, x, jpeg ...), then shapes, choose;
    train/label  int64 (N,)                    label               equally good candidates are an error that lists them
    train/name   text (N,)                     key
    train/score  float32 (N,)                  field "score"       any other dataset of N records beside the image

Nothing is read here: the input is what :mod:`.hdf5.survey` found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.errors import ArgumentError, StoreFormatError
from penstock.fields.names import IMAGE_NAMES, KEY_NAMES, LABEL_NAMES, MASK_NAMES, WEAK_IMAGE_NAMES
from penstock.sample import Field, Schema
from penstock.stores.hdf5.survey import FoundDataset, Survey
from penstock.stores.writing import Skipped
from penstock.wording import counted

__all__ = ["FieldSource", "Options", "Roles", "assign_roles"]

_IMAGES: Final = frozenset({
    *IMAGE_NAMES, *(f"{name}s" for name in IMAGE_NAMES), "frame", "frames", "patch", "patches",
})  # fmt: skip
_WEAK_IMAGES: Final = frozenset(WEAK_IMAGE_NAMES)
_MASKS: Final = frozenset({*MASK_NAMES, *(f"{name}s" for name in MASK_NAMES), "seg", "depth"})
_LABELS: Final = frozenset(LABEL_NAMES)
_PIXELS: Final = ("uint8", "uint16", "float32")
_AXES: Final = {3: ("NHW", "NWH"), 4: ("NHWC", "NCHW", "NCWH")}
_MATLAB_AXES: Final = {3: "NWH", 4: "NCWH"}
_FEW: Final = (1, 3, 4)


@dataclass(frozen=True, slots=True)
class Options:
    """What a person states: the arguments of :class:`~penstock.stores.hdf5.store.Hdf5Store` of the same names."""

    image: str | None = None
    label: str | None = None
    key: str | None = None
    group: str | None = None
    fields: Mapping[str, str] | None = None
    axes: str | None = None
    channels: str | None = None


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
class Roles:
    """The fields of a store, the dataset of its keys, the number of its records, and the datasets that are unused."""

    fields: Mapping[str, FieldSource]
    key: FoundDataset | None
    count: int
    unused: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        """The schema."""
        return Schema({name: source.field for name, source in self.fields.items()})


def assign_roles(survey: Survey, options: Options) -> Roles:
    """Find what each dataset is.

    Raises ArgumentError if a dataset that is stated does not exist or does not fit, or more must be stated; the message
    lists the candidates. Raises StoreFormatError if no dataset has records.
    """
    group = (options.group or "").strip("/")
    datasets = {name: d for name, d in survey.datasets.items() if not group or name.startswith(f"{group}/")}
    if not datasets:
        within = f" in the group {group!r}" if group else ""
        raise StoreFormatError(f"this HDF5 file has no dataset of records{within}{_list_problems(survey)}")
    finder = _Finder(datasets, group, survey.problems)
    stated = dict(options.fields or {})
    named_image, named_label = stated.pop("image", None), stated.pop("label", None)
    image = finder.find_image(options.image or named_image, stated=bool(stated or named_label))
    scope = finder.get_scope(image)
    label_path = options.label if options.label is not None else named_label
    count = image.count if image is not None else finder.find_count(label_path, stated)
    finder.counted = image.describe() if image is not None else counted(count, "record")
    label = finder.find_label(label_path, count, scope, stated=options.fields is not None)
    key = finder.find_key(options.key, count, scope)
    fields: dict[str, FieldSource] = {}
    if image is not None:
        fields["image"] = _describe_image(image, options)
    if label is not None:
        fields["label"] = _describe_label(label, survey.classes)
    taken = {dataset.name for dataset in (image, label, key) if dataset is not None}
    if options.fields is None:
        others = {d.name: d for d in scope.values() if d.name not in taken and d.count == count}
        prefix = len(finder.scope_prefix)
        fields |= {_name_field(name[prefix:], fields): _describe_other(d) for name, d in others.items()}
    else:
        fields |= {name: _describe_other(finder.get(path, name, count)) for name, path in stated.items()}
    if options.fields is None and label_path != "":
        _refuse_other_counts(datasets, count, finder.counted)
    if not fields:
        raise StoreFormatError(f"this HDF5 file has no dataset of images or labels{_list_problems(survey)}")
    used = taken | {source.dataset.name for source in fields.values()}
    return Roles(fields, key, count, tuple(name for name in survey.datasets if name not in used))


def _refuse_other_counts(datasets: Mapping[str, FoundDataset], count: int, counted_by: str) -> None:
    """Refuse a file beside the others of which no dataset has as many records as these."""
    by_file: dict[str, list[FoundDataset]] = {}
    for found in datasets.values():
        by_file.setdefault(found.file, []).append(found)
    for beside in by_file.values():
        if all(found.count != count for found in beside):
            raise ArgumentError(
                f"files that are read side by side must have equally many records, got {counted_by}, and "
                f"{_list(beside)}; state fields={...} to leave that file out"
            )


class _Finder:
    """Finds datasets by what is stated, else by name and shape."""

    def __init__(self, datasets: Mapping[str, FoundDataset], group: str, problems: Sequence[Skipped]) -> None:
        self._datasets, self._group, self._problems = datasets, group, problems
        self.scope_prefix = f"{group}/" if group else ""
        self.counted = ""

    def get(self, path: str, what: str, count: int | None = None) -> FoundDataset:
        """The dataset at a path that was stated: in the group, or from the root."""
        name = path.strip("/")
        found = self._datasets.get(f"{self._group}/{name}" if self._group else name) or self._datasets.get(name)
        if found is None:
            names = {name, f"{self._group}/{name}"}
            why = next((f": {problem.reason}" for problem in self._problems if problem.key in names), "")
            raise ArgumentError(f"{what} must be one of {_list(self._datasets.values())}, got {path!r}{why}")
        if count is not None and found.count != count:
            raise ArgumentError(f"{what} must be a dataset of {count} records ({self.counted}), got {found.describe()}")
        return found

    def find_image(self, path: str | None, *, stated: bool) -> FoundDataset | None:
        if path is not None:
            return self.get(path, "image")
        ranked = {name: rank for name, d in self._datasets.items() if (rank := _rank_image(d)) is not None}
        if stated or not ranked:
            return None
        best = [self._datasets[name] for name, rank in ranked.items() if rank == min(ranked.values())]
        if len(best) > 1:
            raise ArgumentError(
                f"which dataset has the images must be stated (image='...', or group='...'): {_list(best)}"
            )
        return best[0]

    def get_scope(self, image: FoundDataset | None) -> Mapping[str, FoundDataset]:
        """The datasets beside and below the image; all of them where those are none."""
        if image is not None:
            parent = image.name.rpartition("/")[0]
            prefix = f"{parent}/" if parent else ""
            beside = {name: d for name, d in self._datasets.items() if name.startswith(prefix)}
            if any(d.count == image.count and d is not image for d in beside.values()):
                self.scope_prefix = prefix
                return beside
        return self._datasets

    def find_count(self, label: str | None, stated: Mapping[str, str]) -> int:
        """The number of records of a store without images: that of the label, or the one that all datasets have."""
        if label is not None or stated:
            path = label if label is not None else next(iter(stated.values()))
            return self.get(path, "label" if label is not None else next(iter(stated))).count
        counts = {d.count for d in self._datasets.values()}
        if len(counts) > 1:
            raise ArgumentError(
                f"which datasets have the records must be stated (image='...', group='...' or fields={{...}}): "
                f"{_list(self._datasets.values())}"
            )
        return counts.pop()

    def find_label(
        self, path: str | None, count: int, scope: Mapping[str, FoundDataset], *, stated: bool
    ) -> FoundDataset | None:
        if path is not None:
            return self.get(path, "label", count) if path else None
        if stated:
            return None
        ranked = {name: rank for name, d in scope.items() if (rank := _rank_label(d)) is not None}
        best = [scope[name] for name, rank in ranked.items() if rank == min(ranked.values())]
        fitting = [d for d in best if d.count == count]
        if best and not fitting:
            raise ArgumentError(
                f"images and labels must be equally many, got {self.counted}, and the labels {_list(best)}; state "
                "label='...', or label='' for none"
            )
        if len(fitting) > 1:
            raise ArgumentError(f"which dataset has the labels must be stated (label='...'): {_list(fitting)}")
        return fitting[0] if fitting else None

    def find_key(self, path: str | None, count: int, scope: Mapping[str, FoundDataset]) -> FoundDataset | None:
        if path is not None:
            found = self.get(path, "key", count) if path else None
            if found is not None and not _is_key(found):
                raise ArgumentError(f"key must be a dataset of texts or integers, got {found.describe()}")
            return found
        for usual in KEY_NAMES:
            names = {usual, f"{usual}s"}
            found_keys = [d for name, d in scope.items() if _last(name) in names and d.count == count and _is_key(d)]
            if len(found_keys) > 1:
                raise ArgumentError(f"which dataset has the keys must be stated (key='...'): {_list(found_keys)}")
            if found_keys:
                return found_keys[0]
        return None


def _describe_image(found: FoundDataset, options: Options) -> FieldSource:
    if _is_encoded(found):
        return FieldSource(Field("image"), found)
    rank = len(found.shape)
    if found.form != "array" or found.dtype.name not in _PIXELS or rank not in _AXES:
        raise ArgumentError(
            f"image must be a dataset of encoded images (variable-length uint8) or of pixels ({', '.join(_PIXELS)}; "
            f"axes {', '.join(a for known in _AXES.values() for a in known)}), got {found.describe()}"
        )
    axes = options.axes
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
    if options.channels not in {None, "RGB", "BGR"}:
        raise ArgumentError(f"channels must be 'RGB' or 'BGR', got {options.channels!r}")
    order = options.channels or found.channels
    if channels in {3, 4} and not order:
        raise ArgumentError(
            f"the order of the channels must be stated (channels='RGB' or 'BGR') for {found.describe()}"
        )
    if 0 in found.shape[1:]:
        raise StoreFormatError(f"images must have pixels, got {found.describe()}")
    kind = f"pixels:{found.dtype.name}[{sides['H']},{sides['W']},{channels}]"
    return FieldSource(Field(kind), found, axes, channels in {3, 4} and order == "BGR")


def _describe_label(found: FoundDataset, classes: tuple[str, ...]) -> FieldSource:
    if found.form == "array" and set(found.shape[1:]) <= {1}:
        if found.dtype.kind == "f":
            return FieldSource(Field("float"), found)
        return FieldSource(Field("label", found.classes or classes), found)
    return _describe_other(found)


def _describe_other(found: FoundDataset) -> FieldSource:
    tokens = _tokens(found.name)
    if found.form == "text":
        if len(found.shape) > 1:
            raise ArgumentError(f"texts must be one a record, got {found.describe()}; state fields={{...}} without it")
        return FieldSource(Field("text"), found)
    if found.form == "blocks" or (found.form == "ragged" and found.dtype.name == "uint8"):
        return FieldSource(Field("mask" if tokens & _MASKS else "bytes"), found)
    if found.form == "ragged":
        return FieldSource(Field(f"{found.dtype.name}[*]"), found)
    if len(found.shape) == 1:
        return FieldSource(Field("float" if found.dtype.kind == "f" else "int"), found)
    return FieldSource(Field(f"{found.dtype.name}[{','.join(map(str, found.shape[1:]))}]"), found)


def _rank_image(found: FoundDataset) -> int | None:
    """How well a dataset fits as the images: 0 is best, None not at all."""
    tokens = _tokens(found.name)
    if tokens & (_MASKS | _LABELS):
        return None
    last = _last(found.name)
    ranks = (last in _IMAGES, bool(tokens & _IMAGES), last in _WEAK_IMAGES, bool(tokens & _WEAK_IMAGES))
    rank = ranks.index(True) if True in ranks else len(ranks)
    if _is_encoded(found):
        return rank if found.form != "text" else None
    if found.form != "array" or found.dtype.name not in _PIXELS:
        return None
    if len(found.shape) == 4:
        is_usual = found.shape[3] in _FEW or found.shape[1] in _FEW
        return rank if is_usual or rank < 2 else None
    is_gray = len(found.shape) == 3 and (found.dtype.name != "float32" or rank < 2)
    return rank if is_gray else None


def _rank_label(found: FoundDataset) -> int | None:
    tokens = _tokens(found.name)
    if not tokens & _LABELS or found.form not in {"array", "text"} or found.dtype.kind == "c":
        return None
    if len(found.shape) > 2 and not set(found.shape[1:]) <= {1}:
        return None
    return 0 if _last(found.name) in _LABELS else 1


def _is_encoded(found: FoundDataset) -> bool:
    if found.form == "ragged":
        return found.dtype.name == "uint8" and len(found.shape) == 1
    return found.form == "blocks" and len(found.shape) == 1


def _is_key(found: FoundDataset) -> bool:
    return len(found.shape) == 1 and (found.form == "text" or (found.form == "array" and found.dtype.kind in "iu"))


def _last(name: str) -> str:
    return name.rpartition("/")[2].lower()


def _tokens(name: str) -> set[str]:
    """The words of the last part of a path: ``train_set_x`` is train, set, x."""
    last = name.rpartition("/")[2]
    return {last.lower(), *re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", last).lower())}


def _name_field(path: str, taken: Mapping[str, object]) -> str:
    """The name of the field of a dataset: its path with dots."""
    name = ".".join(part for part in path.split("/") if part not in {"", ".", ".."}) or "_"
    name = re.sub(r"[\x00-\x1f\x7f\\]", "_", name)
    while name in taken:
        name += "_"
    return name


def _list(datasets: Iterable[FoundDataset]) -> str:
    found = list(datasets)
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    return ", ".join(each.describe() for each in found[:10]) + more


def _list_problems(survey: Survey) -> str:
    shown = "; ".join(f"{problem.key!r}: {problem.reason}" for problem in survey.problems[:5])
    return f" ({shown})" if shown else ""
