"""Pickles of plain values are read as `pickle` reads them; whatever else they ask for is refused, and never runs."""

from __future__ import annotations

import collections
import contextlib
import copyreg
import os
import pickle
import pickletools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StoreFormatError
from penstock.stores.pickles.templates import PickleReader
from penstock.stores.pickles.unpickler import restricted_loads

PROTOCOLS = (2, 3, 4, 5)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner) | st.tuples(inner, inner, inner, inner)
    | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
ARRAYS = [
    np.arange(24).reshape(2, 3, 4).astype(dtype)
    for dtype in ("u1", ">u2", "<f4", ">f8", "i8", "?", "f2")
]  # fmt: skip


def same(value: Any) -> Any:
    """A value with views and bytearrays as bytes."""
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return {key: same(each) for key, each in value.items()}
    return type(value)(map(same, value)) if isinstance(value, tuple | list) else value


@given(value=PLAIN, protocol=st.sampled_from(PROTOCOLS))
def test_plain_values_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    """Numbers, text, bytes and containers, in each protocol."""
    content = pickle.dumps(value, protocol)

    assert same(restricted_loads(content)) == value
    assert same(restricted_loads(pickletools.optimize(content))) == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_containers_of_the_standard_library_are_read(protocol: int) -> None:
    """Sets, bytearrays, ordered dicts, objects that occur twice, and lists that contain themselves."""
    shared = [1]
    value = [shared, shared, {2, 3}, frozenset({b"k"}), bytearray(b"x" * 300), bytearray(), b"", b"y" * 70_000]

    read = restricted_loads(pickle.dumps(value, protocol))
    ring: list[Any] = []
    ring.append(ring)
    again = restricted_loads(pickle.dumps(ring, protocol))

    assert same(read) == same(value)
    assert read[0] is read[1]
    assert again[0] is again
    assert restricted_loads(pickle.dumps(collections.OrderedDict(a=1), protocol)) == {"a": 1}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: array.dtype.str)
def test_arrays_are_read(array: Any, protocol: int) -> None:
    """Arrays of any order, axes and byte order are read-only and equal what NumPy itself unpickles."""
    for each in (array, np.asfortranarray(array), array[:, ::2], array[:0], array.sum(), np.array(array[0, 0, 0])):
        read = restricted_loads(pickle.dumps([each, 7], protocol))[0]

        assert np.array_equal(read, each)
        if isinstance(each, np.ndarray):
            assert read.dtype == each.dtype
            assert not read.flags.writeable


def test_text_arrays_and_scalars_are_read() -> None:
    """Text in arrays, and NumPy's scalars as Python's own."""
    values = [np.str_("héllo"), np.int64(-3), np.float32(0.5), np.bool_(True)]

    assert restricted_loads(pickle.dumps(np.array(["a", "bcd"]))).tolist() == ["a", "bcd"]
    assert restricted_loads(pickle.dumps(values)) == ["héllo", -3, 0.5, True]


def test_pickles_of_python_2_are_read() -> None:
    """Their byte strings are bytes."""
    assert restricted_loads(b"\x80\x02U\x03abcK\x05\x86.") == (b"abc", 5)
    assert same(restricted_loads(b"\x80\x02T\x03\x00\x00\x00abcK\x05\x86.")) == (b"abc", 5)


