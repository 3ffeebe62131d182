"""A program that writes packets for a device in place of pixels: compressed bytes and what was drawn.

::

    images ──sizes──> draw, compose ──plan──> _native.write_packets ──> packets: nothing is decoded
                                     └ not a JPEG of one scan, damaged, padded ... ──> Program ──> a packet of pixels

The draws are those of :class:`~penstock.transforms.program.program.Program`. A device makes the same rows of both kinds
of packets: uint8 pixels of the window, then normalised. Which kernels do it is known in ``penstock/torch/cuda``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native, trace
from penstock.ragged import Allocate, Ragged, RaggedRows, RaggedSpec
from penstock.sample import Array, ArraySpec, DType, Value
from penstock.transforms.base import Fusion, Op
from penstock.transforms.ops.erase import RandomErasing
from penstock.transforms.ops.layout import ToLayout
from penstock.transforms.ops.normalize import Normalize
from penstock.transforms.program.image_chunk import Chunk, Failure, Plan, seek_table_arguments
from penstock.transforms.program.program import Program

__all__ = ["PacketProgram", "PacketRows", "PacketSpec", "why_no_packets"]

_WORDS: Final = 112
"""Words at the beginning of each packet; see ``native/core/src/jpeg/packet/``."""

_PIXELS: Final = 2
"""The kind of packets of pixels."""

_ALIGNMENT: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketSpec(RaggedSpec):
    """The spec of an image that a device makes."""

    image: ArraySpec  # shape and dtype of the row that the device makes
    image_layout: str  # {"CHW", "HWC"}: the order of its axes
    mode: str  # {"RGB", "BGR", "L"}: its channels
    scale: tuple[float, ...] | None = None  # rows are ``value * scale + offset``; None for uint8
    offset: tuple[float, ...] | None = None  # see ``scale``
    background: tuple[int, ...] = (0, 0, 0)  # the colour outside of images
    augmenting: tuple[tuple[int, Op], ...] = field(default=(), compare=False)
    """Ops between the resize and Normalize, which the device applies to uint8 pixels, and their positions in the
    pipeline."""
    erasing: tuple[int, RandomErasing] | None = field(default=None, compare=False)  # the op that erases after Normalize
    settings: str = ""  # of these ops, to compare

    def make_rows(self, count: int) -> PacketRows:
        """The packets of a batch while it is filled."""
        return PacketRows(self, count)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the row."""
        axes = self.image.shape
        return (axes[1], axes[2]) if self.image_layout == "CHW" else (axes[0], axes[1])


class PacketRows(RaggedRows):
    """The packets of a batch while it is filled.

    Attributes
    ----------
    only_pixels : bool
        Whether images are decoded here, after a device has found them damaged.
    """

    only_pixels = False

    def batch_with_room(self, kept: NDArray[np.int64], allocate: Allocate, room: int) -> Ragged:
        """Return the batch with ``room`` more bytes behind the packets."""
        buffers: list[Array] = []

        def allocate_more(shape: tuple[int, ...], dtype: DType) -> Array:
            buffers.append(allocate((shape[0] + room, *shape[1:]), dtype))
            return buffers[-1][: shape[0]]

        made = self.batch(kept, allocate_more)
        assert isinstance(made, Ragged), "the form of packets"
        return Ragged(buffers[-1], made.offsets)

    def write_pixels(self, row: int, pixels: Array) -> None:
        """Set the row to an image that was decoded here: CHW, uint8."""
        self.write_each(np.array([row], np.int64), [_pixel_packet(pixels)])


def why_no_packets(program: Program) -> str:
    """Why a device cannot make the rows of ``program``, naming the op; empty if it can."""
    fusion = program.fusion
    if fusion.stored or fusion.decode is None:
        return "its images are not decoded: they are stored as pixels"
    if fusion.filter == "lanczos" or fusion.decode.late_color:
        refused = "late_color=True of Decode" if fusion.decode.late_color else "the filter 'lanczos'"
        return f"{refused} has no kernel for a device"
    if fusion.decode.mode not in {"RGB", "BGR", "L"}:
        return f"{fusion.decode!r} gives pixels that have no kernel for a device"
    parts = _Parts.of(program)
    augmenting = parts.augmenting
    if early := [op for op in parts.geometry if isinstance(op, Normalize | ToLayout)]:
        return f"{early[0]!r} must come after all ops but RandomErasing and ToLayout on a device"
    if augmenting and fusion.decode.mode == "L":
        return f"{augmenting[0][1]!r} has a kernel for images of three channels only"
    return ""


