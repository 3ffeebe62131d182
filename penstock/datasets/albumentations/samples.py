"""An albumentations transform for the samples of a store: images with their boxes, keypoints and masks.

::

    record ──Pipeline──> sample                                    if all is recognised: albumentations_recognise
       └───decode──> image, mask; boxes in its format ──Compose(image=, bboxes=, ...)──> boxes xyxy ──> sample

albumentations is not imported: the user's object is called. It gets the fields by the names that albumentations
has for their kinds (``image``, ``mask``, ``bboxes``, ``keypoints``), and those of ``label_fields`` by their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.seeded_libraries import find_seeders
from penstock.datasets.store.selection import FieldSelection
from penstock.errors import ArgumentError, SampleError
from penstock.frameworks import FRAMEWORKS
from penstock.nested import image_size
from penstock.rng import globals_of_sample, next_keys
from penstock.sample import Array, Field, Index, Sample, SampleKeys

if TYPE_CHECKING:
    from penstock.transforms.pipeline import Pipeline

__all__ = ["AlbumentationsSamples"]

_logger = logging.getLogger(__name__)

_NAMES: Final = {"image": "image", "mask": "mask", "boxes": "bboxes", "keypoints": "keypoints"}
_FORMATS: Final = {"pascal_voc": (False, False), "coco": (True, False), "albumentations": (False, True)}
"""By format of boxes: whether the last two numbers are a size, and whether all are divided by the image's."""


