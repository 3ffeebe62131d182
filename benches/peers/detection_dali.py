"""NVIDIA DALI on the CPU. Letterbox: the readers and operators of DALI alone. Mosaic: ``multi_paste`` of pictures of
the same batch, so that each is decoded once, an affine map, flip and colours; numbers and boxes come from NumPy."""

from pathlib import Path

import numpy as np
from nvidia.dali import fn, math, pipeline_def, types
from serve import BATCH, WORKERS, serve
from yolo_recipe import FILL, HUE, SATURATION, SIZE, VALUE, corners, draw, move_rows, read_rows


def letterboxed(files, shuffle):
    folder = Path(files[0]).parent.parent

    @pipeline_def(batch_size=BATCH["boxes"], num_threads=WORKERS, device_id=None)
    def graph():
        encoded, boxes, labels = fn.readers.coco(
            file_root=str(folder / "images"),
            annotations_file=str(folder / "boxes.json"),
            ltrb=True,
            ratio=False,
            avoid_class_remapping=True,
            random_shuffle=shuffle,
        )
        sides = fn.peek_image_shape(encoded, dtype=types.FLOAT)
        height, width = sides[0], sides[1]
        scale = SIZE / math.max(height, width)
        images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        images = fn.resize(images, size=(SIZE, SIZE), mode="not_larger", interp_type=types.INTERP_LINEAR)
        images = fn.crop(images, crop=(SIZE, SIZE), out_of_bounds_policy="pad", fill_values=FILL)
        left, top = math.floor((SIZE - width * scale) / 2), math.floor((SIZE - height * scale) / 2)
        boxes = boxes * scale + fn.stack(left, top, left, top)
        return fn.transpose(images, perm=[2, 0, 1]), boxes, labels

    pipeline = graph()
    pipeline.build()
    return pipeline


class Source:
    """Numbers, boxes and encoded pictures of each batch."""

    def __init__(self, files, jitter):
        self.files, self.jitter = files, jitter
        self.rows = [read_rows(file) for file in files]
        self.rng = np.random.default_rng(0)
        self.order = np.zeros(0, np.int64)

    def __call__(self):
        batch = BATCH["mosaic"]
        if len(self.order) < batch:
            count = len(self.files)
            self.order = self.rng.permutation(count) if self.jitter else np.arange(count)
        chosen, self.order = self.order[:batch].tolist(), self.order[batch:]
        encoded = [np.fromfile(self.files[each], np.uint8) for each in chosen]
        columns = [self.sample(row, chosen) for row in range(batch)]
        return [encoded, *map(list, zip(*columns, strict=True))]

    def sample(self, row, chosen):
        others, point, matrix, flip = draw(self.rng, len(chosen), self.jitter)
        if not self.jitter:
            others = [(row + each) % len(chosen) for each in others]
        pictures, sizes = [row, *others], [(640, 480)] * 4
        places = corners(sizes, point)
        starts = np.array([[max(-top, 0), max(-left, 0)] for left, top in places], np.int32)
        targets = np.array([[max(top, 0), max(left, 0)] for left, top in places], np.int32)
        ends = np.array([[min(480 + top, 2 * SIZE), min(640 + left, 2 * SIZE)] for left, top in places], np.int32)
        gains = 1 + self.rng.uniform(-1, 1, 3) * [HUE, SATURATION, VALUE] * self.jitter
        rows = move_rows([self.rows[chosen[each]] for each in pictures], places, matrix, flip)
        return (
            np.array(pictures, np.int32), starts, ends - targets, targets, matrix.astype(np.float32),
            np.int32(flip), np.float32((gains[0] - 1) * 360), np.float32(gains[1]), np.float32(gains[2]), rows,
        )  # fmt: skip


def mosaics(source):
    @pipeline_def(batch_size=BATCH["mosaic"], num_threads=WORKERS, device_id=None)
    def graph():
        encoded, pictures, starts, shapes, places, matrix, flip, hue, saturation, value, rows = fn.external_source(
            source=source, num_outputs=11, batch=True
        )
        images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        canvas = fn.multi_paste(
            images,
            in_ids=pictures,
            in_anchors=starts,
            shapes=shapes,
            out_anchors=places,
            output_size=[2 * SIZE, 2 * SIZE],
            dtype=types.UINT8,
        )
        images = fn.warp_affine(
            canvas,
            matrix=matrix,
            size=(SIZE, SIZE),
            fill_value=FILL,
            inverse_map=False,
            interp_type=types.INTERP_LINEAR,
        )
        images = fn.hsv(fn.flip(images, horizontal=flip), hue=hue, saturation=saturation, value=value)
        return fn.transpose(images, perm=[2, 0, 1]), rows

    pipeline = graph()
    pipeline.build()
    return pipeline


def rows_of(batch):
    """The boxes with classes of each sample, as arrays that outlive the batch."""
    if len(batch) == 2:
        return [np.array(batch[1].at(row)) for row in range(len(batch[1]))]
    boxes, labels = batch[1], batch[2]
    return [np.concatenate([boxes.at(row), labels.at(row)[:, None]], 1) for row in range(len(boxes))]


def make(task, candidate, files):
    pipeline = letterboxed(files, shuffle=True) if task == "boxes" else mosaics(Source(files, jitter=True))

    def epoch():
        for _ in range(len(files) // BATCH[task]):
            batch = pipeline.run()
            yield np.asarray(batch[0].as_tensor()), rows_of(batch)

    return epoch


def targets(task, candidate, files):
    files = files[: BATCH[task]]
    pipeline = letterboxed(files, shuffle=False) if task == "boxes" else mosaics(Source(files, jitter=False))
    return rows_of(pipeline.run())


serve(make, targets)
