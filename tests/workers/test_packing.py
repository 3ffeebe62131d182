"""Packing is pickling, with the large buffers somewhere else."""

from __future__ import annotations

import collections
import copyreg
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.workers.processes.batch_encoding import pack, pack_state, unpack, unpack_state
from penstock.workers.processes.memory import ALIGNMENT, ParentSlots, WorkerMemory

Point = collections.namedtuple("Point", "x y")  # noqa: PYI024  # as user code has them, untyped

ARRAYS = hnp.arrays(
    st.one_of(hnp.scalar_dtypes(), hnp.array_dtypes(max_size=2)), hnp.array_shapes(min_dims=0, min_side=0, max_side=40)
)
TREES = st.recursive(
    st.one_of(ARRAYS, st.integers(), st.text(), st.none(), st.binary(max_size=10_000)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=3), st.builds(Point, inner, inner)
    ),
    max_leaves=8,
)


def carried(batch: Any, memory: WorkerMemory | None = None) -> Any:
    """``batch`` packed and unpacked again."""
    worker, parent = memory or WorkerMemory(), ParentSlots()
    pickled, spans = pack(batch, worker)
    report, fds = worker.finish(spans)
    parent.add(report.new, fds)
    for slot in worker._slots:
        slot.fd = None  # the parent has closed it
    return unpack(pickled, spans, parent)


@given(TREES)
def test_a_batch_comes_as_a_pickle_would_bring_it(batch: Any) -> None:
    """Whatever is in it: dtypes, orders, empty arrays, structures; and pickled again, both are the same."""
    came = carried(batch)

    assert pickle.dumps(pickle.loads(pickle.dumps(came))) == pickle.dumps(pickle.loads(pickle.dumps(batch)))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(60_000.0).reshape(200, 300)[::2, ::3],
        np.asfortranarray(np.arange(60_000.0).reshape(200, 300)),
        np.arange(60_000.0).reshape(200, 300).T,
        np.broadcast_to(np.float32(3), (200, 300)),
        np.arange(60_000.0)[::-1],
        np.ma.masked_less(np.arange(60_000.0), 7),
        np.array([{"a": 1}, None] * 3000, object),
        np.zeros(9000, [("a", "<i4"), ("b", "u1", (3,))]),
    ],
    ids=["steps", "fortran", "transposed", "broadcast", "backwards", "masked", "objects", "fields"],
)
def test_layouts_of_arrays(array: Any) -> None:
    """Content, dtype, shape and type come; the consumer may write into what it got."""
    came = carried(array)
    equal = bool((came == array).all())
    came[...] = came[..., :1]

    assert equal
    assert (type(came), came.dtype, came.shape) == (type(array), array.dtype, array.shape)


def test_one_array_in_two_spans_is_one_array() -> None:
    """As a pickle keeps what is the same the same."""
    array = np.zeros(5000)
    one, two = carried([array, array])
    one[7] = 3

    assert two[7] == 3


@given(st.lists(st.integers(0, 20_000), max_size=12))
def test_large_buffers_lie_on_pages_and_small_ones_in_the_pickle(sizes: list[int]) -> None:
    """From a page on, an array is where a device can copy it from; below, a slot would cost more than a copy."""
    worker = WorkerMemory()
    pickled, spans = pack([np.full(size, 7, np.uint8) for size in sizes], worker)
    worker.begin()
    worker._free.clear()

    assert [nbytes for _, _, nbytes in spans] == [size for size in sizes if size >= ALIGNMENT]
    assert all(start % ALIGNMENT == 0 for _, start, _ in spans)
    assert len(pickled) >= sum(size for size in sizes if size < ALIGNMENT)


def test_what_lies_in_the_batchs_memory_is_not_copied() -> None:
    """Collation wrote where the parent will read: packing names the place, also of a part of it."""
    worker = WorkerMemory()
    worker.begin()
    array = worker.allocate((100, 100), np.float32)
    _, spans = pack([array, array[50:]], worker)

    assert spans == [(1, 0, 40_000), (1, 20_000, 20_000)]


def test_what_cannot_be_pickled_is_pickles_error() -> None:
    """Nothing is swallowed; the caller says which batch it was."""
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pack([np.zeros(5000), lambda: None], WorkerMemory())


@given(st.one_of(st.none(), st.dictionaries(st.text(), st.one_of(st.integers(), st.none(), st.lists(st.text())))))
def test_a_state_is_none_or_pickled(state: Any) -> None:
    """None, the usual one, costs nothing."""
    packed = pack_state(state)

    assert (packed is None) == (state is None)
    assert unpack_state(packed) == state


class Late:
    """Cannot be pickled, until somebody says how."""

    def __reduce__(self) -> Any:
        raise TypeError("not yet")


def test_what_is_registered_later_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is not forked imports torch, which says how its own are pickled, after this module."""
    with pytest.raises(TypeError, match="not yet"):
        carried([Late()])
    reductions = ((copyreg.dispatch_table, "copyreg"), (ForkingPickler._extra_reducers, "multiprocessing"))  # type: ignore[attr-defined]  # typeshed leaves it out
    for table, name in reductions:
        monkeypatch.setitem(table, Late, lambda _, name=name: (str, (name,)))

        assert carried([Late()]) == [name]