class AlbumentationsSamples:
    """The :class:`~penstock.datasets.store.image_transforms.SampleTransform` for albumentations.

    Parameters
    ----------
    transform : callable
        A Compose, or a single transform.
    selection : FieldSelection
        The fields of a sample.

    Raises
    ------
    ArgumentError
        If a sample has no image, several fields of one kind, or what its ``bbox_params`` or ``keypoint_params`` do not
        describe.

    Notes
    -----
    If all of the transform is recognised, ``pipeline`` does the same natively, and numbers are penstock's. Otherwise:
    the numbers of boxes are converted from and to ``(x0, y0, x1, y1)`` in pixels, as float32; those of keypoints are
    unchanged. Values of ``label_fields`` keep their dtype.
    """

    def __init__(self, transform: Any, selection: FieldSelection) -> None:
        self.transform, self._selection = transform, selection
        self.layout: str | None = "CHW" if _has_tensors(transform) else "HWC"
        self._places = self._find_places()
        processors = getattr(transform, "processors", None) or {}
        self._format = self._read_format(processors)
        self._keypoints = self._read_keypoints(processors)
        self._labels = self._find_labels(processors)
        self._seeders: tuple[Callable[[int], None], ...] | None = None
        self._makes_tensors = False
        self.pipeline: Pipeline | None = None
        self._compile()

    def __call__(self, values: Mapping[Any, Any]) -> Sample:
        """Transform one sample: in a loader by its key, elsewhere by the generators of the Compose."""
        if self.pipeline is not None:
            return self._run_pipeline(self.pipeline, values)
        places = self._places
        given = {name: self._decode(name, values[at]) for name, at in places.items()}
        given |= {name: values[at] for name, at in self._labels.items()}
        height, width = given["image"].shape[:2]
        if "bboxes" in given:
            boxes = np.array(values[places["bboxes"]], np.float32).reshape(-1, 4)
            given["bboxes"] = self._from_corners(boxes, width, height)
        points = given.get("keypoints")
        if points is not None:
            given["keypoints"] = self._flat_points(points)
        if self._seeders is None:
            self._seeders = find_seeders([("transform", self.transform)])
        with globals_of_sample(self._seeders):
            result = self.transform(**given)
        moved = {at: result[name] for name, at in places.items() if name in {"image", "mask"}}
        moved = {at: _contiguous(value) for at, value in moved.items()}
        moved |= {at: _like(result[name], values[at]) for name, at in self._labels.items()}
        if "bboxes" in given:
            height, width = image_size(tuple(result["image"].shape), self.layout)
            found = np.array(result["bboxes"], np.float32).reshape(-1, 4)
            self._refuse_left(values, len(given["bboxes"]), len(found))
            moved[places["bboxes"]] = self._to_corners(found, width, height)
        if points is not None:
            moved[places["keypoints"]] = self._shape_points(np.asarray(result["keypoints"], np.float32), points)
        return self._selection.to_tree({name: moved.get(name, value) for name, value in values.items()})

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_seeders": None}

    def _compile(self) -> None:
        """Translate the transform, if all of it is recognised; ``what`` says why not."""
        from penstock.datasets.albumentations.recognise import NotCompiledError, recognise  # imports the native core
        from penstock.transforms import Decode, Pipeline

        name = type(self.transform).__name__
        try:
            self._refuse_other_samples()
            recognised = recognise(self.transform, self._selection.kind_of.values(), tuple(self._labels.values()))
        except NotCompiledError as error:
            self.what = f"its transform, {name} of albumentations, is called with decoded samples: {error}"
            _logger.info("StoreDataset: nothing is native: %s", error)
            return
        self.what = str(recognised)
        _logger.info("StoreDataset: %s", self.what)
        pipeline = Pipeline([Decode(orient=self._selection.upright or None), *recognised.ops])
        self.pipeline = pipeline.take_pixels(is_mixed=self._selection.is_mixed) if self._selection.pixels else pipeline
        self._makes_tensors = recognised.makes_tensors

    def _refuse_other_samples(self) -> None:
        """Raise NotCompiledError for pixels that are not RGB of uint8, and for rows that would stay behind."""
        from penstock.datasets.albumentations.recognise import NotCompiledError

        stored = self._selection.pixels.get(self._places["image"])
        if stored is not None and (stored.dtype != np.uint8 or stored.axes[-1] not in {(3,), None}):
            raise NotCompiledError("its images are stored as other pixels than RGB of uint8")
        known = {*self._labels.values(), *self._places.values()}
        for at, kind in self._selection.stored.items():
            array = Field(kind).array
            may_have_rows = kind == "json" or (array is not None and array.axes[0] is None)
            if "bboxes" in self._places and at not in known and may_have_rows:
                raise NotCompiledError(f"{self._called(at)!r} may have a row for each box, and is no label field")

    def _run_pipeline(self, pipeline: Pipeline, values: Mapping[Any, Any]) -> Sample:
        """Return what the ops make of a sample, in albumentations' types."""
        selection = self._selection
        keys = next_keys()
        if keys is None:
            drawn = self.transform.py_random.getrandbits(63)
            keys = SampleKeys(drawn, 0, np.zeros(1, np.int64))
        moved = dict(selection.from_tree(pipeline(selection.to_tree(values), keys=keys, kinds=selection.kinds)))
        if self._makes_tensors:
            torch = FRAMEWORKS["torch"].module  # which ToTensorV2 has imported
            for at in (self._places[name] for name in ("image", "mask") if name in self._places):
                moved[at] = torch.from_numpy(np.ascontiguousarray(moved[at]))
        return selection.to_tree(moved)

    # what the fields are

    def _find_places(self) -> dict[str, Index]:
        """The field for each of albumentations' names."""
        kinds = self._selection.kind_of
        places: dict[str, Index] = {}
        for at, kind in kinds.items():
            if kind == "instances":
                raise ArgumentError(
                    f"instances, {self._called(at)!r}, do not follow a transform of albumentations; give a "
                    f"penstock.transforms.Pipeline, or kinds={{{self._selection.names[at]!r}: None}} to leave them"
                )
            name = _NAMES.get(kind or "")
            if name in places:
                raise ArgumentError(
                    f"albumentations takes one field of kind {kind}, got {self._called(places[name])!r} and "
                    f"{self._called(at)!r}; give kinds={{{self._selection.names[at]!r}: None}} for one of them"
                )
            if name is not None:
                places[name] = at
        if "image" not in places:
            raise ArgumentError(f"a transform of albumentations needs an image, got the kinds {kinds}")
        return places

    def _called(self, at: Index) -> str:
        return at if isinstance(at, str) else self._selection.names[at]

    def _read_format(self, processors: Mapping[str, Any]) -> str:
        if "bboxes" not in self._places:
            return ""
        if "bboxes" not in processors:
            raise ArgumentError(
                f"the sample has boxes, {self._called(self._places['bboxes'])!r}, and the transform no bbox_params; "
                "give A.Compose([...], bbox_params=A.BboxParams(format='pascal_voc', label_fields=[...]))"
            )
        found = str(processors["bboxes"].params.format)
        if found not in {*_FORMATS, "yolo"}:
            raise ArgumentError(f"the format of boxes must be one of {', '.join(_FORMATS)}, yolo, got {found!r}")
        return found

    def _read_keypoints(self, processors: Mapping[str, Any]) -> Any:
        if "keypoints" not in self._places:
            return None
        params = processors["keypoints"].params if "keypoints" in processors else None
        if params is None or params.format != "xy":
            raise ArgumentError(
                f"the sample has keypoints, {self._called(self._places['keypoints'])!r}, so the transform needs "
                f"keypoint_params=A.KeypointParams(format='xy'), got {getattr(params, 'format', None)!r}"
            )
        return params

    def _find_labels(self, processors: Mapping[str, Any]) -> dict[str, Index]:
        """Return the fields that ``label_fields`` name, by their names in the sample."""
        named = {self._called(at): at for at in self._selection.names}
        asked = [name for each in processors.values() for name in each.params.label_fields or ()]
        for name in asked:
            if name not in named:
                raise ArgumentError(
                    f"label_fields must name fields of the sample ({', '.join(named)}), got {name!r}; "
                    f"fields={{{name!r}: ...}} gives a field of the store this name"
                )
        return {name: named[name] for name in asked}

    def _refuse_left(self, values: Mapping[Any, Any], before: int, after: int) -> None:
        """Refuse fields that would keep the rows of boxes that are removed."""
        known = {*self._labels.values(), *self._places.values()}
        for at, value in values.items():
            if before != after and at not in known and getattr(value, "shape", ())[:1] == (before,):
                raise SampleError(
                    f"the transform has removed {before - after} of {before} boxes, and {self._called(at)!r} has a row "
                    "for each; name it in label_fields of bbox_params"
                )

    # values

    def _decode(self, name: str, value: Any) -> Any:
        from penstock.transforms import Decode, decode  # imports the native core

        if name == "mask":
            return np.array(Decode().mask(value, np.empty(0)))
        if name == "image":
            if isinstance(value, np.ndarray):
                return np.array(self._selection.take_pixels(value))
            return decode(value, orient=bool(self._selection.upright))
        return value

    def _from_corners(self, boxes: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
        is_size, is_relative = _FORMATS.get(self._format, (True, True))
        if is_size:
            boxes[:, 2:] -= boxes[:, :2]
        if self._format == "yolo":
            boxes[:, :2] += boxes[:, 2:] / 2
        if is_relative:
            boxes /= np.array([width, height, width, height], np.float32)
        return boxes

    def _to_corners(self, boxes: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
        is_size, is_relative = _FORMATS.get(self._format, (True, True))
        if is_relative:
            boxes *= np.array([width, height, width, height], np.float32)
        if self._format == "yolo":
            boxes[:, :2] -= boxes[:, 2:] / 2
        if is_size:
            boxes[:, 2:] += boxes[:, :2]
        return boxes

    def _flat_points(self, points: Array) -> NDArray[np.float32]:
        """Return the x and y of all points, (n, 2)."""
        if self._keypoints.remove_invisible and points.shape[1:] != (2,):
            raise ArgumentError(
                f"keypoints of shape {points.shape} keep their number, got remove_invisible=True; give "
                "A.KeypointParams(format='xy', remove_invisible=False)"
            )
        return np.array(points[..., :2], np.float32).reshape(-1, 2)

    def _shape_points(self, moved: Array, points: Array) -> NDArray[np.float32]:
        """Return moved x and y in the shape of the points, with their visibility."""
        if self._keypoints.remove_invisible:
            return moved.reshape(-1, 2)
        shaped = np.array(points, np.float32)
        shaped[..., :2] = moved[:, :2].reshape(*points.shape[:-1], 2)
        return shaped


def _has_tensors(transform: Any) -> bool:
    """Return whether a transform, or one inside it, makes CHW tensors."""
    inner = getattr(transform, "transforms", None)
    if isinstance(inner, list | tuple):
        return any(_has_tensors(step) for step in inner)
    return type(transform).__name__ == "ToTensorV2"


def _like(labels: Any, before: Any) -> Any:
    """Labels in the dtype that they had; a list stays a list."""
    return np.asarray(labels, before.dtype) if isinstance(before, np.ndarray) else list(labels)


def _contiguous(value: Any) -> Any:
    """Return an image as collation takes it: flips are views with negative strides."""
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value
