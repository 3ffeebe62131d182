"""Augmentation on a device: ops and their drawn params become launches of kernels (``kernels/augment.h`` and so on).

::

    op.draw ──> params (n, k) ──> steps: one column an op's change, one row an image
                                    │ cut before each step that needs the whole image
                                    v
    windows ──change──> ──measure──> ──change──> ──blur──> ──change──> windows        uint8, between windows and finish
    tensor  ──erase──> ──mix_up, cut_mix──> tensor                                    after finish

Each image has its own steps. What a step computes equals the op's ``native``, bit for bit. Imports no torch: whoever
decodes on a device gives the addresses of its memory (:class:`AugmentMemory`) and launches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array
from penstock.torch.cuda.augmenting_steps import (
    KEEP,
    MEASURED,
    MOVING,
    NOTHING,
    Steps,
    StepWriter,
    erase_steps,
    explain_refusal,
    write_steps,
)
from penstock.transforms.base import Op, Params
from penstock.transforms.ops.erase import RandomErasing

__all__ = [
    "AugmentMemory",
    "AugmentPlan",
    "Kernels",
    "Launch",
    "plan_cut_mix",
    "plan_erasing",
    "plan_mix_up",
    "plan_pixels",
    "supports",
]

_BLOCK: Final = 128
"""Threads of a block, but for ``measure``, which has one block an image."""

_MEASURE_BLOCK: Final = 1024

_ON_FLOATS: Final = ("erase", "mix_up")
"""Kernels that take no tensor of uint8."""

_TILE: Final = (64, 8)
"""Width and height of the tiles of ``blur``: ``enum Tile``."""


class Augment(ctypes.Structure):
    """The ``struct Augment`` of ``kernels/augment.h``."""

    _fields_ = (
        ("pixels", ctypes.c_void_p * 2),
        *((name, ctypes.c_void_p) for name in ("steps", "tables", "weights", "measured", "out")),
        ("strides", ctypes.c_int64 * 4),
        *((name, ctypes.c_int32) for name in ("images", "width", "height", "dtype", "most", "unused")),
    )


class Kernels(Protocol):
    """The compiled kernels of a device."""

    def launch(self, name: str, argument: ctypes.Structure, columns: int, rows: int, threads: int) -> None:
        """Queue a kernel on the current stream: a grid of ``columns`` x ``rows`` blocks of ``threads`` threads."""
        ...


@dataclass(frozen=True, slots=True)
class AugmentMemory:
    """Addresses on the device.

    Parameters
    ----------
    windows, second : int
        uint8, (images, 3, height, width): the pixels, and memory of the same size if a plan
        :attr:`~AugmentPlan.needs_second`.
    steps, tables, weights : int
        Copies of the arrays of a plan.
    measured : int
        uint8, (images, 768), with any content.
    out : int
        The tensor that ``finish`` wrote.
    strides : sequence of int
        Of ``out``, in elements: of images, channels, rows, columns.
    dtype : int
        Number of the tensor's dtype in ``enum Dtype``.
    """

    windows: int = 0
    second: int = 0
    steps: int = 0
    tables: int = 0
    weights: int = 0
    measured: int = 0
    out: int = 0
    strides: Sequence[int] = (0, 0, 0, 0)
    dtype: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of one kernel.

    Parameters
    ----------
    kernel : str
        Its name.
    steps : structured array, shape (rows, most)
        Steps of one image in each row: a view of the plan's ``steps``.
    first : int
        Position of the first of them in the plan's ``steps``.
    columns, threads : int
        Blocks in a row of the grid, and threads of a block. The grid has a row for each row of ``steps``.
    """

    kernel: str
    steps: Steps
    first: int
    columns: int
    threads: int


@dataclass(frozen=True, slots=True)
class AugmentPlan:
    """Launches, in order, and the arrays that they read, which must be copied to the device before.

    Parameters
    ----------
    launches : sequence of Launch
        In order.
    steps : structured array, shape (m,)
        The steps of all launches.
    tables : array of uint8, shape (t, 768)
        Look-up tables.
    weights : array of float32, shape (w,)
        Weights of blurs.
    images, width, height : int
        Of the batch.
    """

    launches: Sequence[Launch]
    steps: Steps
    tables: NDArray[np.uint8]
    weights: NDArray[np.float32]
    images: int
    width: int
    height: int

    @property
    def needs_second(self) -> bool:
        """Whether a kernel writes to the second memory for pixels."""
        return any(bool(np.any(launch.steps["target"])) for launch in self.launches)

    def run(self, kernels: Kernels, memory: AugmentMemory) -> None:
        """Queue all launches on the current stream."""
        for launch in self.launches:
            if launch.kernel in _ON_FLOATS and memory.dtype == 0:
                raise ArgumentError(f"{launch.kernel} needs a tensor of floats, got uint8; put it after Normalize")
            argument = Augment()
            argument.pixels[:] = (memory.windows, memory.second)
            argument.steps = memory.steps + launch.first * self.steps.itemsize
            argument.tables, argument.weights, argument.measured = memory.tables, memory.weights, memory.measured
            argument.out, argument.dtype = memory.out, memory.dtype
            argument.strides[:] = memory.strides
            argument.images, argument.width, argument.height = self.images, self.width, self.height
            rows, argument.most = launch.steps.shape
            kernels.launch(launch.kernel, argument, launch.columns, rows, launch.threads)


