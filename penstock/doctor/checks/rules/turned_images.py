"""Rule turned-images: images that an Exif orientation turns, and boxes of which it is not said if it turns them too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.datasets.store.dataset import StoreDataset
from penstock.datasets.store.image_transforms import as_pipeline
from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.subject import Subject
from penstock.errors import PenstockError
from penstock.sample import tree_leaves
from penstock.transforms.decoding.decode import MAX_PIXELS, Decode, read_orientations

__all__ = ["find"]


def find(subject: Subject) -> Iterator[Finding]:
    """Find turned images among some of each store whose boxes follow a Decode that is not told what to do."""
    for held in subject.graph.objects if subject.samples else ():
        if isinstance(held.value, StoreDataset) and (count := _count_turned(held.value, subject.samples)):
            text = (
                f"An Exif orientation turns {count} of {min(subject.samples, len(held.value))} images. Decode() gives "
                "them as their rows are stored, and most programs of annotation show them upright: boxes may lie "
                "beside their objects."
            )
            advice = (
                "Pack with upright=True if boxes are those of upright pictures, or write Decode(orient=True); with "
                "upright=False, or Decode(orient=False), if they are those of the stored rows."
            )
            yield Finding("turned-images", "warning", held.path, text, advice)


def _count_turned(dataset: StoreDataset, samples: int) -> int:
    """Return how many of some images are turned, where their boxes may not be."""
    pipeline = as_pipeline(dataset.transform)
    decode = pipeline.ops[0] if pipeline is not None and pipeline.ops else None
    if not isinstance(decode, Decode) or decode.orient is not None or dataset.upright is not None:
        return 0
    image = next((name for name, each in dataset.store.schema.fields.items() if each.kind == "image"), None)
    if image is None or not {"boxes", "keypoints"} & {*tree_leaves(dataset.kinds)}:
        return 0
    indices = np.unique(np.linspace(0, len(dataset) - 1, min(samples, len(dataset))).astype(np.int64))
    try:
        images = [each for each in dataset.store.blobs(image, indices) if each is not None]
        return int((read_orientations(images, MAX_PIXELS) != 1).sum())
    except PenstockError:  # rule sample reports it
        return 0
