"""Writes sequential JPEGs from coefficients (ITU-T T.81, annex F), in any division into scans, with any colour markers.

Pillow writes one scan, three samplings, and one way to say what the components mean.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.native.progressive_writer import Picture, Scan, coded_value, codes_of, packed, segment

AC = 256
"""Added to the symbols of the AC table, to tell them from those of the DC table."""


def write_sequential(
    picture: Picture,
    groups: Sequence[tuple[int, ...]],
    rng: random.Random,
    *,
    restarts: bool = False,
    ids: Sequence[int] | None = None,
    jfif: bool = True,
    adobe: int | None = None,
) -> bytes:
    """The file: 8 bits, a quantisation table for each component, a DC and an AC table for each scan.

    ``groups`` are the components of each scan, ``ids`` what the file calls the components, ``adobe`` the transform in
    Adobe's marker, if it has one.
    """
    ids = ids or range(1, len(picture.planes) + 1)
    parts = [b"\xff\xd8"]
    if jfif:
        parts.append(segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"))
    if adobe is not None:
        parts.append(segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([adobe])))
    frame = b"\x08" + picture.height.to_bytes(2, "big") + picture.width.to_bytes(2, "big") + bytes([len(ids)])
    for c, (h, v) in enumerate(picture.factors):
        frame += bytes([ids[c], h << 4 | v, c])
        parts.append(segment(0xDB, bytes([c, *(rng.randint(1, 12) for _ in range(64))])))
    parts.append(segment(0xC1, frame))  # extended: baseline has two tables of a kind at most
    for group in groups:
        interval = rng.choice([0, 1, 3, 20]) if restarts else 0
        if restarts:
            parts.append(segment(0xDD, interval.to_bytes(2, "big")))
        parts.append(_scan(picture, group, rng, interval, ids))
    return b"".join([*parts, b"\xff\xd9"])


def _scan(picture: Picture, group: tuple[int, ...], rng: random.Random, interval: int, ids: Sequence[int]) -> bytes:
    intervals: list[list[tuple[int, int, int]]] = [[]]
    predictors = dict.fromkeys(group, 0)
    for number, mcu in enumerate(picture.grid(Scan(group, 0, 63, 0, 0))):
        if interval and number and number % interval == 0:
            intervals.append([])
            predictors = dict.fromkeys(group, 0)
        for component, row, column in mcu:
            block = picture.planes[component][row, column]
            intervals[-1] += _symbols(block, predictors[component])
            predictors[component] = int(block[0])
    counts = Counter(symbol for written in intervals for symbol, _, _ in written)
    dc, dc_table = codes_of(Counter({symbol: n for symbol, n in counts.items() if symbol < AC}), rng)
    ac, ac_table = codes_of(Counter({symbol - AC: n for symbol, n in counts.items() if symbol >= AC}), rng)
    codes = dc | {symbol + AC: code for symbol, code in ac.items()}
    table = rng.randrange(4)
    header = bytes([len(group), *(b for c in group for b in (ids[c], table << 4 | table)), 0, 63, 0])
    data = b""
    for number, written in enumerate(intervals):
        data += (bytes([0xFF, 0xD0 + (number - 1) % 8]) if number else b"") + packed(written, codes)
    tables = segment(0xC4, bytes([table]) + dc_table + bytes([0x10 | table]) + ac_table)
    return tables + segment(0xDA, header) + data


def _symbols(block: NDArray[np.int64], predictor: int) -> list[tuple[int, int, int]]:
    symbols = [coded_value(0, int(block[0]) - predictor)]
    zeros = 0
    for value in block[1:].tolist():
        if value == 0:
            zeros += 1
            continue
        while zeros > 15:
            symbols.append((AC + 0xF0, 0, 0))
            zeros -= 16
        symbol, bits, count = coded_value(zeros, value)
        symbols.append((AC + symbol, bits, count))
        zeros = 0
    if zeros:
        symbols.append((AC, 0, 0))
    return symbols
