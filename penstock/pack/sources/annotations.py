"""Images with annotations as a source: encoded images as they are, and boxes, classes, points and masks beside them.

::

    ps.pack("photos", dst, annotations="labels", format="voc")   AnnotationsSource ──read──> Annotations ──> records
    ps.pack(penstock.annotations.read(...), dst)                                           Annotations ──> records
    ps.pack(torchvision.datasets.VOCDetection(...), dst)         its files       ──read──> Annotations ──> records

The key of a record is the path of its image below the root of the annotations.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

import xxhash

from penstock.annotations import AnnotationProblem, Annotations, SourceLike, read
from penstock.annotations.coco.files import CocoFile
from penstock.annotations.coco.format import CocoFormat
from penstock.annotations.records import RecordBuilder
from penstock.annotations.source import AnnotationSource
from penstock.errors import ArgumentError, PackError
from penstock.pack.sources.annotation_fields import AnnotationFields
from penstock.pack.sources.base import Source, SourceOptions
from penstock.sample import DatasetLike, Index, Value
from penstock.stores.common.keys import KeyList
from penstock.stores.location import Location
from penstock.stores.writing import Skipped
from penstock.wording import counted

__all__ = ["AnnotatedImages"]

_MAX_NAMED: Final = 1000
_TORCHVISION: Final = ("VOCDetection", "CocoDetection")


@dataclass(frozen=True, slots=True)
class AnnotatedImages:
    """What a caller of :func:`penstock.pack` says about annotations; see there."""

    images: str | os.PathLike[str] | None  # the folder of the images; None where the annotations say where they are
    annotations: SourceLike  # as for :func:`penstock.annotations.read`
    format: str = "auto"  # the format, or "auto"
    split: str | None = None  # one of its splits
    options: Mapping[str, object] = field(default_factory=dict)  # options of the format
    upright: bool | None = None  # which pictures they are of, if that is said

    def read(self, classes: Sequence[str] | None) -> Annotations:
        """Return the annotations, with everything that is wrong in them listed."""
        return read(
            self.annotations, self.format, self.images, "skip",
            classes=classes, split=self.split, upright=self.upright, **self.options,
        )  # fmt: skip

    @property
    def path(self) -> Path:
        """A path that names the source."""
        given = self.annotations
        first = given.get("annotations") or given["images"] if isinstance(given, Mapping) else given
        return Path(os.fspath(first))


class AnnotationsSource(Source):
    """Images and their annotations.

    Parameters
    ----------
    found : Annotations
        The annotations.
    path : Path
        Names the source.
    is_read_here : bool
        Whether the caller has not seen the problems yet; then they are refused unless ``on_error="skip"``.
    """

    def __init__(self, found: Annotations, path: Path, *, is_read_here: bool) -> None:
        self.location = Location.from_path("annotations", path) if is_read_here else None
        self.url = str(path)
        self._records = found.records
        self.problems = tuple(map(_describe_problem, found.problems))
        self.unreadable = self.problems if is_read_here else ()
        self.problems += tuple(_list_unnamed(found.details.get("images_without_annotations", ())))
        if not found.records and found.problems:
            raise PackError(
                f"there are no images with annotations to pack; the first of {len(found.problems):,} problems: "
                f"{found.problems[0]}",
                store=self.url,
            )
        self._fields = AnnotationFields.of(found)
        self.schema = self._fields.schema
        self.total = len(found.records)
        self.keys = KeyList.from_names(record["image"] for record in found.records)

    @classmethod
    def recognises(cls, src: object) -> bool:
        """Recognise ``annotations=`` of :func:`penstock.pack`, read annotations, and datasets of torchvision."""
        return isinstance(src, AnnotatedImages | Annotations) or _find_torchvision(src) is not None

    @classmethod
    def open(cls, src: DatasetLike, options: SourceOptions) -> Self:
        """Read the annotations."""
        options.refuse_others(["classes"], "annotations, whose records have their fields")
        if isinstance(src, AnnotatedImages):
            return cls(src.read(options.classes), src.path, is_read_here=True)
        if isinstance(src, Annotations):
            if options.classes is not None and tuple(options.classes) != src.classes:
                raise ArgumentError("classes must be given to penstock.annotations.read; these annotations are read")
            return cls(src, src.root, is_read_here=False)
        made = _read_voc if _find_torchvision(src) == "VOCDetection" else _read_coco
        found, path = made(src, options.classes)
        return cls(found, path, is_read_here=True)

    def load(self, token: Index) -> Mapping[str, Value]:
        """Read the image of a record, and its mask."""
        return self._fields.convert(self._records[token])

    def digest(self) -> str:
        """Hash all values of all records, and sizes and times of change of images and masks."""
        state = xxhash.xxh3_128(json.dumps(self.schema.to_json()).encode())
        for record in self._records:
            for name, value in record.items():
                state.update(f"{name}\0".encode(errors="surrogatepass"))
                state.update(value.tobytes() if hasattr(value, "tobytes") else repr(value).encode("utf-8", "replace"))
            for name in self.schema.blobs:
                if record[name] is not None:
                    state.update(_stamp(self._fields.root / record[name]))
        return state.hexdigest()


def _describe_problem(problem: AnnotationProblem) -> Skipped:
    where = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
    return Skipped(where, f"{problem.reason} ({problem.effect})")


def _list_unnamed(names: Sequence[str]) -> Iterator[Skipped]:
    """Yield the images that no annotation names; of very many, some are named and the others counted."""
    yield from (Skipped(name, "an image that no annotation names") for name in names[:_MAX_NAMED])
    if len(names) > _MAX_NAMED:
        yield Skipped("*", f"{counted(len(names) - _MAX_NAMED, 'more image')} that no annotation names")


def _stamp(path: Path) -> bytes:
    """Size and time of change of a file; that it is missing is said when it is read."""
    try:
        seen = path.stat()
    except OSError:
        return b"missing"
    return f"{seen.st_size}\0{seen.st_mtime_ns}\0".encode()


def _find_torchvision(src: object) -> str | None:
    """Return the class of torchvision that a dataset is of.

    It is None if it has transforms, whose results are to be packed.
    """
    if any(getattr(src, name, None) is not None for name in ("transform", "target_transform", "transforms")):
        return None
    names = (each.__name__ for each in type(src).__mro__ if each.__module__.partition(".")[0] == "torchvision")
    return next((name for name in names if name in _TORCHVISION), None)


def _read_voc(dataset: DatasetLike, classes: Sequence[str] | None) -> tuple[Annotations, Path]:
    """Return the files of a ``VOCDetection``, in its order."""
    folder = Path(dataset.targets[0]).absolute().parent.parent
    found = read(folder, "voc", on_error="skip", classes=classes, split=dataset.image_set)
    by_path = {found.root / record["image"]: record for record in found.records}
    paths = [Path(path).absolute() for path in dataset.images]
    return replace(found, records=[by_path[path] for path in paths if path in by_path]), folder


def _read_coco(dataset: DatasetLike, classes: Sequence[str] | None) -> tuple[Annotations, Path]:
    """Return the content of a ``CocoDetection``, which does not say where its file is, with paths below its folder."""
    folder = Path(dataset.root).absolute()
    source = AnnotationSource(folder, folder, folder, None)
    builder = RecordBuilder(source, classes)
    file = CocoFile.of(folder / "annotations.json")
    CocoFormat().read_contents(source, builder, [(file, dataset.coco.dataset)])
    found = builder.finish(CocoFormat.name)
    by_id = {record["id"]: record for record in found.records}
    return replace(found, records=[by_id[number] for number in dataset.ids if number in by_id]), folder
