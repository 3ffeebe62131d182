"""The two steps that give a batch the form that a model of detection takes.

::

    rows that were filled ──────────────────────> batch ──join──┐
    samples ──FormCollate (ragged fields: flat)─> batch ──join──┴─> parts ──tensors, pinned──> parts ──split──> the form
                                                        NumPy                                      views

Loaders ask any dataset for them by :func:`batch_assembly`. Nothing here reads a record. See ``docs/decisions/0027-*``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.collate import ArrayBatch, allocate
from penstock.datasets.store.batch_forms import BatchForm
from penstock.errors import SampleError
from penstock.nested import image_size, pad_images
from penstock.ragged import Ragged, join_rows
from penstock.sample import Array, Batch, Sample, Tree

__all__ = ["BatchAssembly", "FormCollate", "batch_assembly"]

_Parts = dict[str, Batch]

_ROWS: Final = "/rows"
"""Among the parts, a name that no field has."""


def batch_assembly(dataset: object) -> BatchAssembly | None:
    """Return how batches of a dataset get their form.

    None where they have the structure of its samples: it defines no ``batch_assembly()``, or that says so.
    """
    method = getattr(dataset, "batch_assembly", None)
    return method() if callable(method) else None


@dataclass(frozen=True, slots=True)
class BatchAssembly:
    """The two steps from a batch in the structure of its samples to a batch in its form.

    Parameters
    ----------
    form : BatchForm
        Which.
    names : tuple of str
        Of the fields, in the order of the sample.
    structure : type
        Of samples: dict, tuple, or str for a single value.
    layout : {"CHW", "HWC"}, optional
        Order of the axes of images, if it is known.
    image, labels : str
        The names of the image, and of the classes of boxes (empty if there is no such field).
    boxes, keypoints, ragged : tuple of str
        The names of ragged fields: boxes, keypoints, and all.
    instances : tuple of str
        Those of them that are masks of objects, (n, H, W), of the size of their image.
    crowd : str
        The name of the field whose objects are left out of batches where it is not 0; empty if there is none.
    """

    form: BatchForm
    names: tuple[str, ...]
    structure: type
    layout: str | None
    image: str
    boxes: tuple[str, ...]
    labels: str
    keypoints: tuple[str, ...]
    ragged: tuple[str, ...]
    instances: tuple[str, ...] = ()
    crowd: str = ""

    def values(self, sample: Sample) -> Mapping[str, Sample]:
        """The fields of a sample, or of a batch in its structure, by name."""
        if self.structure is dict:
            return {name: sample[name] for name in self.names}
        return dict(zip(self.names, (sample,) if self.structure is str else sample, strict=True))

    def join(self, batch: Batch) -> _Parts:
        """Return the numbers of a batch, computed where it is built.

        Parameters
        ----------
        batch : object
            In the structure of a sample. Ragged fields are flat, of NumPy, and belong to the batch: boxes and keypoints
            are converted in place where possible. Images are one array or tensor, or a list of arrays.

        Returns
        -------
        dict
            Arrays, :class:`~penstock.Ragged`, :class:`~penstock.nested.NestedTensor` and lists; :meth:`split` takes it
            with tensors in their place, too.

        Raises
        ------
        SampleError
            If fields of objects have different lengths in a sample; names its position in the batch.
        """
        return self.join_values(self.values(batch))

    def join_values(self, values: Mapping[str, Batch]) -> _Parts:
        """Compute the numbers of a batch from its fields by name."""
        parts = dict(values)
        if self.crowd:
            self._leave_out_crowds(parts)
        self._convert_boxes(parts)
        if self.form.first_label:
            labels: Ragged = parts[self.labels]
            parts[self.labels] = Ragged(labels.values + self.form.first_label, labels.offsets)
        if self.form.name == "rows":
            return self._join_rows(parts)
        if self.form.name == "ultralytics":
            return self._join_ultralytics(parts)
        if self.form.name == "nested":
            parts[self.image] = pad_images(
                parts[self.image],
                layout=self.layout,
                multiple=self.form.multiple,
                value=self.form.padding,
                allocate=allocate,
            )
        return parts

    def split(self, parts: _Parts) -> Batch:
        """Return the batch in its form, by views of ``parts``."""
        if self.form.name == "ultralytics":
            return _with_shapes(parts)
        if self.form.name == "rows":
            others = [_unpacked(value) for name, value in parts.items() if name not in {self.image, _ROWS}]
            return (parts[self.image], parts[_ROWS].list(), *others)
        columns = {self._call(name): _each(value) for name, value in parts.items() if name != self.image}
        images = parts[self.image]
        if self.form.name == "torchvision":
            images = list(images)
        if not columns:
            return images, [{} for _ in range(len(images))]
        each = zip(*columns.values(), strict=True)
        return images, list(map(dict, map(zip, itertools.repeat(tuple(columns)), each)))  # no Python code per sample

    def form_rows(self, arrays: Tree) -> Batch:
        """Return the batch of filled arrays."""
        return self.split(self.join(arrays))

    def _leave_out_crowds(self, parts: _Parts) -> None:
        """Remove the objects that are crowds from every field that has a value for each object."""
        crowd: Ragged = parts[self.crowd]
        kept = crowd.values == 0
        if kept.all():
            return
        masks = Ragged(kept, crowd.offsets).list()
        offsets = np.concatenate([[0], np.cumsum(kept)])[crowd.offsets]
        for name, value in parts.items():
            if isinstance(value, Ragged):
                if np.array_equal(value.offsets, crowd.offsets):
                    parts[name] = Ragged(value.values[kept], offsets)
            elif isinstance(value, list) and name != self.image:
                parts[name] = [_choose_rows(each, mask) for each, mask in zip(value, masks, strict=True)]

    def _convert_boxes(self, parts: _Parts) -> None:
        normalized = self.form.box_format.endswith("n")
        scale: Array | None = None
        for name in self.boxes:
            boxes: Ragged = parts[name]
            values = _owned(boxes.values)
            _from_corners(values, self.form.box_format.removesuffix("n"))
            if normalized:
                scale = self._scales(parts[self.image])
                values /= np.tile(_by_row(scale, boxes), 2)
            parts[name] = Ragged(values, boxes.offsets)
        if not normalized:
            return
        for name in self.keypoints:
            points: Ragged = parts[name]
            values = _owned(points.values)
            scale = self._scales(parts[self.image]) if scale is None else scale
            of_rows = _by_row(scale, points)
            values[..., :2] /= of_rows.reshape(len(of_rows), *[1] * (values.ndim - 2), 2)
            parts[name] = Ragged(values, points.offsets)

    def _scales(self, images: Batch) -> NDArray[np.float32]:
        """Width and height of each image, shape (n, 2), or (1, 2) where all have one size."""
        shapes = [tuple(image.shape) for image in images] if isinstance(images, list) else [tuple(images.shape[1:])]
        return np.array([image_size(shape, self.layout)[::-1] for shape in shapes], np.float32)

    def _join_rows(self, parts: _Parts) -> _Parts:
        """Join boxes, labels, and the other numbers of each object side by side."""
        order = [
            self.boxes[0],
            self.labels,
            *(each for each in self.ragged if each not in {self.boxes[0], self.labels, self.crowd, *self.instances}),
        ]
        columns = [parts[name] for name in order]
        offsets = self._check_lengths(order, columns)
        widths = [math.prod(column.values.shape[1:]) for column in columns]
        rows = allocate((int(offsets[-1]), sum(widths)), np.dtype(np.float32))
        for column, width, end in zip(columns, widths, itertools.accumulate(widths), strict=True):
            rows[:, end - width : end] = column.values.reshape(len(rows), width)
        others = {name: value for name, value in parts.items() if name not in {*order, self.image, self.crowd}}
        return {self.image: parts[self.image], _ROWS: Ragged(rows, offsets), **others}

    def _join_ultralytics(self, parts: _Parts) -> _Parts:
        boxes, labels = parts[self.boxes[0]], parts[self.labels]
        offsets = self._check_lengths([self.boxes[0], self.labels], [boxes, labels])
        known = {self.image, self.boxes[0], self.labels}
        others = {name: value for name, value in parts.items() if name not in known}
        return {
            "img": parts[self.image],
            "bboxes": boxes.values,
            "cls": labels.values.astype(np.float32).reshape(-1, 1),
            "batch_idx": np.repeat(np.arange(len(offsets) - 1, dtype=np.float32), np.diff(offsets)),
            **{
                self._call(name): value.values if isinstance(value, Ragged) else value for name, value in others.items()
            },
        }

    def _call(self, name: str) -> str:
        """The name of a field in a target: models take the masks of ``instances`` by the name ``masks``."""
        return "masks" if name in self.instances and name == "instances" and "masks" not in self.names else name

    @staticmethod
    def _check_lengths(names: Sequence[str], columns: Sequence[Ragged]) -> NDArray[np.int64]:
        """Return the offsets that all columns share."""
        offsets: NDArray[np.int64] = columns[0].offsets
        for name, column in zip(names[1:], columns[1:], strict=True):
            if column.offsets.tobytes() != offsets.tobytes():  # a fifth of the time of != and any()
                position = int((column.counts != columns[0].counts).argmax())
                raise SampleError(
                    f"each object must have one box and one row of {name!r}, got {len(columns[0][position])} rows of "
                    f"{names[0]!r} and {len(column[position])} of {name!r} at entry {position} of the batch"
                )
        return offsets


class FormCollate:
    """Collates samples that are built one by one to the parts of a form.

    ``assembly``: how a batch is joined. ``collate``: collates what has one shape in all samples.
    """

    def __init__(self, assembly: BatchAssembly, collate: Callable[[list[Sample]], Batch]) -> None:
        self.assembly, self.collate = assembly, collate

    def __call__(self, samples: list[Sample]) -> Batch:
        """Return what :meth:`BatchAssembly.join` returns for ``samples``.

        Raises SampleError as there; and if the arrays of a field have several dtypes, or shapes that differ in more
        than the first axis.
        """
        assembly = self.assembly
        rows = [assembly.values(sample) for sample in samples]
        is_ragged = set(assembly.ragged)
        if assembly.form.takes_sizes:
            is_ragged -= set(assembly.instances)
        listed = set(assembly.names) - is_ragged if assembly.form.takes_sizes else set()
        stacked = [name for name in assembly.names if name not in listed and name not in is_ragged]
        batch = self.collate([{name: row[name] for name in stacked} for row in rows]) if stacked else {}
        parts: _Parts = dict(batch.batch if isinstance(batch, ArrayBatch) else batch)
        for name in is_ragged:
            parts[name] = join_rows([np.asarray(row[name]) for row in rows], "flat", allocate)
        for name in listed:
            parts[name] = [row[name] for row in rows]
        for name in listed.intersection((assembly.image, *assembly.instances)):
            parts[name] = [np.asarray(array) for array in parts[name]]
        joined = assembly.join_values({name: parts[name] for name in assembly.names})
        return ArrayBatch(joined) if isinstance(batch, ArrayBatch) else joined


def _choose_rows(value: Sample, mask: NDArray[np.bool_]) -> Sample:
    """The rows of an array or a list with a value for each object; any other value as it is."""
    if not isinstance(value, np.ndarray | list) or np.ndim(value) == 0 or len(value) != len(mask):
        return value
    return value[mask] if isinstance(value, np.ndarray) else list(itertools.compress(value, mask))


def _owned(values: Array) -> Array:
    """``values``, or a copy that can be written and divided."""
    is_ready = values.dtype.kind == "f" and values.flags.writeable
    return values if is_ready else values.astype(np.float32)


def _by_row(scales: NDArray[np.float32], ragged: Ragged) -> NDArray[np.float32]:
    """The scale of each row of ``ragged``; one for all, shape (1, 2), where images have one size."""
    return scales if len(scales) == 1 else np.repeat(scales, ragged.counts, axis=0)


def _from_corners(boxes: Array, name: str) -> None:
    """Convert boxes from two corners, in place."""
    if name == "cxcywh":
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        boxes[:, 2:] -= boxes[:, :2]
        boxes[:, :2] = centres
    elif name == "xywh":
        boxes[:, 2:] -= boxes[:, :2]


def _with_shapes(parts: _Parts) -> _Parts:
    """Add what ultralytics' validation reads, where fields are called height and width, which stay.

    ``ori_shape`` is what they say; ``ratio_pad`` is None, for which ultralytics computes that of its letterbox.
    """
    sides = [parts.get(name) for name in ("height", "width")]
    if any(getattr(side, "ndim", None) != 1 for side in sides):
        return parts
    shapes = list(zip(*(side.tolist() for side in sides if side is not None), strict=True))
    return {**parts, "ori_shape": shapes, "ratio_pad": [None] * len(shapes)}


def _unpacked(value: Batch) -> Batch:
    """Masks of objects, for each sample an array; other values as they are."""
    return value.list() if isinstance(value, Ragged) else value


def _each(value: Batch) -> Iterable[Sample]:
    """Return what the target of each sample holds of a field."""
    if isinstance(value, Ragged):
        return value.list()
    if isinstance(value, (list, tuple)):
        return value
    return value.tolist() if value.ndim == 1 else list(value)
