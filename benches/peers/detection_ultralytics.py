"""Ultralytics' YOLODataset, with its default augmentations but for blur and gray, in two persistent processes.

torch's DataLoader has the settings of Ultralytics' own, which never ends: that one would build eight batches of its
next epoch while other candidates run.
"""

from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from serve import BATCH, WORKERS, serve
from ultralytics.cfg import get_cfg
from ultralytics.data import YOLODataset
from ultralytics.data.build import seed_worker
from yolo_recipe import FLIP, HUE, SATURATION, SCALE, SIZE, TRANSLATE, VALUE

RECIPE = {
    "mosaic": 1.0, "mixup": 0.0, "cutmix": 0.0, "copy_paste": 0.0, "degrees": 0.0, "shear": 0.0, "perspective": 0.0,
    "translate": TRANSLATE, "scale": SCALE, "fliplr": FLIP, "flipud": 0.0, "hsv_h": HUE, "hsv_s": SATURATION,
    "hsv_v": VALUE, "augmentations": [],
}  # fmt: skip
STILL = {"translate": 0.0, "scale": 0.0, "fliplr": 0.0, "hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0}


def dataset(task, files, **settings):
    names = {"names": {0: "a", 1: "b", 2: "c"}, "channels": 3, "nc": 3}
    options = get_cfg(overrides={**RECIPE, **settings})
    augment = task == "mosaic"
    folders = [str(Path(files[0]).parent)] * max(len(files) // len(set(files)), 1)
    return YOLODataset(
        img_path=folders, imgsz=SIZE, batch_size=BATCH[task], augment=augment, hyp=options, data=names, cache=False
    )


def make(task, candidate, files):
    loader = torch.utils.data.DataLoader(
        dataset(task, files),
        BATCH[task],
        shuffle=True,
        num_workers=WORKERS,
        drop_last=True,
        collate_fn=YOLODataset.collate_fn,
        worker_init_fn=seed_worker,
        prefetch_factor=4,
        persistent_workers=True,
        multiprocessing_context="fork",
    )

    def epoch():
        for batch in loader:
            yield batch["img"], batch["bboxes"], batch["cls"], batch["batch_idx"]

    return epoch


def targets(task, candidate, files):
    data = dataset(task, files, **STILL)
    place = {file: index for index, file in enumerate(data.im_files)}
    of_file = [place[file] for file in files]
    if task == "mosaic":
        mosaic = data.transforms.transforms[0].transforms[0]
        mosaic.border = (-SIZE, -SIZE)  # the point is the middle
    rows = []
    for index in range(len(files)):
        if task == "mosaic":
            mosaic.get_indexes = lambda index=index: [of_file[(index + each) % len(files)] for each in (1, 2, 3)]
        sample = deepcopy(data[of_file[index]])
        boxes = sample["bboxes"].numpy() * SIZE
        corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
        rows.append(np.concatenate([corners, sample["cls"].numpy()], 1))
    return rows


serve(make, targets)
