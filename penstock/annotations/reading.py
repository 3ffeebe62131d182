"""``read``: finds the format of a source of annotations, and reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.annotations.base import AnnotationFormat
from penstock.annotations.records import RecordBuilder
from penstock.annotations.result import Annotations
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError, ArgumentError, check_choice

__all__ = ["SourceLike", "read"]

SourceLike = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]
"""A folder, a file, or a mapping of ``annotations``, ``images``, ``classes`` to paths."""

ON_ERROR: Final = ("raise", "skip")
_MAX_LISTED: Final = 50


def read(
    source: SourceLike,
    format: str = "auto",  # noqa: A002  # the name that everybody expects
    images: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    *,
    classes: Sequence[str] | None = None,
    split: str | None = None,
    upright: bool | None = None,
    **options: object,
) -> Annotations:
    """Read the annotations of images.

    Parameters
    ----------
    source : str, path or mapping
        A folder, a file, or a mapping of ``annotations``, ``images`` and ``classes`` to paths.
    format : str
        The name of a format (:data:`penstock.annotations.FORMATS`), or "auto": the first that recognises the source.
    images : str or path, optional
        The folder of the images, where the format has no rule for it or the images were moved.
    on_error : {"raise", "skip"}
        Whether anything wrong is an error, or is left out and listed in ``problems``. Boxes that end outside their
        image by more than one pixel are clipped then, and listed as well.
    classes : sequence of str, optional
        Names of the classes, in the order of their labels; other classes are a problem. By default those that the
        source lists, or all names in alphabetical order.
    split : str, optional
        One of the source's splits ("train"); by default all.
    upright : bool, optional
        Whether the annotations are of pictures as their Exif orientation turns them, as nearly all tools show them
        (True), or as their rows are stored (False). By default each is of the picture whose size it has, and of the
        upright one where it has none, or both have it (a square; an orientation of 2, 3 or 4). Records are those of the
        upright pictures in any case.
    **options
        Options of the format.

    Returns
    -------
    Annotations
        Records, classes and problems.

    Raises
    ------
    ArgumentError
        If an argument is invalid, or no format recognises the source.
    AnnotationError
        If there is no such source, if it holds nothing of the format, if a file that everything depends on cannot be
        read, or, with ``on_error="raise"``, if anything is wrong: it lists what.
    OptionalPackageError
        If the format needs a package that is not installed.
    """
    from penstock.annotations import FORMATS  # which imports this module

    check_choice("on_error", on_error, ON_ERROR)
    if upright is not None and type(upright) is not bool:
        raise ArgumentError(f"upright must be True, False or None, got {upright!r:.80}")
    opened = AnnotationSource.open(source, images)
    kind: type[AnnotationFormat] = _find(opened, source) if format == "auto" else FORMATS.get(format)
    kind.refuse_unknown_options(options)
    builder = RecordBuilder(opened, classes, upright=upright)
    kind(**options).read(opened, builder, split)
    result = builder.finish(kind.name)
    is_whole = "problems_not_listed" not in result.details  # else images of other problems would be named here
    if split is None and kind.lists_images and is_whole and (unnamed := _list_unnamed(opened, result)):
        builder.details["images_without_annotations"] = unnamed
    if not result.records and not result.problems:
        raise AnnotationError(
            f"there are no annotations of the format {kind.name!r}; give another format, or the place of its files",
            source=str(opened.folder),
        )
    if on_error == "raise" and result.problems:
        raise _make_error(result, opened)
    return result


def _list_unnamed(source: AnnotationSource, found: Annotations) -> tuple[str, ...]:
    """Return the images that no annotation names, in the folders of those that are named, and below them."""
    named = {name for record in found.records for name in (record["image"], record.get("mask"))}
    named.update(problem.image for problem in found.problems)
    folders = {(source.root / record["image"]).parent for record in found.records}
    paths = [
        path
        for several in (source.image_files.values() if folders else ())
        for path in several
        if source.relative(path) not in named and (path.parent in folders or not folders.isdisjoint(path.parents))
    ]
    return tuple(map(source.relative, sorted(paths)))


def _find(opened: AnnotationSource, source: SourceLike) -> type[AnnotationFormat]:
    from penstock.annotations import FORMATS  # which imports this module

    for name in FORMATS:
        kind: type[AnnotationFormat] | None = FORMATS.try_get(name)
        if kind is not None and kind.recognises(opened):
            return kind
    raise ArgumentError(
        f"no annotation format recognises {str(source)!r:.500}; give format=, one of {', '.join(FORMATS)}, and "
        '{"annotations": ..., "images": ...} where they do not lie where the format has them'
    )


def _make_error(result: Annotations, source: AnnotationSource) -> AnnotationError:
    listed = "\n".join(f"  {problem}" for problem in result.problems[:_MAX_LISTED])
    count = len(result.problems)
    if unlisted := result.details.get("problems_not_listed"):
        count += unlisted - 1  # the last one says how many
    more = count - _MAX_LISTED
    return AnnotationError(
        f'{count:,} problems in the annotations; read with on_error="skip" to leave out what is named '
        f"here:\n{listed}" + (f"\n  ... and {more:,} more" if more > 0 else ""),
        source=str(source.root),
    )