def supports(op: object) -> bool:
    """Return whether ``op`` runs on a device, before Normalize; RandomErasing also after it."""
    return explain_refusal(op) is None


def plan_pixels(ops: Sequence[Op], params: Sequence[Params], size: tuple[int, int]) -> AugmentPlan:
    """Plan ops on uint8 images of three channels, between the kernels ``windows`` and ``finish``.

    Parameters
    ----------
    ops : sequence of Op
        In order; :func:`supports` holds for each.
    params : sequence of array
        What ``draw`` of each op returned for the n images of the batch.
    size : (int, int)
        Width and height of all images.

    Raises
    ------
    ArgumentError
        If an op is not supported: the message names it.
    """
    count = _count_images(ops, params)
    writer = StepWriter(count, size)
    for op, drawn in zip(ops, params, strict=True):
        if (reason := explain_refusal(op)) is not None:
            raise ArgumentError(f"{op!r} {reason}; use the loader without decode='cuda', or leave the op out")
        write_steps(op, drawn, writer)
    columns = [column for column in writer.columns if np.any(column["kind"])]
    builder = _LaunchBuilder(count, size)
    if columns:
        builder.add_rounds(np.stack(columns, axis=1))
    return builder.build(writer.tables, writer.weights)


def plan_erasing(op: RandomErasing, params: Params, size: tuple[int, int]) -> AugmentPlan:
    """Plan RandomErasing after Normalize: of a tensor of floats of three channels.

    Parameters
    ----------
    op : RandomErasing
        With a ``value`` that is not ``"random"``.
    params : array, shape (n, 5)
        What its ``draw`` returned.
    size : (int, int)
        Width and height of all images.

    Raises
    ------
    ArgumentError
        If the op is not supported.
    """
    if (reason := explain_refusal(op)) is not None:
        raise ArgumentError(f"{op!r} {reason}; use the loader without decode='cuda', or leave the op out")
    steps = erase_steps(op, params, np.dtype(np.float32))
    builder = _LaunchBuilder(len(params), size)
    if np.any(chosen := steps["kind"] != NOTHING):
        builder.add("erase", steps[chosen][:, None], 3 * size[0] * size[1])
    return builder.build([], [])


def plan_mix_up(share: float, count: int, size: tuple[int, int]) -> AugmentPlan:
    """Plan MixUp of a tensor of floats by ``MixUp.draw_share``; labels are mixed by ``MixUp.mix_labels``."""
    writer = StepWriter(count, size)
    steps = writer.make_column()[:1]
    steps["numbers"][:, :2] = np.array((share, 1 - share), np.float32)
    return _plan_batch("mix_up", steps, count, size)


def plan_cut_mix(rectangle: tuple[int, int, int, int], count: int, size: tuple[int, int]) -> AugmentPlan:
    """Plan CutMix of a tensor of any dtype by ``CutMix.draw_rectangle``."""
    writer = StepWriter(count, size)
    steps = writer.make_column()[:1]
    steps["integers"] = rectangle
    return _plan_batch("cut_mix", steps, count, size)


def _plan_batch(kernel: str, steps: Steps, count: int, size: tuple[int, int]) -> AugmentPlan:
    builder = _LaunchBuilder(count, size)
    if count:
        builder.add(kernel, steps[:, None], 3 * size[0] * size[1])
    return builder.build([], [])


def _count_images(ops: Sequence[Op], params: Sequence[Params]) -> int:
    counts = {len(drawn) for drawn in params}
    if len(ops) != len(params) or len(counts) > 1:
        raise ArgumentError(
            f"params must have one array for each of {len(ops)} ops, all with one row an image, got arrays of "
            f"{[len(drawn) for drawn in params]} rows"
        )
    return counts.pop() if counts else 0


