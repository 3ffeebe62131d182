"""What looks wrong in a sample or a batch as the model gets it, in sentences.

Annotations, pictures and values are compared before and after a transform. Only what one sample or one batch shows is
said, and nothing where it cannot be known; :func:`penstock.check` inspects the code of a loader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, DecodeError
from penstock.sample import Array
from penstock.transforms.targets.target_forms import as_boxes
from penstock.view.annotated import Annotated
from penstock.view.shown_pixels import as_array, to_mask
from penstock.wording import counted

__all__ = ["find_batch_problems", "find_problems"]

_ENLARGED: Final = 3.0
"""Pixels of the result per pixel of the original, across and down, above which an image is blurred."""
_EDGE: Final = 0.5
"""Pixels by which a box may leave the picture."""
_IGNORED: Final = 255
"""The value of mask pixels that usually belong to no class."""
_FAR_MEAN, _LEAST_STD, _MOST_STD = 2.0, 0.2, 4.0


def find_problems(
    before: Annotated | None, after: Annotated | None, enlargement: float, pixels: Sequence[NDArray[np.uint8]]
) -> list[str]:
    """What looks wrong in a sample, ``after``, of a record, ``before``; either may be None if it is not known.

    ``enlargement``: pixels of the sample per pixel of the original, across and down; 0 where it is not known.
    ``pixels``: what the sample shows of the original, and the sample, as uint8 RGB; empty where they are not known.
    """
    found: list[str] = []
    if after is not None:
        found += [*_find_boxes(before, after), *_find_labels(after), *_find_masks(before, after)]
    if enlargement > _ENLARGED:
        found.append(
            f"The part of the original that is shown is enlarged {enlargement:.1f} times, which blurs it. Use a larger "
            "crop (scale=), or a smaller output."
        )
    if len(pixels) == 2 and _are_exchanged(*pixels):
        found.append("The red and blue channels look exchanged: the model gets BGR where the original is RGB.")
    return found


def find_batch_problems(values: Array) -> list[str]:
    """What looks wrong in the values of the images of a batch, of any shape."""
    if values.dtype.kind != "f" or not values.size:
        return []
    finite = values[np.isfinite(values)].astype(np.float64)
    found = []
    if finite.size < values.size:
        found.append(f"{counted(values.size - finite.size, 'value')} of the images are not finite (NaN or infinity).")
    if not finite.size:
        return found
    low, high, mean, std = float(finite.min()), float(finite.max()), float(finite.mean()), float(finite.std())
    said = f"values are {low:.3g} to {high:.3g}, mean {mean:.3g}, standard deviation {std:.3g}"
    if high > 16 and low >= 0:
        found.append(
            f"The images are floats that were not scaled: {said}. Use T.Normalize, or divide by 255 in the model."
        )
    elif low < 0 and std > 1e-6 and (abs(mean) > _FAR_MEAN or not _LEAST_STD < std < _MOST_STD):
        found.append(
            f"The images are normalised, but {said}: far from mean 0 and standard deviation 1. Mean and std may be on "
            "the wrong scale ([0, 1] or [0, 255]), or applied twice."
        )
    return found


def _find_boxes(before: Annotated | None, after: Annotated) -> Iterator[str]:
    boxes = _get_boxes(after)
    if boxes is None:
        return
    at_first, size = None if before is None else _get_boxes(before), _get_size(after)
    empty = (boxes[:, 2:] <= boxes[:, :2]).any(axis=1)
    was_empty = 0 if at_first is None else int((at_first[:, 2:] <= at_first[:, :2]).any(axis=1).sum())
    if int(empty.sum()) > was_empty:
        yield (
            f"{int(empty.sum())} of {counted(len(boxes), 'box')} have no area left after the crop, and stay in "
            "the sample. Add T.SanitizeBoundingBoxes to remove them with their labels."
        )
    if at_first is not None and len(boxes) < len(at_first):
        gone = len(at_first) - len(boxes)
        yield f"{gone} of {counted(len(at_first), 'box')} removed, since the crop does not show enough of them."
    if size is not None:
        beyond = np.column_stack([-boxes[:, :2], boxes[:, 2:] - np.array(size)]).max(axis=1, initial=0)
        count = int(np.sum((beyond > _EDGE) & ~empty))
        if count:
            yield (
                f"{count} of {counted(len(boxes), 'box')} leave the picture of {size[0]} x {size[1]}: coordinates are "
                "not clipped, or not those of this picture."
            )


def _find_labels(after: Annotated) -> Iterator[str]:
    classes, label = after.label_classes, after.label
    if classes and label is not None and not 0 <= label < len(classes):
        yield f"The label {label} is not one of {len(classes)} classes (0 to {len(classes) - 1})."
    names, numbers = after.object_classes, after.numbers
    if names and numbers is not None and numbers.size:
        wrong = np.unique(numbers[(numbers < 0) | (numbers >= len(names))])
        if len(wrong):
            yield f"Classes of objects must be in 0 to {len(names) - 1}, got {_list_few(wrong)}."


def _find_masks(before: Annotated | None, after: Annotated) -> Iterator[str]:
    for number, mask in enumerate(after.masks):
        values = _get_mask(mask)
        earlier = None if before is None or number >= len(before.masks) else _get_mask(before.masks[number])
        if values is None or earlier is None:
            continue
        new = np.setdiff1d(np.unique(values), np.append(np.unique(earlier), [0, _IGNORED]))
        if len(new):
            yield (
                f"A mask has {counted(len(new), 'value')} that the original has not ({_list_few(new)}): it was "
                "interpolated, and these are no classes. Masks must be resized by nearest neighbour."
            )


def _get_boxes(found: Annotated) -> NDArray[np.float32] | None:
    try:
        return None if found.boxes is None else as_boxes(as_array(found.boxes)).reshape(-1, 4)
    except ArgumentError:
        return None


def _get_mask(mask: object) -> NDArray[np.int64] | None:
    try:
        return to_mask(mask)
    except (ArgumentError, DecodeError):
        return None


def _get_size(found: Annotated) -> tuple[int, int] | None:
    """Width and height of the image of a sample; None where it is encoded or no array."""
    shape: tuple[int, ...] = getattr(found.image, "shape", ())
    if len(shape) not in {2, 3}:
        return None
    height, width = shape[1:] if len(shape) == 3 and shape[0] <= 4 < min(shape[1:]) else shape[:2]
    return int(width), int(height)


def _are_exchanged(original: NDArray[np.uint8], sample: NDArray[np.uint8]) -> bool:
    """Whether the mean colour of a picture is that of the original with red and blue exchanged."""
    there, here = original.reshape(-1, 3).mean(axis=0), sample.reshape(-1, 3).mean(axis=0)
    straight, exchanged = np.abs(here - there).max(), np.abs(here[::-1] - there).max()
    return bool(straight > 16 and exchanged < straight / 4)


def _list_few(values: NDArray[np.int64]) -> str:
    shown = ", ".join(map(str, values[:5].tolist()))
    return f"{shown}, ..." if len(values) > 5 else shown
