"""Names that people give to images, labels and keys, in order of preference: the same for all containers.

A store that must find out which column, dataset or value is meant goes through these names, first to last. What a
column must hold besides, such as numbers or texts, is known by the store. Names are compared in lower case.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BOX_NAMES", "IMAGE_NAMES", "KEY_NAMES", "LABEL_NAMES", "MASK_NAMES", "WEAK_IMAGE_NAMES"]

IMAGE_NAMES: Final = ("image", "img", "jpeg", "jpg", "png", "webp", "picture", "photo", "pixels")
"""The image that transforms are applied to."""
WEAK_IMAGE_NAMES: Final = ("x", "data")
"""Names of images, and of other values as well: used after :data:`IMAGE_NAMES`."""
LABEL_NAMES: Final = (
    "label", "labels", "class", "class_id", "cls", "target", "targets", "y", "category", "category_id",
)  # fmt: skip
"""The class of a record, or its value."""
KEY_NAMES: Final = (
    "__key__", "key", "img_name", "image_name", "imgname", "filename", "file_name", "name", "path", "file", "image_id",
    "id",
)  # fmt: skip
"""The name of a record."""
MASK_NAMES: Final = ("mask", "segmentation")
"""Images that are no pictures: a class in each pixel."""
BOX_NAMES: Final = ("bbox", "bboxes", "boxes", "box")
"""Arrays of boxes."""
