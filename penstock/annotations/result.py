"""What reading annotations gives: records, classes, and everything that was wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

from penstock.sample import Value

__all__ = ["AnnotationProblem", "Annotations"]


@dataclass(frozen=True, slots=True)
class AnnotationProblem:
    """One thing that is wrong in a source of annotations.

    Parameters
    ----------
    file : str
        The file, relative to the root of the source.
    line : int, optional
        Its line, from 1, where the format has lines.
    reason : str
        What must be, and what was found.
    image : str, optional
        The image that it concerns.
    effect : str
        What became of it: "object left out", "image left out" or "box clipped".
    """

    file: str
    line: int | None
    reason: str
    image: str | None = None
    effect: str = "object left out"

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.reason} ({self.effect})"


@dataclass(frozen=True, slots=True)
class Annotations(Sequence[dict[str, Value]]):
    """The annotations of a source; a sequence of its records.

    Parameters
    ----------
    format : str
        The format that was read.
    root : Path
        The folder that the paths of images are relative to.
    records : list of dict
        A dict for each image, all with the same fields, in the order of the source:

        - ``image`` (str, relative to ``root``), ``width``, ``height`` (int, pixels, of the upright picture);
        - ``boxes`` (float32, (n, 4): x0, y0, x1, y1 in pixels), ``labels`` (int64, (n,): positions in ``classes``);
        - where the source has them: ``keypoints`` (float32, (n, k, 3): x, y in pixels, and the flag of the format),
          ``instances`` (list of n run-length encodings, or None), ``area`` (float32, (n,)), ``crowd`` (int64, (n,)),
          ``mask`` (str: the path of an image of class numbers), and the format's own fields: arrays of n numbers, or
          lists of n texts for those of objects; single values for those of images.

        All are of the picture as its Exif orientation turns it, but for a mask that ``turned`` says is not.
    classes : tuple of str
        Names of the classes, by label.
    problems : tuple of AnnotationProblem
        Everything that was wrong. Nothing else was left out or changed. Above 500,000, others are counted: the last
        problem, and ``problems_not_listed`` of ``details``, say how many.
    details : mapping of str to object
        What the format says of the whole source, such as ``category_ids`` of COCO, or ``keypoint_names``; and
        ``images_without_annotations``, paths of images that no annotation names beside those that one does.
    turned : mapping of str to int
        The images that an Exif orientation turns, by their path: the orientation of their mask; 1, as a rule, if it is
        of the upright picture.
    """

    format: str
    root: Path
    records: list[dict[str, Value]]
    classes: tuple[str, ...]
    problems: tuple[AnnotationProblem, ...] = ()
    details: Mapping[str, Value] = field(default_factory=dict)
    turned: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, index: int) -> dict[str, Value]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Value]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Value] | list[dict[str, Value]]:
        return self.records[index]

    def __iter__(self) -> Iterator[dict[str, Value]]:
        return iter(self.records)

    def __repr__(self) -> str:
        objects = sum(len(record["labels"]) for record in self.records)
        return (
            f"<Annotations {self.format}: {len(self.records)} images, {objects} objects, {len(self.classes)} classes, "
            f"{len(self.problems)} problems>"
        )
