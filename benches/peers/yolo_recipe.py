"""The boxes of the YOLO recipe in NumPy, for the libraries that have no mosaic: where four pictures lie, and what of
their boxes is left after an affine map. Follows Ultralytics' augmentations. Also the annotations that all peers read.
"""

from pathlib import Path

import numpy as np

SIZE = 640
TRANSLATE, SCALE, FLIP = 0.1, 0.5, 0.5
HUE, SATURATION, VALUE = 0.015, 0.7, 0.4
FILL = 114


def read_rows(file):
    """Rows (x0, y0, x1, y1, class) of a picture of 640 x 480, from its file of labels."""
    label = Path(file).parent.parent / "labels" / f"{Path(file).stem}.txt"
    rows = np.array([line.split() for line in label.read_text().splitlines()], np.float64).reshape(-1, 5)
    centres, halves = rows[:, 1:3], rows[:, 3:] / 2
    corners = np.concatenate([centres - halves, centres + halves], 1) * [640, 480, 640, 480]
    return np.concatenate([corners, rows[:, :1]], 1).astype(np.float32)


def draw(rng, count, jitter=True):
    """Indices of the three others as offsets or None, the point, the matrix, and whether to flip."""
    if not jitter:
        matrix = np.array([[1, 0, -SIZE / 2], [0, 1, -SIZE / 2]])
        return (1, 2, 3), (SIZE, SIZE), matrix, False
    others = rng.integers(0, count, 3).tolist()
    point = rng.integers(SIZE // 2, SIZE * 3 // 2, 2).tolist()
    scale = rng.uniform(1 - SCALE, 1 + SCALE)
    shift = rng.uniform(0.5 - TRANSLATE, 0.5 + TRANSLATE, 2) * SIZE
    matrix = np.array([[scale, 0, shift[0] - scale * SIZE], [0, scale, shift[1] - scale * SIZE]])
    return others, point, matrix, rng.random() < FLIP


def corners(sizes, point):
    """Left and top of four pictures of these widths and heights around a point of the canvas."""
    x, y = point
    return [(x if i % 2 else x - width, y if i // 2 else y - height) for i, (width, height) in enumerate(sizes)]


def move_rows(rows, places, matrix, flip):
    """The rows of four pictures at their places, clipped to the canvas, then moved by scale and shift, and flipped."""
    placed = [own + np.array([*place, *place, 0], np.float32) for own, place in zip(rows, places, strict=True)]
    moved = np.concatenate(placed)
    moved[:, :4] = moved[:, :4].clip(0, 2 * SIZE)
    moved = moved[((moved[:, 2] - moved[:, 0]) > 0) & ((moved[:, 3] - moved[:, 1]) > 0)]
    scale, shift = matrix[0, 0], matrix[:, 2]
    whole = moved[:, :4] * scale + np.tile(shift, 2)
    boxes = whole.clip(0, SIZE)
    before, after = (np.maximum(each[:, 2:] - each[:, :2], 0) for each in (whole, boxes))
    kept = (after > 2).all(1) & (after.prod(1) > 0.1 * before.prod(1))
    boxes = boxes[kept]
    if flip:
        boxes[:, [0, 2]] = SIZE - boxes[:, [2, 0]]
    return np.concatenate([boxes, moved[kept, 4:]], 1).astype(np.float32)
