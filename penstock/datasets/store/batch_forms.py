"""The forms of a batch that models of detection take.

====================  =============================================================================================
``"torchvision"``     ``(images, targets)``: a list of images, and a list of dicts of the other fields
``"rows"``            ``(images, rows, ...)``: stacked images, and for each a float32 array (n, 5): box and label
``"ultralytics"``     a dict: ``img``, ``bboxes``, ``cls``, ``batch_idx``, and the other fields
``"nested"``          ``(NestedTensor, targets)``: padded images with a mask, as DETR takes them
====================  =============================================================================================

How a batch gets its form: :mod:`penstock.datasets.store.batch_assembly`. Which field is what:
:mod:`penstock.datasets.store.form_fields`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.errors import ArgumentError, check_choice

__all__ = ["BatchForm"]

_BOXES: Final = {"torchvision": "xyxy", "rows": "xyxy", "ultralytics": "cxcywhn", "nested": "cxcywhn"}
"""The forms, and the format of boxes in each, unless another is asked for."""

_FORMATS: Final = ("xyxy", "xyxyn", "xywh", "xywhn", "cxcywh", "cxcywhn")


@dataclass(frozen=True, slots=True)
class BatchForm:
    """A form of batches for detection, with its options.

    Parameters
    ----------
    name : {"torchvision", "rows", "ultralytics", "nested"}
        Which form; see :class:`penstock.StoreDataset`.
    boxes : {"xyxy", "xywh", "cxcywh", "xyxyn", "xywhn", "cxcywhn"}, optional
        What the four numbers of a box are: two corners; the upper left corner, width and height; the centre, width
        and height. In pixels; with ``n``, divided by width and height of the image before it is padded. Default:
        "xyxy" for "torchvision" and "rows", "cxcywhn" for "ultralytics" and "nested", as these models take them.
    multiple : int
        For "nested": height and width of padded images are multiples of it.
    padding : float
        For "nested": the value of padding.
    first_label : int, optional
        The label of a store's first class in batches: 1 for models whose class 0 is the background, as torchvision's
        Faster, Mask and Keypoint R-CNN and SSD; 0 for others. Default: labels are as stored, and "torchvision" warns
        where the first class has a name that is not that of a background.
    keep_crowds : bool
        Whether objects whose ``crowd`` is not 0 stay in batches. Default: they are left out with all their values, as
        torchvision's reference training does, if the samples have the field ``crowd`` of the store; a store with such
        objects is warned of if they have not.

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    """

    name: str
    boxes: str | None = None
    multiple: int = 1
    padding: float = 0
    first_label: int | None = None
    keep_crowds: bool = False

    def __post_init__(self) -> None:
        check_choice("batch_form", self.name, _BOXES)
        check_choice("boxes", self.boxes, _FORMATS, optional=True)
        if type(self.multiple) is not int or self.multiple < 1:
            raise ArgumentError(f"multiple must be an int of at least 1, got {self.multiple!r:.80}")
        if self.first_label is not None and (type(self.first_label) is not int or self.first_label < 0):
            raise ArgumentError(f"first_label must be a non-negative int, got {self.first_label!r:.80}")

    @property
    def box_format(self) -> str:
        """The format of boxes, given or the form's own."""
        return self.boxes or _BOXES[self.name]

    @property
    def takes_sizes(self) -> bool:
        """Whether images of a batch may have several sizes; then the targets of each sample are a dict."""
        return self.name in {"torchvision", "nested"}