class Runs:
    """An object whose pickle calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


class Plain:
    """An object with attributes."""

    def __init__(self) -> None:
        self.mark = 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_calls_are_refused_by_name_and_do_not_run(tmp_path: Path, protocol: int) -> None:
    """Functions and classes of any module: nothing is imported, called or created."""
    canary = tmp_path / "canary"
    calls = [
        (Runs(os.system, f"touch {canary}"), "posix.system"),
        (Runs(eval, f"open({str(canary)!r}, 'w')"), "eval"),
        (Runs(np.memmap, str(canary), "u1", "w+", 0, (1,)), "numpy.*memmap"),
        (Runs(np.save, str(canary), 1), "numpy.save"),
        (Runs(copyreg._reconstructor, Plain, object, None), "_reconstructor"),  # type: ignore[attr-defined]  # not in the stub
        (Runs(getattr, os, "system"), "getattr"),
        (Plain(), "Plain|_reconstructor|__newobj__"),
        (np.datetime64("2020-01-01"), "dtype"),
        (np.zeros(2, [("a", "u1"), ("b", "O")]), "dtype"),
        (np.array([{}], object), "dtype|O8"),
        (np.ma.masked_array([1]), "numpy.*ma"),
        (os.path, "cannot pickle"),
        (3j, "complex"),
    ]
    for value, name in calls:
        try:
            content = pickle.dumps([(b"x" * 300, value)], protocol)
        except TypeError:
            continue  # a module
        for load in (restricted_loads, lambda content: PickleReader().load(memoryview(content))):
            with pytest.raises(ValueError, match=name):
                load(content)
        assert not canary.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.", "os.system"),
        (b"\x80\x02(X\x04\x00\x00\x00trueios\nsystem\n.", "os.system"),
        (b"\x80\x02Pabc\n.", "outside the pickle"),
        (b"\x80\x02K\x01Q.", "outside the pickle"),
        (b"\x80\x02\x82\x01.", "copyreg"),
        (b"\x80\x04\x8c\x05numpy\x8c\x05dtype\x93)\x81.", "instance"),
        (b"\x80\x04\x8c\x05numpy\x8c\x05dtype\x93}\x8c\x01aK\x01sb.", "state for numpy.dtype"),
        (b"\x80\x04\x8c\x05numpy\x8c\x05dtype\x93.", "numpy.dtype"),
        (b"\x80\x04]\x8c\x05numpy\x8c\x07ndarray\x93a.", "numpy.ndarray"),
        (b"\x80\x04\x8c\x05numpy\x8c\x07ndarray\x93)R.", "a call of numpy.ndarray"),
        (b"\x80\x04\x8c\x07_codecs\x8c\x06encode\x93\x8c\x01a\x8c\x04zlib\x86R.", "encode to zlib"),
        (b"\x80\x04\x8c\x07_codecs\x8c\x06encode\x93\x8c\x01a\x85R.", "with 1 arguments"),
        (b"\x80\x04\x8c\x08builtins\x8c\x05bytes\x93K\xff\x85R.", "bytes of int"),
        (b"\x80\x04}(K\x01\x85K\x01u.", "a key of type tuple"),
        (b"\x80\x04\x8f(K\x01\x85\x90.", "a key of type tuple"),
        (b"\x80\x05\x97.", "a buffer"),
        (b"\x80\x04K\x01}b.", "a state for int"),
        (b"\x80\x04K\x01)R.", "a call of int"),
    ],
)
def test_hand_made_pickles_are_refused(content: bytes, reason: str) -> None:
    """Each operation that makes or changes objects is refused, with what it wanted."""
    with pytest.raises(StoreFormatError, match=reason):
        restricted_loads(content)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x80", b"\x80\x04", b"\x80\x04.", b"\x80\x01K\x01.", b"\x80\x09K\x01.", b"I1\n.", b"\x80\x04K\x01",
        b"\x80\x04K\x01K\x02.", b"\x80\x04(K\x01.", b"\x80\x04\x86.", b"\x80\x04(\x860.", b"\x80\x04h\x00.",
        b"\x80\x04e.", b"\x80\x04K\x01K\x02a.", b"\x80\x04}K\x01a.", b"\x80\x04](K\x01u.", b"\x80\x04}(K\x01u.",
        b"\x80\x04B\xff\xff\xff\xffx.", b"\x80\x04\x8e" + b"\xff" * 8 + b".", b"\x80\x05\x96" + b"\x7f" * 8 + b".",
        b"\x80\x04\x95" + b"\xff" * 8 + b"K\x01",
        b"\x80\x04\x8b\xff\xff\xff\x7f.", b"\x80\x04\x8a\x20" + b"\1" * 32 + b".",
        b"\x80\x04X\x02\x00\x00\x00\xff\xff.", b"\x80\x04C\x05a.", b"\x80\x04\x8c\x05a.", b"\x80\x04\xff.",
        b"\x80\x02c" + b"a" * 9999,
    ],
)  # fmt: skip
def test_damaged_pickles_are_value_errors(content: bytes) -> None:
    """Lengths are not trusted, the stack does not underflow."""
    with pytest.raises(ValueError, match=r"pickle|utf-8"):
        restricted_loads(content)


def test_bombs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memo index, nested tuples as keys, nesting and containers cost no more than their bytes."""
    far = b"\x80\x04K\x01r\xff\xff\xff\xff."
    deep = b"\x80\x04)" + b"\x85" * 100_000 + b"."
    doubled = b"\x80\x04)" + b"2\x86" * 500 + b"."

    with pytest.raises(ValueError, match="remembers a value as number 4294967295"):
        restricted_loads(far)
    assert type(restricted_loads(deep)) is tuple
    assert type(restricted_loads(doubled)) is tuple
    monkeypatch.setattr("penstock.stores.pickles.unpickler._MAX_CONTAINERS", 1000)
    with pytest.raises(ValueError, match="more than 1000 containers"):
        restricted_loads(b"\x80\x04(" + b"\x8f" * 1001 + b"t.")
    with pytest.raises(StoreFormatError, match="key"):
        restricted_loads(b"\x80\x04})" + b"2\x86" * 500 + b"K\x01s.")


