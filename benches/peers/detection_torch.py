"""torch's DataLoader, two persistent processes: OpenCV decodes, resizes and warps, albumentations does the rest."""

import albumentations as A
import cv2
import numpy as np
import torch
from serve import BATCH, WORKERS, serve
from yolo_recipe import FILL, FLIP, HUE, SATURATION, SIZE, VALUE, corners, draw, move_rows, read_rows

BOXES = A.BboxParams(format="pascal_voc", label_fields=["labels"])


def letterbox():
    pad = A.PadIfNeeded(SIZE, SIZE, fill=FILL)
    return A.Compose([A.LongestMaxSize(SIZE, interpolation=cv2.INTER_LINEAR), pad], bbox_params=BOXES)


def colours():
    """Hue, saturation and value in OpenCV's units."""
    limits = round(HUE * 180), round(SATURATION * 255), round(VALUE * 255)
    return A.Compose([A.HorizontalFlip(p=FLIP), A.HueSaturationValue(*limits, p=1)], bbox_params=BOXES)


def apply(transform, image, rows):
    result = transform(image=image, bboxes=rows[:, :4], labels=rows[:, 4])
    boxes, labels = np.asarray(result["bboxes"], np.float32), np.asarray(result["labels"], np.float32)
    image = torch.from_numpy(np.ascontiguousarray(result["image"].transpose(2, 0, 1)))
    return image, torch.from_numpy(np.concatenate([boxes.reshape(-1, 4), labels.reshape(-1, 1)], 1))


class Letterboxed(torch.utils.data.Dataset):
    def __init__(self, files):
        self.files, self.rows, self.transform = files, [read_rows(file) for file in files], letterbox()

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return apply(self.transform, cv2.imread(self.files[index], cv2.IMREAD_COLOR_RGB), self.rows[index])


class Mosaics(Letterboxed):
    """Four pictures, pasted and warped by OpenCV; each is decoded and resized."""

    def __init__(self, files, jitter=True):
        super().__init__(files)
        self.transform, self.jitter = colours() if jitter else A.Compose([], bbox_params=BOXES), jitter

    def __getitem__(self, index):
        rng = np.random.default_rng(torch.randint(1 << 62, ()).item())
        others, point, matrix, _ = draw(rng, len(self.files), self.jitter)
        if not self.jitter:
            others = [(index + each) % len(self.files) for each in others]
        chosen, canvas = [index, *others], np.full((2 * SIZE, 2 * SIZE, 3), FILL, np.uint8)
        images = [self.read(each) for each in chosen]
        sizes = [image.shape[1::-1] for image in images]
        places = corners(sizes, point)
        for image, (left, top), (width, height) in zip(images, places, sizes, strict=True):
            x0, y0, x1, y1 = max(left, 0), max(top, 0), min(left + width, 2 * SIZE), min(top + height, 2 * SIZE)
            canvas[y0:y1, x0:x1] = image[y0 - top : y1 - top, x0 - left : x1 - left]
        image = cv2.warpAffine(canvas, matrix, (SIZE, SIZE), borderValue=(FILL,) * 3)
        return apply(self.transform, image, move_rows([self.rows[each] for each in chosen], places, matrix, False))

    def read(self, index):
        image = cv2.imread(self.files[index], cv2.IMREAD_COLOR_RGB)
        scale = SIZE / max(image.shape)
        return image if scale == 1 else cv2.resize(image, None, fx=scale, fy=scale)


def collate(samples):
    images, rows = zip(*samples, strict=True)
    return torch.stack(images), list(rows)


def settle(_):
    cv2.setNumThreads(0)


def make(task, candidate, files):
    data = Letterboxed(files) if task == "boxes" else Mosaics(files)
    loader = torch.utils.data.DataLoader(
        data,
        BATCH[task],
        shuffle=True,
        num_workers=WORKERS,
        drop_last=True,
        collate_fn=collate,
        worker_init_fn=settle,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return lambda: iter(loader)


def targets(task, candidate, files):
    data = Letterboxed(files) if task == "boxes" else Mosaics(files, jitter=False)
    return [data[index][1].numpy() for index in range(len(files))]


serve(make, targets)
