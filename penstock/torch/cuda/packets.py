"""Packets in a batch: what their headers say, and where each image's part of the kernels' memory begins.

NumPy only; ``kernels/packet.h`` has the same layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array

__all__ = ["BASES", "BLOCK", "KERNELS", "Group", "plan_groups"]

_WORDS: Final = 112
"""Words at the beginning of each packet."""

BASES: Final = ("packet", "blocks", "samples", "rgb", "taps", "lines")
"""What an image has a place in, in the order of ``enum Base``."""

KERNELS: Final = ("entropy", "coefficients", "idct", "color", "taps", "first_pass", "rows", "windows", "finish")
"""The kernels that work on packets, each with a grid of its own."""

BLOCK: Final = 128
"""Threads of a block: ``enum BLOCK``."""

_ITEM_NBYTES: Final = np.array([1, 128, 1, 1, 4, 2], np.int64)
"""Bytes of one item of each: blocks of 64 coefficients, words of taps, 16-bit values of lines."""

_ALIGNMENT: Final = np.array([16, 1, 16, 16, 4, 8], np.int64)
"""Items to which the place of each image is aligned."""

_MOST_IMAGES: Final = 32768
"""Images of a group: the second axis of the grids of augmentation has at most 65,535 blocks."""

_MOST_BLOCKS: Final = 2**31 - 1
"""Blocks of threads of a launch."""


@dataclass(frozen=True, slots=True)
class Group:
    """Images that kernels work on at once.

    Parameters
    ----------
    first, count : int
        Which images of the batch.
    bases : ndarray, shape (count, 6), int64
        Where the packet of each begins, and its part of the memory of each step: see :data:`BASES`.
    starts : ndarray, shape (9, count + 1), int32
        By :data:`KERNELS`, the first block of threads of each image, and the number of all blocks. No block is empty.
    nbytes : dict
        By the names of :data:`BASES` but for the first, bytes of memory for all images.
    """

    first: int
    count: int
    bases: NDArray[np.int64]
    starts: NDArray[np.int32]
    nbytes: dict[str, int]


def plan_groups(packets: Array, offsets: NDArray[np.int64], window: tuple[int, int, int], budget: int) -> list[Group]:
    """Divide a batch into groups whose memory for the kernels' steps is at most ``budget`` bytes, if one image's is.

    Parameters
    ----------
    packets : ndarray of uint8
        All packets.
    offsets : ndarray of int64, shape (n + 1,)
        Packet ``i`` is ``packets[offsets[i]:offsets[i + 1]]``.
    window : (int, int, int)
        Channels, height and width of a row. Windows count as memory.
    budget : int
        Bytes.

    Raises
    ------
    ArgumentError
        If a packet is shorter than its header says, or a row has 2**31 values or more.
    """
    channels, height, width = window
    if channels * height * width >= 2**31:
        raise ArgumentError(f"images on a device must have less than 2**31 values, got {channels} x {height} x {width}")
    words = _headers(packets, offsets)
    if (words[:, 1] > np.diff(offsets)).any() or (words[:, [*range(2, 9), 48]] < 0).any():
        raise ArgumentError("packets must be as long as their headers say")
    sizes, threads = _count_items(words, offsets), _count_threads(words, height * width)
    blocks = -(-threads // BLOCK)
    needs = (sizes[:, 1:] * _ITEM_NBYTES[1:]).sum(1) + channels * height * width
    groups = []
    for first, count in _divide(needs, blocks.max(1), budget):
        of_group = slice(first, first + count)
        bases = np.cumsum(sizes[of_group], 0) - sizes[of_group]
        bases[:, 0] = offsets[of_group]
        starts = np.zeros((len(KERNELS), count + 1), np.int32)
        np.cumsum(blocks[of_group].T, axis=1, out=starts[:, 1:])
        totals = sizes[of_group].sum(0) * _ITEM_NBYTES
        nbytes = dict(zip(BASES[1:], totals[1:].tolist(), strict=True))
        groups.append(Group(first, count, np.ascontiguousarray(bases), starts, nbytes))
    return groups


def _headers(packets: Array, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the words of each packet, (n, 112)."""
    if (np.diff(offsets) < 4 * _WORDS).any() or int(offsets[-1]) > len(packets):
        raise ArgumentError("packets must be as long as their headers say")
    gathered = packets[offsets[:-1, None] + np.arange(4 * _WORDS)]
    words: NDArray[np.int64] = gathered.view("<i4").astype(np.int64)
    return words


def _divide(needs: NDArray[np.int64], blocks: NDArray[np.int64], budget: int) -> Iterator[tuple[int, int]]:
    """First image and number of images of each group."""
    first = nbytes = launched = 0
    for i, (need, own) in enumerate(zip(needs.tolist(), blocks.tolist(), strict=True)):
        is_full = nbytes + need > budget or launched + own > _MOST_BLOCKS or i - first == _MOST_IMAGES
        if i > first and is_full:
            yield first, i - first
            first, nbytes, launched = i, 0, 0
        nbytes, launched = nbytes + need, launched + own
    if len(needs):
        yield first, len(needs) - first


def _lines(words: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the lines between the passes of the resize, for all planes of each image; return also their length."""
    is_down_first = np.isin(words[:, 34], (1, 4))
    count = words[:, 9] * np.where(is_down_first, words[:, 27], words[:, 13]) * (words[:, 34] > 0)
    return count, np.where(is_down_first, words[:, 12], words[:, 17])


def _count_items(words: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what each image has, (n, 6), in the order of :data:`BASES`."""
    lines, length = _lines(words)
    rgb = words[:, 9] * words[:, 13] * _padded(words[:, 12])
    counts = (np.diff(offsets), words[:, 2], words[:, 3], rgb, words[:, 5], lines * _padded(length))
    return -(-np.stack(counts, 1) // _ALIGNMENT) * _ALIGNMENT


def _count_threads(words: NDArray[np.int64], pixels: int) -> NDArray[np.int64]:
    """Return what each image needs, (n, 9), in the order of :data:`KERNELS`."""
    lines, length = _lines(words)
    across, down = words[:, 17], words[:, 27]  # length of both axes
    counts = (
        words[:, 8],
        BLOCK * words[:, 48],
        8 * words[:, 2],
        words[:, 13] * _padded(words[:, 12]) // 4,
        (across + down) * (words[:, 34] > 0),
        lines * _padded(length) // 4,
    )
    of_window = np.full(len(words), pixels, np.int64)
    return np.stack((*counts, of_window, of_window, of_window), 1)


def _padded(width: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round a width up as ``padded`` of ``kernels/packet.h`` does: a thread has four values of a row."""
    return -(-width // 4) * 4
