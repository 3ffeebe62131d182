"""penstock from a pack, in batches of the form "rows"; mosaics in processes that stay, as those of Ultralytics."""

import tempfile
from pathlib import Path

import numpy as np
from serve import BATCH, WORKERS, serve
from yolo_recipe import FILL, FLIP, HUE, SATURATION, SCALE, SIZE, TRANSLATE, VALUE

import penstock as ps
from penstock import transforms as T

FIELDS = {"image": "image", "boxes": "boxes", "labels": "labels"}


def pack(files):
    """A pack of the pictures with their boxes."""
    folder = Path(files[0]).parent.parent
    target = Path(tempfile.mkdtemp()) / "boxes.lmdb"
    ps.pack(None, target, annotations=str(folder), format="yolo", index="none")
    return ps.open(target)


def letterboxed(store):
    pipeline = [T.Decode(), T.Letterbox(SIZE), T.ToLayout("CHW", "uint8")]
    return ps.StoreDataset(store, FIELDS, pipeline, batch_form="rows", index=None)


def mosaics(store):
    affine = T.RandomAffine(
        0, translate=(TRANSLATE / 2,) * 2, scale=(1 - SCALE, 1 + SCALE), filter="bilinear", fill=FILL
    )
    sane = T.SanitizeBoundingBoxes(min_size=2, min_visible=0.1)
    colours = T.RandomHSV(HUE, SATURATION, VALUE)
    ops = [affine, T.CenterCrop(SIZE), sane, T.HorizontalFlip(FLIP), colours, T.ToLayout("CHW", "uint8")]
    return ps.Mosaic(ps.StoreDataset(store, FIELDS, ragged="list", index=None), SIZE, transform=ops)


class StillMosaic(ps.Mosaic):
    """The next three pictures, around the middle."""

    def _choose_pictures(self, indices, numbers, chosen):  # noqa: ARG002  # nothing is drawn
        return [(index + number) % len(self.dataset) for index in indices for number in range(4)]

    def place(self, sizes, numbers):
        return super().place(sizes, np.full_like(numbers, 0.5))


def make(task, candidate, files):
    store = pack(files)
    once = letterboxed(store) if task == "boxes" else mosaics(store)
    data = ps.ConcatDataset([once] * (len(files) // len(store)))
    loader = ps.DataLoader(
        data, BATCH[task], shuffle=True, num_workers=WORKERS, persistent_workers=True, drop_last=True, seed=0
    )
    return lambda: iter(loader)


def targets(task, candidate, files):
    store = pack(files)
    if task == "boxes":
        loader = ps.DataLoader(ps.Subset(letterboxed(store), range(len(files))), len(files), num_workers=WORKERS)
        return next(iter(loader))[1]
    sane = T.SanitizeBoundingBoxes(min_size=2, min_visible=0.1)
    inner = ps.Subset(ps.StoreDataset(store, FIELDS, ragged="list", index=None), range(len(files)))
    still = StillMosaic(inner, SIZE, transform=[T.CenterCrop(SIZE), sane])
    samples = [still[index] for index in range(len(files))]
    return [np.concatenate([each["boxes"], each["labels"][:, None]], 1) for each in samples]


serve(make, targets)
