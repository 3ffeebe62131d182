"""Writes progressive JPEGs from coefficients by any script of scans (ITU-T T.81, annex G), which Pillow cannot.

Pictures are noise: what a decoder makes of them is for libjpeg to say.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

RUN_LIMIT = 0x7FFF


@dataclass(frozen=True)
class Scan:
    """One scan: places of components, zigzag band, the lowest bit sent before (0: nothing was) and now."""

    components: tuple[int, ...]
    first: int
    last: int
    before: int
    shift: int


@dataclass
class Picture:
    """Size, sampling factors per component, and coefficients per component: (block rows, block columns, 64)."""

    width: int
    height: int
    factors: Sequence[tuple[int, int]]
    planes: list[NDArray[np.int64]]

    @classmethod
    def noise(cls, width: int, height: int, factors: Sequence[tuple[int, int]], rng: random.Random) -> Picture:
        """Sparse coefficients, smaller towards high frequencies, in whole MCUs."""
        numbers = np.random.default_rng(rng.randrange(1 << 32))
        across, down = (max(f[i] for f in factors) for i in (0, 1))
        columns, rows = -(-width // (8 * across)), -(-height // (8 * down))
        planes = []
        for h, v in factors:
            spread = 60 / (1 + np.arange(64)) ** rng.choice([0.5, 1, 1.5])
            plane = numbers.laplace(0, spread, (rows * v, columns * h, 64)).round().astype(np.int64)
            plane *= numbers.random(plane.shape) < rng.choice([0.1, 0.5, 1])
            plane[numbers.random(plane.shape[:2]) < rng.choice([0, 0.5, 0.95]), 1:] = 0  # runs of empty blocks
            plane[..., 0] = numbers.integers(-300, 300, plane.shape[:2])
            planes.append(plane)
        return cls(width, height, factors, planes)

    def grid(self, scan: Scan) -> Iterator[list[tuple[int, int, int]]]:
        """The MCUs of a scan: (component, block row, block column) of each of its blocks."""
        across, down = (max(f[i] for f in self.factors) for i in (0, 1))
        if len(scan.components) == 1:
            (c,) = scan.components
            h, v = self.factors[c]
            columns = -(-self.width * h // (8 * across))
            rows = -(-self.height * v // (8 * down))
            yield from ([(c, row, column)] for row in range(rows) for column in range(columns))
            return
        columns, rows = -(-self.width // (8 * across)), -(-self.height // (8 * down))
        for row in range(rows):
            for column in range(columns):
                yield [
                    (c, row * self.factors[c][1] + y, column * self.factors[c][0] + x)
                    for c in scan.components
                    for y in range(self.factors[c][1])
                    for x in range(self.factors[c][0])
                ]


def random_script(components: int, rng: random.Random, *, complete: bool = True) -> list[Scan]:
    """Scans in a random order that sends each coefficient once, then bit by bit.

    With ``complete=False`` some bands from the tenth zigzag position on, which no decoder makes up, are never sent, and
    some of theirs and of the DC coefficients' lowest bits neither.
    """
    chains: list[list[Scan]] = []
    places = list(range(components))
    groups = [tuple(places)] if rng.random() < 0.6 else [(c,) for c in places]
    if components == 3 and rng.random() < 0.2:
        groups = [(0,), (1, 2)]
    for group in groups:
        stop = rng.randint(0, 1) if not complete else 0
        chains.append(_bits(group, 0, 0, rng.randint(stop, 3), stop))
    for c in places:
        edges = sorted({1, 10, *rng.sample(range(2, 64), rng.randint(0, 4)), 64})
        for first, end in itertools.pairwise(edges):
            if not complete and first >= 10 and rng.random() < 0.5:
                continue
            stop = rng.randint(0, 1) if not complete and first >= 10 else 0
            chains.append(_bits((c,), first, end - 1, rng.randint(stop, 3), stop))
    script: list[Scan] = []
    begun: set[int] = set()
    while any(chains):
        ready = [chain for chain in chains if chain and (chain[0].first == 0 or chain[0].components[0] in begun)]
        script.append(rng.choice(ready).pop(0))
        if script[-1].first == 0:
            begun.update(script[-1].components)
    return script


def _bits(components: tuple[int, ...], first: int, last: int, shift: int, stop: int) -> list[Scan]:
    refining = [Scan(components, first, last, bit + 1, bit) for bit in range(shift - 1, stop - 1, -1)]
    return [Scan(components, first, last, 0, shift), *refining]


def write(picture: Picture, script: Sequence[Scan], rng: random.Random, *, restarts: bool = False) -> bytes:
    """The file: JFIF, 8 bits, one quantisation table, a Huffman table per scan with codes of all lengths."""
    steps = bytes(rng.randint(1, 12) for _ in range(64))
    frame = picture.height.to_bytes(2, "big") + picture.width.to_bytes(2, "big") + bytes([len(picture.planes)])
    for c, (h, v) in enumerate(picture.factors):
        frame += bytes([c + 1, h << 4 | v, 0])
    parts = [
        b"\xff\xd8",
        segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"),
        segment(0xDB, b"\0" + steps),
        segment(0xC2, b"\x08" + frame),
    ]
    for scan in script:
        interval = rng.choice([0, 1, 3, 20]) if restarts else 0
        if restarts:
            parts.append(segment(0xDD, interval.to_bytes(2, "big")))
        parts.append(_scan(picture, scan, rng, interval))
    return b"".join([*parts, b"\xff\xd9"])


def segment(marker: int, body: bytes) -> bytes:
    """A marker segment."""
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


@dataclass
class _Coder:
    """What a scan writes: symbols to be coded, and bits as they are."""

    scan: Scan
    #: Per restart interval, in order: (symbol, or -1; bits; their number).
    written: list[tuple[int, int, int]] = field(default_factory=list)
    run: int = 0
    pending: list[int] = field(default_factory=list)
    predictors: dict[int, int] = field(default_factory=dict)

    def symbol(self, symbol: int, bits: int = 0, count: int = 0) -> None:
        self.written.append((symbol, bits, count))

    def corrections(self, bits: list[int]) -> None:
        self.written += [(-1, bit, 1) for bit in bits]

    def end_run(self) -> None:
        if self.run:
            size = self.run.bit_length() - 1
            self.symbol(size << 4, self.run & ((1 << size) - 1), size)
            self.corrections(self.pending)
        self.run, self.pending = 0, []

    def block(self, component: int, block: NDArray[np.int64]) -> None:
        scan = self.scan
        if scan.first == 0:
            self._dc(component, int(block[0]))
        elif scan.before == 0:
            self._band([int(value) for value in block[scan.first : scan.last + 1]])
        else:
            self._refined([int(value) for value in block[scan.first : scan.last + 1]])
        if self.run == RUN_LIMIT:
            self.end_run()

    def _dc(self, component: int, dc: int) -> None:
        dc >>= self.scan.shift
        if self.scan.before:
            self.corrections([dc & 1])
            return
        difference = dc - self.predictors.get(component, 0)
        self.predictors[component] = dc
        self.symbol(*coded_value(0, difference))

    def _band(self, values: list[int]) -> None:
        zeros = 0
        for value in values:
            kept = (abs(value) >> self.scan.shift) * (1 if value > 0 else -1)
            if kept == 0:
                zeros += 1
                continue
            self.end_run()
            while zeros > 15:
                self.symbol(0xF0)
                zeros -= 16
            self.symbol(*coded_value(zeros, kept))
            zeros = 0
        self.run += zeros > 0

    def _refined(self, values: list[int]) -> None:
        sizes = [abs(value) >> self.scan.shift for value in values]
        last_new = max((k for k, size in enumerate(sizes) if size == 1), default=-1)
        zeros, bits = 0, list[int]()
        for k, (value, size) in enumerate(zip(values, sizes, strict=True)):
            if size == 0:
                zeros += 1
                continue
            while zeros > 15 and k <= last_new:
                self.end_run()
                self.symbol(0xF0)
                self.corrections(bits)
                zeros, bits = zeros - 16, []
            if size > 1:
                bits.append(size & 1)
                continue
            self.end_run()
            self.symbol(zeros << 4 | 1, int(value > 0), 1)
            self.corrections(bits)
            zeros, bits = 0, []
        if zeros or bits:
            self.run += 1
            self.pending += bits


def coded_value(zeros: int, value: int) -> tuple[int, int, int]:
    """Symbol, bits and their number for a value behind so many zeros."""
    size = abs(value).bit_length()
    return zeros << 4 | size, value if value > 0 else value + (1 << size) - 1, size


def _scan(picture: Picture, scan: Scan, rng: random.Random, interval: int) -> bytes:
    intervals, coder = [], _Coder(scan)
    for number, mcu in enumerate(picture.grid(scan)):
        if interval and number and number % interval == 0:
            coder.end_run()
            intervals.append(coder.written)
            coder = _Coder(scan)
        for component, row, column in mcu:
            coder.block(component, picture.planes[component][row, column])
    coder.end_run()
    intervals.append(coder.written)
    counts = Counter(symbol for written in intervals for symbol, _, _ in written if symbol >= 0)
    codes, table = codes_of(counts, rng)
    header = bytes([len(scan.components), *(b for c in scan.components for b in (c + 1, 0))])
    header += bytes([scan.first, scan.last, scan.before << 4 | scan.shift])
    coded = b""
    for number, written in enumerate(intervals):
        coded += (bytes([0xFF, 0xD0 + (number - 1) % 8]) if number else b"") + packed(written, codes)
    tables = segment(0xC4, bytes([0x10 if scan.first else 0]) + table) if codes else b""
    return tables + segment(0xDA, header) + coded


def codes_of(counts: Counter[int], rng: random.Random) -> tuple[dict[int, str], bytes]:
    """Codes by symbol, and the table's declaration. Weights are random, so that lengths up to 16 occur."""
    if not counts:
        return {}, b""
    weights = {symbol: rng.random() ** 6 for symbol in counts}
    heap = [(weight, symbol, [symbol]) for symbol, weight in weights.items()]
    heapq.heapify(heap)
    lengths = dict.fromkeys([*counts, -1], 0)
    heapq.heappush(heap, (0.0, -1, [-1]))  # stands for the code of all ones, which no symbol may have
    while len(heap) > 1:
        a, b = heapq.heappop(heap), heapq.heappop(heap)
        for symbol in a[2] + b[2]:
            lengths[symbol] += 1
        heapq.heappush(heap, (a[0] + b[0], min(a[1], b[1]), a[2] + b[2]))
    if max(lengths.values()) > 16:
        lengths = dict.fromkeys(lengths, 8)
    del lengths[-1]
    ordered = sorted(lengths, key=lambda symbol: (lengths[symbol], symbol))
    codes, code, before = {}, 0, 0
    for symbol in ordered:
        code <<= lengths[symbol] - before
        before = lengths[symbol]
        codes[symbol] = f"{code:0{before}b}"
        code += 1
    by_length = Counter(lengths.values())
    return codes, bytes(by_length[length] for length in range(1, 17)) + bytes(ordered)


def packed(written: list[tuple[int, int, int]], codes: dict[int, str]) -> bytes:
    """The entropy-coded bytes of some symbols, stuffed."""
    bits = "".join(
        (codes[symbol] if symbol >= 0 else "") + (f"{value:0{count}b}" if count else "")
        for symbol, value, count in written
    )
    bits += "1" * (-len(bits) % 8)
    return int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")[1:].replace(b"\xff", b"\xff\0")