class _LaunchBuilder:
    """Collects launches of kernels, and joins their steps in one array."""

    def __init__(self, count: int, size: tuple[int, int]) -> None:
        self._count, self._size = count, size
        self._parts: list[tuple[str, Steps, int, int]] = []

    def add(self, kernel: str, steps: Steps, threads: int, block: int = _BLOCK) -> None:
        """Add a launch of as many ``threads`` for each row of ``steps``, (rows, most)."""
        self._parts.append((kernel, steps, -(-threads // block), block))

    def add_rounds(self, steps: Steps) -> None:
        """Add launches for the steps of each image, (n, columns).

        A round of an image begins with a step that needs the whole image, and ends before the next one. The pixels are
        in the first memory before the first round of an image, and after its last one: steps on single pixels write
        to the memory from which the steps to come that change the memory end in the first one.
        """
        kinds = steps["kind"]
        is_moving = np.isin(kinds, MOVING)
        is_head = is_moving | np.isin(kinds, MEASURED)
        rounds = np.cumsum(is_head, axis=1)
        last = rounds[:, -1]
        memory, to_come = np.zeros(len(steps), np.int32), is_moving.sum(axis=1)
        for number in range(int(last.max()) + 1):
            is_here = (rounds == number) & (kinds != NOTHING)
            memory = self._add_moves(steps, is_here & is_moving, memory)
            to_come -= (is_here & is_moving).sum(axis=1)
            self._add_measuring(steps, is_here & np.isin(kinds, MEASURED), memory)
            target = np.where(to_come % 2 == 1, 1, 0).astype(np.int32)
            memory = self._add_changes(steps, is_here & ~is_moving, memory, target, is_last=last == number)

    def build(self, tables: Sequence[Array], weights: Sequence[NDArray[np.float32]]) -> AugmentPlan:
        """Return the plan of all launches."""
        all_steps = np.concatenate([StepWriter(0, self._size).make_column(), *(p[1].ravel() for p in self._parts)])
        launches, first = [], 0
        for kernel, steps, columns, threads in self._parts:
            view = all_steps[first : first + steps.size].reshape(steps.shape)
            launches.append(Launch(kernel, view, first, columns, threads))
            first += steps.size
        return AugmentPlan(
            launches,
            all_steps,
            np.array(tables, np.uint8).reshape(-1, 768),
            np.concatenate([np.empty(0, np.float32), *weights]),
            self._count,
            *self._size,
        )

    def _add_moves(self, steps: Steps, chosen: NDArray[np.bool_], memory: NDArray[np.int32]) -> NDArray[np.int32]:
        """Add the steps that read other pixels; returns in which memory pixels are after them."""
        width, height = self._size
        tiles = -(-width // _TILE[0]) * -(-height // _TILE[1]) * 3
        threads = {"blur": tiles * _BLOCK, "sharpen": 3 * width * height, "warp": width * height}
        for kernel, kind in zip(threads, MOVING, strict=True):
            rows, places = np.nonzero(chosen & (steps["kind"] == kind))
            if len(rows):
                moves = steps[rows, places]
                moves["source"], moves["target"] = memory[rows], 1 - memory[rows]
                self.add(kernel, moves[:, None], threads[kernel])
        return np.where(chosen.any(axis=1), 1 - memory, memory).astype(np.int32)

    def _add_measuring(self, steps: Steps, chosen: NDArray[np.bool_], memory: NDArray[np.int32]) -> None:
        rows, places = np.nonzero(chosen)
        if len(rows):
            measured = steps[rows, places]
            measured["source"] = memory[rows]
            self.add("measure", measured[:, None], 1, _MEASURE_BLOCK)

    def _add_changes(
        self,
        steps: Steps,
        chosen: NDArray[np.bool_],
        memory: NDArray[np.int32],
        target: NDArray[np.int32],
        *,
        is_last: NDArray[np.bool_],
    ) -> NDArray[np.int32]:
        """Add the steps on single pixels, and copies of images that would end in the second memory.

        Returns in which memory pixels are after them.
        """
        counts = chosen.sum(axis=1)
        is_copied = is_last & (memory == 1) & (counts == 0)
        rows = np.flatnonzero((counts > 0) | is_copied)
        if not len(rows):
            return memory
        order = np.argsort(~chosen[rows], axis=1, kind="stable")[:, : max(int(counts.max()), 1)]
        changes = np.take_along_axis(steps[rows], order, axis=1)
        is_unused = np.arange(changes.shape[1]) >= counts[rows, None]
        changes["kind"][is_unused] = NOTHING
        changes["kind"][is_copied[rows], 0] = KEEP
        changes["source"][:, 0] = memory[rows]
        changes["target"][:, 0] = target[rows]
        self.add("change", changes, self._size[0] * self._size[1])
        changed = memory.copy()
        changed[rows] = target[rows]
        return changed
