"""default_collate beside torch's: the same values of the same dtype, or an error where torch has one."""

from __future__ import annotations

import decimal
import enum
import fractions
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from penstock.collate import ArrayBatch, FrameworkCollate, default_collate  # noqa: E402  # torch decides whether to run


class Animal(enum.IntEnum):
    """Ints with names."""

    CAT = 3
    DOG = 2**40


class Metres(float):
    """Floats with a unit."""

    __slots__ = ()


class Point(NamedTuple):
    """A sample of two parts."""

    x: Any
    y: Any


DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]
REALS = st.floats() | st.sampled_from([0.1, 1e300, -0.0, 65519.9, 65520.0, float(np.float32(0.1))])
EDGES = [2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, -(2**63) - 1, 10**400]
INTS = st.integers(-3, 3) | st.sampled_from(EDGES)


def of_dtype(dtype: str, shape: tuple[int, ...] | None) -> st.SearchStrategy[Any]:
    """Arrays of a dtype; without a shape, scalars."""

    def made(values: list[float]) -> Any:
        with np.errstate(all="ignore"):
            array = np.resize(np.array(values, "f8"), shape or ()).astype(dtype)
        return array[()] if shape is None else array

    return st.lists(st.integers(0, 7) | st.sampled_from([0.1, 100.5]), min_size=1, max_size=4).map(made)


SCALARS = st.sampled_from(DTYPES).flatmap(lambda dtype: of_dtype(dtype, None))
FLAT = st.sampled_from(DTYPES).flatmap(lambda dtype: of_dtype(dtype, ()))
ARRAYS = st.tuples(st.sampled_from(DTYPES), st.sampled_from([(2,), (2,), (2,), (1,), (2, 1), (0,)])).flatmap(
    lambda each: of_dtype(*each)
)
ODD = st.one_of(
    st.none(),
    st.text(max_size=2),
    st.binary(max_size=2),
    st.sampled_from([decimal.Decimal(2), fractions.Fraction(1, 3), object, np.longdouble(1), np.datetime64("2020")]),
    st.sampled_from([np.str_("a"), np.array(["a"]), np.array([None]), [], [1], [1.5, 2], (1, 2), {}, {"a": 1}, {1}]),
)
TENSORS = st.sampled_from([True, False, 2, 0.1, 1j]).map(torch.tensor)
NUMBERS = st.one_of(
    TENSORS, st.booleans(), INTS, REALS, st.complex_numbers(), st.sampled_from([*Animal, Metres(1.5)]), SCALARS, FLAT
)
BATCHES = st.one_of(
    st.lists(st.booleans() | INTS | REALS, min_size=1, max_size=5),
    st.lists(SCALARS | FLAT, min_size=1, max_size=4),
    st.lists(NUMBERS, min_size=1, max_size=4),
    st.lists(NUMBERS | ODD, min_size=1, max_size=4),
    st.lists(ARRAYS, min_size=1, max_size=3),
    st.lists(ARRAYS | NUMBERS | ODD, min_size=1, max_size=3),
)


def outcome(collate: Any, batch: Any) -> Any:
    """Values and dtypes; or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's of slow lists, NumPy's of imaginary parts
        try:
            return plain(collate(batch))
        except Exception as error:  # noqa: BLE001  # whatever it is, both must raise it
            return error


def plain(value: Any) -> Any:
    """Batches of arrays or of tensors as one: dtype, shape and bytes."""
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, np.where(np.isnan(value), 0, value).tobytes(), np.isnan(value).tolist()
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def assert_alike(batch: Any) -> None:
    """What torch gives ours gives, and where torch raises, so does ours, to whoever catches torch's error."""
    wanted, got = outcome(torch.utils.data.default_collate, batch), outcome(default_collate, batch)
    if isinstance(wanted, Exception):
        assert isinstance(got, Exception), f"torch: {wanted!r}, ours: {got}"
        # of several faults either may be the first that is found
        assert isinstance(got, type(wanted)) or len(batch) > 2, f"torch: {wanted!r}, ours: {got!r}"
    else:
        assert not isinstance(got, Exception), f"torch: {wanted}, ours: {got!r}"
        assert got == wanted


def of_numpy_alone(batch: list[Any]) -> bool:
    """Whether all are arrays of one dtype that torch has not, or scalars of one that torch makes no tensor of."""
    unknown = "L" if all(isinstance(each, np.generic) for each in batch) else ""
    dtypes = {each.dtype if isinstance(each, (np.ndarray, np.generic)) else None for each in batch}
    dtype = dtypes.pop()
    return not dtypes and dtype is not None and (dtype.char in unknown or dtype.char not in "?BHILbhilefdFDUSO")


@settings(max_examples=10 * settings().max_examples)
@given(batch=BATCHES)
@example(batch=[1, None])
@example(batch=[1, "2"])
@example(batch=[2**63])
@example(batch=[True, 2])
@example(batch=[np.zeros(1), [0.1]])
def test_mixed_lists_are_collated_as_by_torch(batch: list[Any]) -> None:
    """Whatever comes first, and whatever comes behind it."""
    if not of_numpy_alone(batch):
        assert_alike(batch)


LEAVES = st.one_of(st.integers(-2, 2), st.floats(-2, 2), st.booleans(), st.text(max_size=1), st.none())
SAMPLES = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(inner, inner)
        | st.lists(inner, max_size=2)
        | st.builds(Point, inner, inner)
        | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(first=SAMPLES, rest=st.lists(SAMPLES, max_size=2), times=st.integers(1, 2))
def test_structures_are_collated_as_by_torch(first: Any, rest: list[Any], times: int) -> None:
    """Samples of one structure or of several; those of several are refused where torch refuses them."""
    assert_alike([first] * times + rest)


@pytest.mark.parametrize(
    "batch",
    [[("a", 1), ("b", 2.5)], [{"a": "x"}, {"a": "y"}], [("a", (b"b",)), ("c", (b"d",))], ["a"], [Point("a", 1)]],
)
def test_without_torch_a_batch_is_what_torch_makes(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers of strings, too, which torch leaves as they come."""
    wanted = torch.utils.data.default_collate(batch)
    monkeypatch.delitem(sys.modules, "torch")
    made = FrameworkCollate("torch")(batch)
    monkeypatch.undo()

    assert isinstance(made, ArrayBatch)
    assert types(made.batch) == types(wanted)


def types(value: Any) -> Any:
    """The types of containers, and what is in them."""
    if isinstance(value, dict):
        return {name: types(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [types(each) for each in value]
    return plain(value)