class PacketProgram(Program):
    """Writes packets of the images of which a program writes pixels.

    ``program``: one of which :func:`why_no_packets` says nothing.
    """

    def __init__(self, program: Program) -> None:
        parts = _Parts.of(program)
        ops = parts.geometry
        kinds = ["image", "boxes"] if program.reads_boxes or any(op.removes_objects for op in ops) else ["image"]
        super().__init__([*ops, ToLayout("CHW", "uint8")], kinds, followers=True)
        fusion, decode, image = parts.fusion, self._decode, program.spec()
        assert image is not None, "a program that fills"
        self._packets = PacketSpec(
            shape=(),
            dtype=np.dtype(np.uint8),
            form="flat",
            image=image,
            image_layout=fusion.layout,
            mode=decode.mode,
            scale=fusion.scale,
            offset=fusion.offset,
            background=program.fusion.beside or (0, 0, 0),
            augmenting=tuple(parts.augmenting),
            erasing=parts.erasing,
            settings=repr((parts.augmenting, parts.erasing)),
        )

    def find_late_mover(self) -> Op | None:
        """Return the first op that the device applies and that moves boxes, keypoints or masks."""
        late = [op for _, op in self._packets.augmenting]
        return next((op for op in late if type(op).boxes is not Op.boxes or type(op).mask is not Op.mask), None)

    def packet_spec(self) -> PacketSpec:
        """Return what a batch holds of the image."""
        return self._packets

    def _check_out(self, out: PacketRows) -> None:  # type: ignore[override]  # rows of bytes
        assert isinstance(out, PacketRows), "made by the spec"

    def _fill_planned(
        self,
        chunk: Chunk,
        plan: Plan,
        out: PacketRows,  # type: ignore[override]  # as above
        rows: NDArray[np.int64],
        failed: list[Failure],
    ) -> None:
        """Write the packets of the images that have one, and pixels of the others."""
        left = list(range(len(chunk.images)))
        if not out.only_pixels:
            fused = np.arange(len(left)) if plan.general is None else np.flatnonzero(~plan.general)
            left = sorted(set(left) - self._write(chunk, plan, out, rows, fused))
        for i in left:
            size = None if plan.size is None else plan.size[i : i + 1]
            one = replace(plan, geometry=plan.geometry[i : i + 1], size=size, general=None)
            if plan.general is not None:
                one = replace(one, general=plan.general[i : i + 1])
            shape = self._spec
            assert shape is not None, "all rows have one shape"
            pixels = np.empty((1, *shape.shape), np.uint8)
            own: list[Failure] = []
            super()._fill_planned(chunk.one(i), one, pixels, np.zeros(1, np.int64), own)
            failed += [Failure(i, failure.error) for failure in own]
            if not own:
                out.write_pixels(int(rows[i]), pixels[0])

    def _write(
        self, chunk: Chunk, plan: Plan, out: PacketRows, rows: NDArray[np.int64], fused: NDArray[np.int64]
    ) -> set[int]:
        """Write the packets of images ``fused``; returns which of them have one."""
        fusion, decode, orientations = self.fusion, self._decode, chunk.orientations
        found: list[tuple[int, bool, bytes | None]] = []
        begun = time.perf_counter_ns()
        height, width = self._packets.size
        packets, nbytes, lengths, refused = _native.write_packets(
            chunk.take_images(fused),
            plan.geometry[fused],
            (width, height),
            filter=fusion.filter,
            beside=fusion.beside,
            max_pixels=decode.max_pixels,
            max_nbytes=decode.max_nbytes,
            orientations=None if orientations is None else orientations[fused],
            quality=decode.quality if decode.scale == "auto" else None,
            mode=decode.mode,
            **self._seek_table_arguments(chunk, fused, found),
        )
        if chunk.seek_tables is not None:
            places = fused.tolist()
            chunk.seek_tables.found += [(places[i], damaged, entry) for i, damaged, entry in found]
        written = np.delete(fused, [i for i, _, _ in refused])
        out.write(rows[written], packets[:nbytes], lengths[lengths > 0])
        trace.add("decode", time.perf_counter_ns() - begun, len(written))
        return set(written.tolist())

    @staticmethod
    def _seek_table_arguments(
        chunk: Chunk, fused: NDArray[np.int64], found: list[tuple[int, bool, bytes | None]]
    ) -> dict[str, Value]:
        """Make arguments of the native call. New tables have tiles where they may: a device decodes all segments."""
        arguments = seek_table_arguments(chunk.seek_tables, fused, found)
        if chunk.seek_tables is not None and chunk.seek_tables.any_kind and arguments["learn"] is not None:
            arguments["learn"] = "tiles"
        return arguments


@dataclass(frozen=True, slots=True)
class _Parts:
    """The ops of a program by what does them.

    ``geometry``: the workers draw, the device resizes. ``fusion``: Normalize and ToLayout as the device needs them.
    """

    geometry: list[Op]
    augmenting: list[tuple[int, Op]]
    erasing: tuple[int, RandomErasing] | None
    fusion: Fusion

    @classmethod
    def of(cls, program: Program) -> _Parts:
        """Divide a program into a fused prefix, augmentation, and the last ops."""
        ops = program.ops
        end = len(ops)
        layout = end > 0 and isinstance(ops[end - 1], ToLayout)
        end -= layout
        erasing = None
        if end > 1 and isinstance(erase := ops[end - 1], RandomErasing) and isinstance(ops[end - 2], Normalize):
            erasing, end = (end - 1, erase), end - 1
        if end and isinstance(ops[end - 1], Normalize):
            end -= 1
        if program.fused == len(ops):
            return cls(list(ops[:end]), [], None, program.fusion)
        begin, fusion = min(program.fused, end), Fusion()
        for op in ops[end:]:
            if not isinstance(op, RandomErasing):
                op.fuse(fusion)
        augmenting = [(place, ops[place]) for place in range(begin, end)]
        return cls(list(ops[:begin]), augmenting, erasing, fusion)


def _pixel_packet(pixels: Array) -> Array:
    """Return the packet of an image that was decoded here: CHW."""
    nbytes = 4 * _WORDS + -(-pixels.nbytes // _ALIGNMENT) * _ALIGNMENT
    packet = np.zeros(nbytes, np.uint8)
    packet[:8].view("<i4")[:] = _PIXELS, nbytes
    packet[4 * _WORDS : 4 * _WORDS + pixels.nbytes] = pixels.reshape(-1)
    return packet