@pytest.mark.parametrize(
    ("value", "call"),
    [
        (b"X" + (1000).to_bytes(4, "little") + b"a" * 1000, b"c_codecs\nencode\nh\x00\x8c\x06latin1\x86R"),
        (b"](" + b"".join(b"M" + n.to_bytes(2, "little") for n in range(1000)) + b"e", b"cbuiltins\nset\nh\x00\x85R"),
        (b"](" + b"K\x01N\x86" * 1000 + b"e", b"ccollections\nOrderedDict\nh\x00\x85R"),
    ],
    ids=["text", "set", "dict"],
)
def test_a_value_is_not_copied_over_and_over(value: bytes, call: bytes) -> None:
    """Calls copy no more values than the pickle has bytes, however often it names one of them."""
    once = b"\x80\x04(" + value + b"q\x00" + call + b"t."
    often = b"\x80\x04(" + value + b"q\x00" + call * 100 + b"t."

    assert len(restricted_loads(once)) == 2
    with pytest.raises(ValueError, match="copies"):
        restricted_loads(often)


@pytest.mark.parametrize(
    "state",
    [
        (1, (2**39, 2**39), "u1", False, b"x" * 16),
        (1, (-1,), "u1", False, b""),
        (1, (4,), "u1", False, b"abc"),
        (1, (4,), "O", False, b"abcd"),
        (1, (1,), "u1", False, [1]),
        (1, (True,), "u1", False, b"a"),
        (1, 1.5, "u1", False, b"a"),
        (1,),
    ],
)
def test_arrays_have_the_bytes_they_say(state: tuple[Any, ...]) -> None:
    """The shape of an array is checked against its bytes."""

    class Written:
        def __reduce__(self) -> Any:
            shape = tuple(np.dtype(each) if type(each) is str else each for each in state)
            return np.zeros(0).__reduce__()[0], (np.ndarray, (0,), b"b"), shape

    with pytest.raises(ValueError, match=r"array|dtype|shape"):
        restricted_loads(pickle.dumps(Written(), 4))


SEEDS = [
    pickle.dumps(value, protocol)
    for protocol in PROTOCOLS
    for value in (
        (b"x" * 40, 3), (ARRAYS[0], 5), ARRAYS[1], [b"0", b"1"], {"image": b"abc", "label": np.int64(3)},
        (np.asfortranarray(ARRAYS[2]), "text"), {1, 2}, [1.5, None, True, -(2**40)],
    )
]  # fmt: skip


@pytest.mark.parametrize("action", ["error", "ignore"])
def test_a_backslash_in_a_name_is_refused(action: str) -> None:
    """pickletools warns of it, which is an error under ``-W error``; nothing but a ValueError is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter(action)  # type: ignore[arg-type]  # one of its words
        with pytest.raises(ValueError, match=r"damaged|refused"):
            restricted_loads(b"\x80\x02c_codecs\nen\\code\n.")


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"\x80\x04" + tail))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    """Random bytes give a value or a ValueError (StoreFormatError is one)."""
    with contextlib.suppress(ValueError):
        restricted_loads(content)


@given(seed=st.sampled_from(SEEDS), edits=st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), max_size=4))
def test_changed_pickles_are_read_or_refused(seed: bytes, edits: list[tuple[int, bytes]]) -> None:
    """Real pickles with bytes changed, inserted and cut."""
    content = seed
    for at, new in edits:
        place = at % (len(content) + 1)
        content = content[:place] + new + content[place + 1 :]

    with contextlib.suppress(ValueError):
        restricted_loads(content)


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=400) | st.integers(1, 40).map(lambda n: np.full((n, 3, 3), n, np.uint8)),
            st.integers(-3, 70_000) | st.none() | st.text(max_size=2) | st.lists(st.integers(), max_size=2),
            st.sampled_from((3, 4, 5)),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_templates_change_nothing(values: list[tuple[Any, Any, int, bool]]) -> None:
    """A reader that learned from other pickles reads each as the general reader does."""
    reader = PickleReader()

    for image, label, protocol, is_alone in values * 2:
        content = memoryview(pickle.dumps(image if is_alone else (image, label), protocol))
        first, wanted = reader.load(content), restricted_loads(content)
        if isinstance(image, np.ndarray):
            pair, other = ((first,), (wanted,)) if is_alone else (first, wanted)
            assert np.array_equal(pair[0], other[0])
            assert pair[0].dtype == other[0].dtype
            assert pair[1:] == other[1:]
        else:
            assert first == wanted


@given(seed=st.sampled_from(SEEDS), changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3))
def test_templates_read_changed_pickles_as_the_general_reader(seed: bytes, changes: list[tuple[int, int]]) -> None:
    """After the true pickle was learned, a changed one gives the same value or is refused too."""
    reader = PickleReader()
    reader.load(memoryview(seed))
    content = bytearray(seed)
    for at, value in changes:
        content[at % len(content)] = value

    try:
        wanted = restricted_loads(bytes(content))
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011  # any: the general reader's own
            reader.load(memoryview(bytes(content)))
    else:
        assert repr(same(reader.load(memoryview(bytes(content))))) == repr(same(wanted))
