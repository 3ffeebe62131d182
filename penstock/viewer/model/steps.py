"""A sample on its way through the ops of its transform: the picture after each, and what was drawn.

::

    source.build(index, seed, epoch) ──observed──> the original, after the crop, ..., the sample
         what the loader gives, and nothing else       each: picture, layers, numbers, outline in the original

A sample is built once, as the loader builds it. What pipelines do meanwhile is observed, so that the last step is the
sample itself. Callables that are no ops are one step. Called by :mod:`.routes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.store.selection import FieldSelection
from penstock.sample import Sample
from penstock.transforms.apply import AppliedOps, observing_ops
from penstock.transforms.base import Lambda, Op
from penstock.transforms.decoding.decode import Decode
from penstock.transforms.targets.field_kinds import collect_values, map_values
from penstock.transforms.targets.moved_targets import Step
from penstock.transforms.targets.object_masks import ObjectMasks
from penstock.view.annotated import Annotated, find_annotations
from penstock.view.shown_pixels import PixelForm, as_array
from penstock.viewer.model.findings import find_problems
from penstock.viewer.model.pictures import draw_sample
from penstock.viewer.model.source import ModelSource
from penstock.viewer.model.view_map import ViewMap, find_enlargement

__all__ = ["TracedSample", "trace_sample"]

_MOST_STEPS: Final = 64
_MOST_NUMBERS: Final = 16


@dataclass(slots=True)
class TracedSample:
    """A sample, and how it was made.

    Parameters
    ----------
    sample : object
        What the loader gives.
    steps : list of dict
        As JSON, in order; the first is the original, if it is known, the last the sample.
    warnings, notes : list of str
        What looks wrong; what is to be known of the numbers. Sentences.
    """

    sample: Sample
    steps: list[dict[str, Any]]
    warnings: list[str]
    notes: list[str]


def trace_sample(source: ModelSource, index: int, seed: int, epoch: int, side: int) -> TracedSample:
    """Build a sample with random numbers of ``(seed, epoch, index)``, and draw what happens to it.

    Pictures are at most ``side`` pixels wide and high. Raises what the dataset raises.
    """
    recorder = _Recorder(source, index, side)
    with observing_ops(recorder.note):
        sample = source.build(index, seed, epoch)
    warnings = recorder.finish(sample, source.transform_of(index))
    notes = []
    if recorder.calls_user and not source.seeds_globals:
        notes.append(
            "The transform calls code that is not penstock's. If it draws from global generators (random, "
            "numpy.random, torch), a run draws other numbers than are shown, unless seed_per_sample=True."
        )
    if recorder.runs > 1:
        notes.append(f"{recorder.runs} pipelines ran for this sample; steps are numbered by them.")
    if recorder.left_out:
        notes.append(f"{recorder.left_out} further steps are not shown.")
    return TracedSample(sample, recorder.steps, warnings, notes)


@dataclass
class _Recorder:
    """Draws each step when it is noted, since callables that come later may change its arrays."""

    source: ModelSource
    index: int
    side: int
    steps: list[dict[str, Any]] = field(default_factory=list)
    runs: int = 0  # of pipelines
    left_out: int = 0
    calls_user: bool = False
    _first: Annotated | None = None
    _original: NDArray[np.uint8] | None = None
    _map: ViewMap | None = None
    _is_guess: bool = False  # whether a callable may have moved pixels
    _image: object = None  # of the last step

    def __post_init__(self) -> None:
        self._roles = self.source.roles_of(self.index)
        if self.source.located is None:
            return
        dataset, number = self.source.located.get(self.index)
        selection = FieldSelection(dataset.store, dataset.fields)
        [record] = dataset.store.read([number])
        values = {
            name: record.fields[own] if own in record.fields else getattr(record, own)
            for name, own in selection.names.items()
        }
        found = find_annotations(selection.to_tree(values), self._roles)
        self._add("Original", "the record of the store", [], found, PixelForm("HWC"))

    def note(self, applied: AppliedOps) -> None:
        """See :func:`penstock.transforms.apply.observing_ops`."""
        ops = applied.ops[applied.start : applied.stop]
        self.calls_user |= any(isinstance(op, Lambda) for op in ops)
        if applied.start == 0:
            self.runs += 1
            self._map, self._is_guess = None, False
        if len(self.steps) >= _MOST_STEPS:
            self.left_out += 1
            return
        sample = map_values(
            applied.kinds, applied.sample, lambda _, value: value.dense() if isinstance(value, ObjectMasks) else value
        )
        images = (value for kind, value in collect_values(applied.kinds, applied.sample) if kind == "image")
        self._image = next(images, None)
        self._follow(ops, applied.step)
        if isinstance(ops[0], Decode) and len(ops) == len(self.steps) == self.runs:
            self.steps.clear()  # the original as the pipeline decodes it: outlines are in its pixels
        name = " + ".join(map(_name_op, ops)) if self.steps else "Original"
        form = PixelForm.of(list(applied.ops[: applied.stop]))
        self._add(
            f"{self.runs}: {name}" if self.runs > 1 else name, ", ".join(map(_describe_op, ops)),
            [] if applied.step is None else _list_numbers(applied.step),
            find_annotations(sample, self._roles), replace(form, layout=form.layout or "HWC"),
        )  # fmt: skip

    def finish(self, sample: Sample, transform: object) -> list[str]:
        """Add the sample, unless the last step is it already; returns what looks wrong."""
        found, form = find_annotations(sample, self._roles), PixelForm.of(transform)
        if self.runs and _are_same(self._image, found.image):
            step, pixels = draw_sample(found, form, self.side)
            self.steps[-1] |= step
        else:
            is_foreign = not self.runs and transform is not None
            self.calls_user |= is_foreign and not self.source.is_converted(transform)
            self._is_guess = True
            name, text = ("Sample", "what the dataset gives")
            if is_foreign:
                name, text = type(transform).__name__, repr(transform)[:2000]
            pixels = self._add(name, text, [], found, form)
        view = self.steps[-1]["view"]
        shown = None if self._original is None else _cut(self._original, view)
        enlargement = 0.0
        if view is not None and pixels is not None:
            enlargement = find_enlargement(np.array(view), (pixels.shape[1], pixels.shape[0]))
        compared = [] if shown is None or pixels is None else [shown, pixels]
        return find_problems(self._first, found, enlargement, compared)

    def _add(
        self, name: str, text: str, drawn: list[float], found: Annotated, form: PixelForm
    ) -> NDArray[np.uint8] | None:
        step, pixels = draw_sample(found, form, self.side)
        if not self.steps:
            self._first, self._original = self._first or found, pixels
        size = (0, 0) if pixels is None else (pixels.shape[1], pixels.shape[0])
        if self._map is None and self.runs and pixels is not None:
            self._map = ViewMap(size)  # the first picture of a pipeline
        outline = None if self._map is None or pixels is None else self._map.outline(size)
        view = None if outline is None else np.round(outline, 2).tolist()
        self.steps.append({
            "name": name, "text": text, "drawn": drawn, "view": view, "is_guess": self._is_guess, **step
        })  # fmt: skip
        return pixels

    def _follow(self, ops: tuple[Op, ...], step: Step | None) -> None:
        """Move the points of the original as ops have moved pixels."""
        if step is None or isinstance(ops[0], Lambda):
            self._is_guess |= not all(op.removes_objects for op in ops)
            return
        if self._map is None and step.size != (0, 0):
            self._map = ViewMap(step.size)
        if self._map is not None:
            self._map.follow(step)


def _name_op(op: Op) -> str:
    return type(op).__name__ if not isinstance(op, Lambda) else getattr(op.fn, "__name__", type(op.fn).__name__)


def _describe_op(op: Op) -> str:
    """An op with its arguments; a function of the user by its file and line."""
    given = op.fn if isinstance(op, Lambda) else op
    code = getattr(given, "__code__", None)
    return repr(given)[:1000] if code is None else f"{_name_op(op)}, {code.co_filename}, line {code.co_firstlineno}"


def _list_numbers(step: Step) -> list[float]:
    """What an op has drawn, as numbers of five digits."""
    numbers = np.asarray(step.params, np.float64).ravel()[:_MOST_NUMBERS]
    return [float(f"{number:.5g}") for number in numbers.tolist()]


def _are_same(one: object, other: object) -> bool:
    """Whether two images have the same values."""
    if one is None or other is None:
        return False
    try:
        left, right = as_array(one), as_array(other)
    except Exception:  # noqa: BLE001  # whatever an object of the user raises
        return one is other
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return bool(np.array_equal(left, right, equal_nan=left.dtype.kind == "f"))


def _cut(original: NDArray[np.uint8], view: list[list[float]] | None) -> NDArray[np.uint8] | None:
    """The rectangle of the original around an outline."""
    if view is None:
        return original
    corners = np.clip(np.array(view), 0, 1 << 30)
    (x0, y0), (x1, y1) = np.floor(corners.min(axis=0)).astype(int), np.ceil(corners.max(axis=0)).astype(int)
    part = original[y0:y1, x0:x1]
    return part if part.size else None
