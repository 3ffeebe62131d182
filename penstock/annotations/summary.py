"""A summary of annotations: images, objects by class, and problems by reason and by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from penstock.annotations.result import AnnotationProblem, Annotations
from penstock.wording import counted, generalise

__all__ = ["AnnotationSummary"]

_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class AnnotationSummary:
    """What a source of annotations has, and what is wrong in it."""

    format: str  # the format that was read
    root: str  # the folder
    images: int
    objects: int
    """``images`` and ``objects``: how many can be used."""
    empty: int  # how many of the images have no objects
    classes: dict[str, tuple[int, int]]
    """By name, the number of objects and of images that have one, in the order of the labels."""
    fields: tuple[str, ...]  # the other fields of the records
    problems: tuple[AnnotationProblem, ...]  # everything that is wrong
    turned: int = 0  # how many of the images an Exif orientation turns
    unnamed: tuple[str, ...] = ()  # images that no annotation names

    @classmethod
    def of(cls, found: Annotations) -> AnnotationSummary:
        """Count images, objects and classes of annotations."""
        labels = [record["labels"] for record in found.records]
        empty = [np.zeros(0, np.int64)]
        objects = np.bincount(np.concatenate(labels or empty), minlength=len(found.classes)).tolist()
        seen = np.concatenate([np.unique(each) for each in labels] or empty)
        images = np.bincount(seen, minlength=len(found.classes)).tolist()
        usual = {"image", "width", "height", "boxes", "labels"}
        return cls(
            found.format,
            str(found.root),
            len(found.records),
            sum(map(len, labels)),
            sum(not len(each) for each in labels),
            {name: (objects[at], images[at]) for at, name in enumerate(found.classes)},
            tuple(name for name in (found.records[0] if found.records else ()) if name not in usual),
            found.problems,
            len(found.turned),
            tuple(found.details.get("images_without_annotations", ())),
        )

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def reasons(self) -> dict[str, int]:
        """How often each reason occurs, with its effect, the most frequent first; numbers and names are left out."""
        counts = Counter(f"{generalise(each.reason)} ({each.effect})" for each in self.problems)
        return dict(counts.most_common())

    @property
    def files(self) -> dict[str, int]:
        """The number of problems of each file, the largest first."""
        return dict(Counter(each.file for each in self.problems).most_common())

    def to_json(self) -> dict[str, object]:
        """Convert to dicts, lists, strings and numbers."""
        return {
            "ok": self.ok,
            "format": self.format,
            "root": self.root,
            "images": self.images,
            "empty": self.empty,
            "turned": self.turned,
            "objects": self.objects,
            "classes": [
                {"name": name, "objects": objects, "images": images} for name, (objects, images) in self.classes.items()
            ],
            "fields": list(self.fields),
            "images_without_annotations": list(self.unnamed),
            "reasons": self.reasons,
            "files": self.files,
            "problems": [asdict(each) for each in self.problems],
        }

    def lines(self) -> Iterator[str]:
        """Yield the summary as text, line by line."""
        yield f"{self.root}: {self.format}"
        yield f"  images     {self.images:,}, {self.empty:,} of them without objects"
        if self.turned:
            yield f"  turned     {self.turned:,} by an Exif orientation: boxes are those of upright pictures"
        if self.unnamed:
            yield f"  unnamed    {len(self.unnamed):,} more that no annotation names, such as {self.unnamed[0]}"
        yield f"  objects    {self.objects:,} of {counted(len(self.classes), 'class')}"
        if self.fields:
            yield f"  fields     {', '.join(self.fields)}"
        width = max([5, *(len(name) for name in self.classes)])
        if self.classes:
            yield f"  {'class'.ljust(width)}  {'objects':>10}  {'images':>10}"
        for name, (objects, images) in self.classes.items():
            yield f"  {name.ljust(width)}  {objects:>10,}  {images:>10,}"
        if self.ok:
            yield "  nothing wrong"
            return
        yield f"  {counted(len(self.problems), 'problem')} in {counted(len(self.files), 'file')}"
        yield from _list_counts(self.reasons)
        yield "  files with the most problems"
        yield from _list_counts(self.files)
        yield "  problems"
        yield from (f"    {each}" for each in self.problems[:_LISTED])
        yield from _more(len(self.problems))


def _list_counts(counts: dict[str, int]) -> Iterator[str]:
    for what, count in list(counts.items())[:_LISTED]:
        yield f"    {count:>8,}  {what}"
    yield from _more(len(counts))


def _more(count: int) -> Iterator[str]:
    if count > _LISTED:
        yield f"    ... and {count - _LISTED:,} more"
