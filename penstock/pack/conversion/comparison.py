"""Compares two stores record by record: keys, order, and every field, by bytes, pixels or values.

Both are read anew, in several threads; nothing that was kept in memory while one of them was written is used. Called by
:mod:`penstock.pack.conversion.run`. The digests of the two sides are of what was read, in one form for all kinds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import xxhash

from penstock.errors import PenstockError
from penstock.sample import Array, Record, Schema
from penstock.stores.base import Store
from penstock.stores.problems import Problem

__all__ = ["Comparison", "Unreadable", "choose_step", "compare", "hash_fields", "hash_value", "is_equal", "read_each"]

_TASK_NBYTES: Final = 4 << 20
_MAX_TASK_RECORDS: Final = 1024
_MAX_LISTED: Final = 1000
_MANTISSA_BITS: Final = {2: 10, 4: 23, 8: 52}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of :func:`compare`."""

    records: int  # number of records that were compared
    source: str
    written: str
    """``source`` and ``written``: digest of the records of either side: of keys and all fields, in order. Equal where
    everything is equal."""
    problems: tuple[Problem, ...]  # the differences, at most 1000


def compare(
    source: Store,
    written: Store,
    numbers: Sequence[int],
    *,
    workers: int,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Comparison:
    """Compare the records ``numbers`` of a source, in this order, with all records of the store that was written.

    Parameters
    ----------
    source, written : Store
        The two sides; they may be read from several threads.
    numbers : sequence of int
        Indices in the source of the records that were written.
    workers : int
        Number of threads.
    report : callable, optional
        Called with the number of records done and of all records.
    """
    problems: list[Problem] = []
    if len(written) != len(numbers):
        problems.append(Problem(f"it must have {len(numbers)} records, got {len(written)}"))
    count = min(len(numbers), len(written))
    names = list(source.schema.fields)
    if missing := [name for name in names if name not in written.schema]:
        problems.append(Problem(f"it lacks the fields {', '.join(missing)}"))
    problems += _compare_classes(source.schema, written.schema)
    sides = xxhash.xxh3_128(), xxhash.xxh3_128()
    shared = [name for name in names if name not in missing]

    def compare_some(first: int) -> tuple[int, bytes, bytes, list[Problem]]:
        rows = range(first, min(first + step, count))
        return _compare_rows(source, written, [numbers[row] for row in rows], rows, shared)

    step = choose_step(source, numbers, _MAX_TASK_RECORDS)
    done = 0
    with ThreadPoolExecutor(workers, thread_name_prefix="penstock-compare") as pool:
        for compared, one, other, found in pool.map(compare_some, range(0, count, step)):
            sides[0].update(one)
            sides[1].update(other)
            problems += found[: max(0, _MAX_LISTED - len(problems))]
            done += compared
            report(done, count)
    return Comparison(count, sides[0].hexdigest(), sides[1].hexdigest(), tuple(problems))


def choose_step(store: Store, first: Sequence[int], most: int) -> int:
    """Number of records of a task: at most ``most``, as many as fit into some megabytes, by the first record."""
    try:
        record = store.read(first[:1])[0] if first else None
    except PenstockError:
        return 1
    large = [] if record is None else [record.fields[name] for name in store.schema.blobs]
    nbytes = sum(memoryview(value).nbytes for value in large if value is not None)
    return max(1, min(most, _TASK_NBYTES // max(nbytes, 1)))


def _compare_rows(
    source: Store, written: Store, numbers: Sequence[int], rows: Iterable[int], names: Sequence[str]
) -> tuple[int, bytes, bytes, list[Problem]]:
    """Compare some records; returns their number, the hashes of either side, and the differences."""
    problems: list[Problem] = []
    hashes: tuple[list[bytes], list[bytes]] = [], []
    wanted = list(read_each(source, numbers))
    found = list(read_each(written, rows))
    for row, want, have in zip(rows, wanted, found, strict=True):
        for side, record in zip(hashes, (want, have), strict=True):
            side.append(record.error.encode() if isinstance(record, Unreadable) else hash_fields(record, names))
        if isinstance(want, Unreadable) or isinstance(have, Unreadable):
            sides = (("in the source", want), ("what was written", have))
            problems += [
                Problem(f"{side} cannot be read: {each.error}", index=row)
                for side, each in sides
                if isinstance(each, Unreadable)
            ]
        elif hashes[0][-1] != hashes[1][-1]:
            problems += [Problem(reason, want.key, row) for reason in _describe_differences(want, have, names)]
    return len(numbers), b"".join(hashes[0]), b"".join(hashes[1]), problems


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that could not be read, and why."""

    error: str


def read_each(store: Store, indices: Iterable[int]) -> Iterator[Record | Unreadable]:
    """Some records, read at once; each alone where one of them cannot be read."""
    indices = list(indices)
    try:
        yield from store.read(indices)
    except PenstockError:
        for index in indices:
            try:
                yield store.read([index])[0]
            except PenstockError as error:
                yield Unreadable(error.message)


def _describe_differences(want: Record, have: Record, names: Sequence[str]) -> Iterator[str]:
    if want.key != have.key:
        yield f"its key is {have.key!r}, in the source {want.key!r}"
    for name in names:
        one, other = want.fields[name], have.fields[name]
        if not is_equal(one, other):
            if isinstance(one, bytes | bytearray | memoryview) or getattr(one, "ndim", 0) > 1:
                yield f"its {name} is not that of the source"
            else:
                yield f"its {name} is {other!r:.80}, in the source {one!r:.80}"


def _compare_classes(source: Schema, written: Schema) -> Iterator[Problem]:
    for name, field in source.fields.items():
        if name in written and field.classes and written[name].classes != field.classes:
            yield Problem(f"the classes of its {name} are not those of the source")


def is_equal(one: object, other: object) -> bool:
    """Return whether two values of a field are equal, as :func:`hash_value` says it."""
    return hash_value(one) == hash_value(other)


def hash_fields(record: Record, names: Sequence[str]) -> bytes:
    """A hash of the key and of some fields of a record."""
    parts = [xxhash.xxh3_128_digest(record.key.encode(errors="surrogateescape"))]
    return b"".join((*parts, *(hash_value(record.fields[name]) for name in names)))


def hash_value(value: object) -> bytes:
    """A hash of the value of a field: equal for values that mean the same, whatever kind of store gives them.

    Numbers are equal by value: 1 and 1.0, NaN and NaN, not 0.0 and -0.0. Arrays are equal by shape and values if both
    hold booleans, integers or floats: floats by all bits, as 64-bit ones. Pixels and encoded bytes are compared byte by
    byte.
    """
    if value is None:
        return xxhash.xxh3_128_digest(b"n")
    if isinstance(value, bytes | bytearray | memoryview):
        return xxhash.xxh3_128_digest(value)
    if isinstance(value, str):
        return xxhash.xxh3_128_digest(b"s" + value.encode(errors="surrogateescape"))
    if isinstance(value, int | float | np.integer | np.floating):
        return xxhash.xxh3_128_digest(b"f" + _number_text(value))
    if isinstance(value, np.ndarray):
        return _hash_array(value)
    text = json.dumps(value, sort_keys=True, default=str)
    return xxhash.xxh3_128_digest(b"j" + text.encode())


def _number_text(value: object) -> bytes:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float) and number.is_integer() and (number or math.copysign(1, number) > 0):
        number = int(number)
    return b"nan" if isinstance(number, float) and math.isnan(number) else repr(number).encode()


def _hash_array(value: Array) -> bytes:
    kind = value.dtype.kind
    if value.ndim >= 3 or kind not in "iuf":
        plain = value.astype(value.dtype.newbyteorder("<"), copy=False)
    elif kind == "f":
        plain = _widen(value.astype(value.dtype.newbyteorder("="), copy=False))
    else:  # one that int64 does not hold stays unsigned
        plain = value.astype("<u8" if kind == "u" and (value >= np.uint64(2**63)).any() else "<i8")
    state = xxhash.xxh3_128(f"{plain.dtype.str}{value.shape}".encode())
    state.update(plain.tobytes())
    return state.digest()


def _widen(value: Array) -> Array:
    """Widen floats to 64 bits, with the sign and the payload of each NaN: a processor changes those that signal."""
    with np.errstate(invalid="ignore"):
        wide = value.astype("<f8")
    is_nan = np.isnan(value)
    if value.itemsize in _MANTISSA_BITS and is_nan.any():
        bits = value[is_nan].view(f"u{value.itemsize}").astype(np.uint64)
        shift = np.uint64(52 - _MANTISSA_BITS[value.itemsize])
        sign = bits >> np.uint64(8 * value.itemsize - 1) << np.uint64(63)
        wide.view("<u8")[is_nan] = sign | np.uint64(0x7FF << 52) | bits << shift & np.uint64((1 << 52) - 1)
    return wide
