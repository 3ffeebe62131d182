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

__all__ = ["BASES", "Group", "plan_groups"]

_WORDS: Final = 112
"""Words at the beginning of each packet."""

BASES: Final = ("packet", "blocks", "samples", "rgb", "taps", "lines", "picture")
"""What an image has a place in, in the order of ``enum Base``."""

_ITEM_NBYTES: Final = np.array([1, 128, 1, 1, 4, 2, 1], np.int64)
"""Bytes of one item of each: blocks of 64 coefficients, words of taps, 16-bit values of lines."""

_ALIGNMENT: Final = np.array([16, 1, 16, 16, 4, 8, 16], np.int64)
"""Items to which the place of each image is aligned."""

_MOST_IMAGES: Final = 32768
"""Images of a launch: the second axis of a grid has at most 65,535 blocks."""


@dataclass(frozen=True, slots=True)
class Group:
    """Images that kernels work on at once.

    Parameters
    ----------
    first, count : int
        Which images of the batch.
    bases : ndarray, shape (count, 7), int64
        Where the packet of each begins, and its part of the memory of each step: see :data:`BASES`.
    nbytes : dict
        By the names of :data:`BASES` but for the first, bytes of memory for all images.
    threads : dict
        By kernel, the threads that the largest image needs.
    """

    first: int
    count: int
    bases: NDArray[np.int64]
    nbytes: dict[str, int]
    threads: dict[str, int]


def plan_groups(packets: Array, offsets: NDArray[np.int64], window: int, budget: int) -> list[Group]:
    """Divide a batch into groups whose memory for the kernels' steps is at most ``budget`` bytes, if one image's is.

    Parameters
    ----------
    packets : ndarray of uint8
        All packets.
    offsets : ndarray of int64, shape (n + 1,)
        Packet ``i`` is ``packets[offsets[i]:offsets[i + 1]]``.
    window : int
        Values of a row: channels x height x width.
    budget : int
        Bytes.

    Raises
    ------
    ArgumentError
        If a packet is shorter than its header says.
    """
    words = _headers(packets, offsets)
    sizes = np.empty((len(words), len(BASES)), np.int64)
    sizes[:, 0] = np.diff(offsets)
    sizes[:, 1:] = words[:, 2:8]
    sizes[:, 5] //= 2
    if (words[:, 1] > sizes[:, 0]).any() or (sizes < 0).any():
        raise ArgumentError("packets must be as long as their headers say")
    sizes[:, 1:] = -(-sizes[:, 1:] // _ALIGNMENT[1:]) * _ALIGNMENT[1:]
    needs = (sizes[:, 1:] * _ITEM_NBYTES[1:]).sum(1) + window
    groups = []
    for first, count in _divide(needs, budget):
        own, part = sizes[first : first + count], words[first : first + count]
        bases = np.cumsum(own, 0) - own
        bases[:, 0] = offsets[first : first + count]
        totals = own.sum(0) * _ITEM_NBYTES
        nbytes = dict(zip(BASES[1:], totals[1:].tolist(), strict=True))
        groups.append(Group(first, count, np.ascontiguousarray(bases), nbytes, _count_threads(part, window)))
    return groups


def _headers(packets: Array, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The words of each packet, (n, 112)."""
    if (np.diff(offsets) < 4 * _WORDS).any() or int(offsets[-1]) > len(packets):
        raise ArgumentError("packets must be as long as their headers say")
    gathered = packets[offsets[:-1, None] + np.arange(4 * _WORDS)]
    words: NDArray[np.int64] = gathered.view("<i4").astype(np.int64)
    return words


def _divide(needs: NDArray[np.int64], budget: int) -> Iterator[tuple[int, int]]:
    """First image and number of images of each group."""
    first = total = 0
    for i, need in enumerate(needs.tolist()):
        if i > first and (total + need > budget or i - first == _MOST_IMAGES):
            yield first, i - first
            first, total = i, 0
        total += need
    if len(needs):
        yield first, len(needs) - first


def _count_threads(words: NDArray[np.int64], window: int) -> dict[str, int]:
    across, down = words[:, 17], words[:, 27]  # length of both axes
    planes, passes = words[:, 9], words[:, 34]
    width, height = words[:, 12], words[:, 13]
    is_down = np.isin(passes, (1, 4))
    between = np.where(is_down, down * width, height * across) * planes * (passes > 0)
    threads = {
        "entropy": words[:, 8],
        "idct": words[:, 2],
        "color": width * height,
        "taps": (across + down) * (passes > 0),
        "first_pass": between,
        "second_pass": planes * across * down,
    }
    return {name: int(count.max()) for name, count in threads.items()} | {"windows": window, "finish": window}
