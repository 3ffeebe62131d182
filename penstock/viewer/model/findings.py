"""What looks wrong in a sample or a batch as the model gets it, in sentences.

Annotations and values are compared before and after a transform. Only what one sample or one batch shows is said, and
nothing where it cannot be known; :func:`penstock.check` inspects the code of a loader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, DecodeError
from penstock.sheets.annotated import Annotated
from penstock.sheets.shown_pixels import as_array, to_mask
from penstock.transforms.targets.target_forms import as_boxes
from penstock.viewer.browse.layers import JsonObject
from penstock.wording import counted

__all__ = ["find_batch_problems", "find_problems"]


def find_problems(before: Annotated | None, after: Annotated, drawn: JsonObject) -> list[str]:
    """Return what looks wrong in a sample, ``after``, of a record, ``before``; ``drawn``: the sample as JSON."""
    boxes, earlier_boxes = _get_boxes(after), _get_boxes(before)
    found: list[str] = []
    if boxes is not None:
        size = drawn.get("width", 0), drawn.get("height", 0)
        found += _find_boxes(boxes[:0] if earlier_boxes is None else earlier_boxes, boxes, size)
    for earlier, mask in zip([] if before is None else before.masks, after.masks, strict=False):
        try:
            known = np.append(np.unique(to_mask(earlier)), [0, 255])  # 255 usually belongs to no class
            new = np.setdiff1d(np.unique(to_mask(mask)), known)
        except (ArgumentError, DecodeError):
            continue
        if len(new):
            few = ", ".join(map(str, new[:5].tolist())) + (", ..." if len(new) > 5 else "")
            found.append(
                f"A mask has {counted(len(new), 'value')} that the original has not ({few}): it was interpolated, and "
                "these are no classes. Masks must be resized by nearest neighbour."
            )
    return found


def find_batch_problems(described: Sequence[JsonObject]) -> list[str]:
    """Return what looks wrong in the values of the images of a batch, as :func:`.pictures.describe_value` has them."""
    known = [values for values in described if "mean" in values]
    if not known:
        return []
    low, high = min(values["low"] for values in known), max(values["high"] for values in known)
    mean, std = (sum(values[name] for values in known) / len(known) for name in ("mean", "std"))
    said = f"values are {low:.3g} to {high:.3g}, mean {mean:.3g}, standard deviation {std:.3g}"
    is_odd = low < 0 and std > 1e-6 and (abs(mean) > 2 or not 0.2 < std < 4)
    problems = {
        "Some values of the images are not finite (NaN or infinity).": any(values["not_finite"] for values in known),
        f"The images are floats that were not scaled: {said}. Use T.Normalize, or divide by 255 in the model.":
            high > 16 and low >= 0,
        f"The images are normalised, but {said}. Mean and std may be on the wrong scale ([0, 1] or [0, 255]).": is_odd,
    }  # fmt: skip
    return [problem for problem, is_found in problems.items() if is_found]


def _get_boxes(found: Annotated | None) -> NDArray[np.float32] | None:
    try:
        return None if found is None or found.boxes is None else as_boxes(as_array(found.boxes)).reshape(-1, 4)
    except ArgumentError:
        return None


def _find_boxes(before: NDArray[np.float32], after: NDArray[np.float32], size: tuple[int, int]) -> Iterator[str]:
    were_empty, empty = ((boxes[:, 2:] <= boxes[:, :2]).any(axis=1) for boxes in (before, after))
    beyond = np.column_stack([-after[:, :2], after[:, 2:] - np.array(size)]).max(axis=1, initial=0)
    outside = (beyond > 0.5) & ~empty & all(size)  # pixels
    total = counted(len(after), "box")
    if empty.sum() > were_empty.sum():
        yield (
            f"{empty.sum()} of {total} have no area left after the crop, and stay in the sample. Add "
            "T.SanitizeBoundingBoxes to remove them with their labels."
        )
    if len(after) < len(before):
        gone = len(before) - len(after)
        yield f"{gone} of {counted(len(before), 'box')} removed, since the crop does not show enough of them."
    if outside.any():
        yield (
            f"{outside.sum()} of {total} leave the picture of {size[0]} x {size[1]}: coordinates are not clipped, or "
            "not those of this picture."
        )
