"""Parts of packs at random, behind checksums that hold: whatever is there is read as it is, or refused.

The cases that were found by this, or by thought, are in ``test_hostile_packs.py``.
"""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptRecordError, StoreError
from tests.stores.lmdb_pack.crafted import COUNT, Crafted, seal, use

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, COUNT, 2**31, 2**63, 2**64, -(2**70), 0.5, -0.0, float("nan"), float("inf"), 1e300])
    | st.sampled_from(["", "image", "label", "text", "int", "float32[4]", "float32[99999999,99999999]", "\ud800", "5"])
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
META_PATHS: list[tuple[Any, ...]] = [
    (), ("format",), ("version",), ("complete",), ("count",), ("nbytes",), ("content",), ("source",),
    ("columns",), ("columns", "label"), ("columns", "image"), ("columns", "../x"),
    ("skipped",), ("skipped", 0), ("skipped", 0, 0), ("skipped", 0, 1),
    ("schema",), ("schema", "label"), ("schema", "label", "kind"), ("schema", "label", "classes"),
    ("schema", "image", "kind"), ("schema", "vector", "kind"), ("schema", "boxes", "kind"), ("schema", "more"),
]  # fmt: skip


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """``value`` with another object at ``path``."""
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    inner = copy.get(path[0]) if isinstance(copy, dict) else copy[path[0]]
    copy[path[0]] = changed({} if inner is None else inner, path[1:], new)
    return copy


@given(path=st.sampled_from(META_PATHS), junk=JUNK)
def test_any_description_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, path: tuple[Any, ...], junk: Any
) -> None:
    """Whatever stands at any place of a pack's description."""
    crafted = Crafted()
    crafted.meta_bytes = lambda content: json.dumps(changed(json.loads(content), path, junk)).encode()

    use(crafted.write(tmp_path_factory.mktemp("packs") / "p.lmdb"))


PACKED = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=20)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=8)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.one_of(st.text(max_size=5), st.integers(0, 9), st.none()), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    at=st.sampled_from([(), (0,), (1,), (2,), (3,), (4,), (4, 0), (4, 1), (5,), (5, 0), (5, 1), (6, 0)]), junk=PACKED
)
def test_any_small_fields_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, at: tuple[int, ...], junk: Any
) -> None:
    """Whatever msgpack can say in the place of a field, or of all; an error names the record, and its key."""
    crafted = Crafted()
    crafted.small[3] = changed(crafted.small[3], at, junk)
    pack = crafted.write(tmp_path_factory.mktemp("packs") / "p.lmdb")

    errors = use(pack)

    for error in errors:
        if isinstance(error, CorruptRecordError) and "column" not in str(error):
            assert (error.where["index"], error.where["key"]) == (3, "3.jpg")


@given(content=st.binary(max_size=40))
def test_any_bytes_in_place_of_small_fields_are_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """What is no msgpack at all."""
    crafted = Crafted()
    crafted.small[3] = content

    assert use(crafted.write(tmp_path_factory.mktemp("packs") / "p.lmdb"))


@given(content=st.binary(max_size=60), keep=st.integers(0, 128))
def test_any_bytes_in_place_of_a_column_are_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, keep: int
) -> None:
    """Also behind a beginning that is right."""
    crafted = Crafted()
    crafted.columns["weight"] = crafted.columns["weight"][:keep] + content

    use(crafted.write(tmp_path_factory.mktemp("packs") / "p.lmdb"))


@given(
    keys=st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=9) | st.sampled_from([b"0.jpg", b"\xff", "é".encode(), b"k" * 511]),
            st.binary(max_size=9) | st.integers(0, 2**64 - 1).map(struct.Struct(">Q").pack) | st.just(bytes(5000)),
        ),
        max_size=2 * COUNT,
    )
)
def test_any_table_of_keys_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, keys: list[tuple[bytes, bytes]]
) -> None:
    """Keys that are no text, numbers that are none, too many, too few, the same one twice."""
    crafted = Crafted()
    crafted.keys = keys

    use(crafted.write(tmp_path_factory.mktemp("packs") / "p.lmdb"))


class Pages:
    """A pack, its file's bytes, and where in it the pages of the trees begin."""

    def __init__(self, pack: Path) -> None:
        self.pack, self.content = pack, (pack / "data.mdb").read_bytes()
        starts = range(0, len(self.content), 4096)
        self.places = [at for at in starts if self.content[at + 10] & 0b1111 in {1, 2, 8}]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """A pack to be damaged again and again."""
    return Pages(Crafted().write(tmp_path_factory.mktemp("pages") / "p.lmdb"))


NUMBERS = st.sampled_from([b"\0", b"\xff", b"\xff" * 8, b"\0" * 8, b"\x02", b"\x7f"]) | st.binary(min_size=1)


@given(
    changes=st.lists(
        st.tuples(st.integers(0, 99), st.integers(0, 63) | st.integers(0, 4095), NUMBERS), min_size=1, max_size=3
    ),
    longer=st.sampled_from([0, 0, -4090, 7]),
    sealed=st.booleans(),
)
def test_any_page_is_read_or_refused(
    pages: Pages, changes: list[tuple[int, int, bytes]], longer: int, *, sealed: bool
) -> None:
    """Numbers in the file's trees that lie anywhere, under seals that hold, or without any."""
    pack, content, places = pages.pack, pages.content, pages.places
    damaged = bytearray(content)
    for page, offset, new in changes:
        at = places[page % len(places)] + offset
        damaged[at : at + len(new)] = new
    for name in ("data.mdb", "pages.xxh3", ".image.index"):
        (pack / name).unlink(missing_ok=True)
    length = len(content) + longer
    (pack / "data.mdb").write_bytes(bytes(damaged[:length]).ljust(length, b"\0"))
    if sealed:
        with contextlib.suppress(StoreError):
            seal(pack)

    use(pack)
