"""A sample on its way through the ops of its transform: the picture after each, and what was drawn.

A sample is built once, as the loader builds it. What pipelines do meanwhile is observed, so that the last step is the
sample itself. Callables that are no ops are one step. Called by :mod:`.routes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.store.image_transforms import IMAGE_TRANSFORMS, SAMPLE_TRANSFORMS
from penstock.sample import Sample
from penstock.sheets.annotated import Annotated, find_annotations
from penstock.sheets.shown_pixels import PixelForm
from penstock.transforms.apply import AppliedOps, observing_ops
from penstock.transforms.base import Lambda, Op
from penstock.transforms.decoding.decode import Decode
from penstock.transforms.targets.field_kinds import map_values
from penstock.transforms.targets.moved_targets import Step
from penstock.transforms.targets.object_masks import ObjectMasks
from penstock.viewer.browse.layers import JsonObject
from penstock.viewer.model.findings import find_problems
from penstock.viewer.model.pictures import draw_sample
from penstock.viewer.model.source import ModelSource

__all__ = ["TracedSample", "trace_sample"]

_MOST_STEPS: Final = 64
_MOST_NUMBERS: Final = 16
_TOLERANCE: Final = 2e-3  # of a point from where a projective map has it, as a share of the longer side


@dataclass(slots=True)
class TracedSample:
    """A sample, and how it was made."""

    sample: Sample  # what the loader gives
    steps: list[JsonObject]  # in order; the first is the original, if it is known, the last the sample
    warnings: list[str]  # what looks wrong
    notes: list[str]  # what is to be known of the numbers


def trace_sample(source: ModelSource, index: int, seed: int, epoch: int, side: int) -> TracedSample:
    """Build a sample with random numbers of ``(seed, epoch, index)``; pictures have at most ``side`` pixels a side."""
    recorder = _Recorder(source, index, side)
    with observing_ops(recorder.note):
        sample = source.build(index, seed, epoch)
    warnings = recorder.finish(sample)
    notes = []
    if recorder.calls_user and not source.seeds_globals:
        notes.append(
            "The transform calls code that is not penstock's. If it draws from global generators (random, "
            "numpy.random, torch), a run draws other numbers than are shown, unless seed_per_sample=True."
        )
    return TracedSample(sample, recorder.steps, warnings, notes)


class _Recorder:
    """Draws each step when it is noted, since callables that come later may change its arrays."""

    def __init__(self, source: ModelSource, index: int, side: int) -> None:
        self._side, (self._part, number) = side, source.part_of(index)
        self.steps: list[JsonObject] = []
        self.calls_user = False
        self._runs = 0  # of pipelines
        self._first: Annotated | None = None
        self._map: _ViewMap | None = None
        self._is_guess = False  # whether a callable may have moved pixels
        if self._part.store is not None:
            self._add("Original", "the record of the store", self._part.before(number)[1], self._part.form_before)

    def note(self, applied: AppliedOps) -> None:
        """Note the ops that were applied; called by :func:`penstock.transforms.apply.observing_ops`."""
        ops, step = applied.ops[applied.start : applied.stop], applied.step
        self.calls_user |= any(isinstance(op, Lambda) for op in ops)
        if applied.start == 0:
            self._runs += 1
            self._map, self._is_guess = None, False
        if len(self.steps) >= _MOST_STEPS:
            return
        sample = map_values(
            applied.kinds, applied.sample, lambda _, value: value.dense() if isinstance(value, ObjectMasks) else value
        )
        if step is None or isinstance(ops[0], Lambda):
            self._is_guess |= not all(op.removes_objects for op in ops)
        else:
            if self._map is None and step.size != (0, 0):
                self._map = _ViewMap(step.size)
            if self._map is not None:
                self._map.follow(step)
        if isinstance(ops[0], Decode) and len(ops) == len(self.steps) == self._runs:
            self.steps.clear()  # the original as the pipeline decodes it: outlines are in its pixels
        name = " + ".join(map(_name_op, ops)) if self.steps else "Original"
        form = PixelForm.of(list(applied.ops[: applied.stop]))
        self._add(
            f"{self._runs}: {name}" if self._runs > 1 else name, ", ".join(map(_describe_op, ops)),
            find_annotations(sample, self._part.roles), replace(form, layout=form.layout or "HWC"), step,
        )  # fmt: skip

    def finish(self, sample: Sample) -> list[str]:
        """Add the sample, unless the last step is it already; returns what looks wrong."""
        found = find_annotations(sample, self._part.roles)
        name, text, transform = "Sample", "what the dataset gives", getattr(self._part.dataset, "transform", None)
        if transform is not None and not self._runs:
            library = type(transform).__module__.partition(".")[0]
            is_seeded = library in {*IMAGE_TRANSFORMS, *SAMPLE_TRANSFORMS} and self._part.store is not None
            self.calls_user |= not is_seeded
            name, text = type(transform).__name__, repr(transform)[:2000]
        last = self.steps[-1] if self._runs else {}
        drawn = self._add(name, text, found, self._part.form)
        if last and last.get("picture") == drawn.get("picture"):
            self.steps[-2:] = [last | drawn]
        else:
            self.steps[-1]["is_guess"] = True
        return find_problems(self._first, found, drawn)

    def _add(self, name: str, text: str, found: Annotated, form: PixelForm, step: Step | None = None) -> JsonObject:
        drawn = draw_sample(found, form, self._side)
        self._first = self._first or found
        outline = None
        if self._runs and "picture" in drawn:
            size = drawn["width"], drawn["height"]
            self._map = self._map or _ViewMap(size)  # of the first picture of a pipeline
            outline = self._map.outline(size)
        numbers = [] if step is None else np.asarray(step.params, np.float64).ravel()[:_MOST_NUMBERS].tolist()
        self.steps.append({
            "name": name, "text": text, "drawn": [float(f"{number:.5g}") for number in numbers],
            "view": None if outline is None else np.round(outline, 2).tolist(), "is_guess": self._is_guess, **drawn,
        })  # fmt: skip
        return drawn


def _name_op(op: Op) -> str:
    return type(op).__name__ if not isinstance(op, Lambda) else getattr(op.fn, "__name__", type(op.fn).__name__)


def _describe_op(op: Op) -> str:
    """Return an op with its arguments; a function of the user by its file and line."""
    given = op.fn if isinstance(op, Lambda) else op
    code = getattr(given, "__code__", None)
    return repr(given)[:1000] if code is None else f"{_name_op(op)}, {code.co_filename}, line {code.co_firstlineno}"


class _ViewMap:
    """Which part of an original, whose width and height are ``size``, an image shows: nine of its points are followed.

    They are moved as keypoints, op by op. The projective map that takes them back takes the corners of the image back.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        across, down = np.meshgrid(np.array([0, 0.5, 1]) * size[0], np.array([0, 0.5, 1]) * size[1])
        self._size, self._before = size, np.stack([across.ravel(), down.ravel()], axis=1)
        self._points = self._before.astype(np.float32)

    def follow(self, step: Step) -> None:
        """Move the points as an op moves its image."""
        if type(step.op).keypoints is not Op.keypoints:
            self._points = step.op.keypoints(self._points, step.params, step.size)

    def outline(self, size: tuple[int, int]) -> NDArray[np.float64] | None:
        """Return corners of an image, (4, 2), in original pixels; None where no projective map explains the ops."""
        after = self._points.astype(np.float64)
        corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float64) * size
        if not np.isfinite(after).all() or not min(self._size):
            return None
        scale = max(*self._size, *size, float(np.abs(after).max()))
        moved = _map_points(after / scale, self._before / scale, np.concatenate([after, corners]) / scale)
        if moved is None or np.abs(moved[:9] * scale - self._before).max() > _TOLERANCE * max(self._size):
            return None
        return moved[9:] * scale


def _map_points(
    after: NDArray[np.float64], before: NDArray[np.float64], points: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """``points`` by the projective map with the least error from ``after`` to ``before``; None if there is none."""
    (x, y), (u, v) = after.T, before.T
    zero, one = np.zeros_like(x), np.ones_like(x)
    rows = np.concatenate([
        np.stack([x, y, one, zero, zero, zero, -u * x, -u * y], axis=1),
        np.stack([zero, zero, zero, x, y, one, -v * x, -v * y], axis=1),
    ])  # fmt: skip
    found, _, rank, _ = np.linalg.lstsq(rows, np.concatenate([u, v]), rcond=None)
    moved = np.column_stack([points, np.ones(len(points))]) @ np.append(found, 1.0).reshape(3, 3).T
    if rank < 8 or np.abs(moved[:, 2]).min() < 1e-9:
        return None
    result: NDArray[np.float64] = moved[:, :2] / moved[:, 2:]
    return result
