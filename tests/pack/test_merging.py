"""``merge``: the records of several packs in one, with their bytes, keys, classes and decode indices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.stores.common.seek_table_file import SeekTableFile, seek_table_path
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.pack.images import make_photos, picture
from tests.pack.sources.test_iterables import commit_often, stop


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three packs of one data set, as three machines would pack it."""
    paths = []
    for number in range(3):
        rows = [
            {
                "__key__": f"{number}/{row}",
                "image": picture(100 * number + row),
                "label": row % 2,
                "tags": [row % 3] * row,
            }
            for row in range(4 + 8 * number)
        ]
        paths.append(tmp_path / f"shard{number}.lmdb")
        schema: Any = {"tags": ps.Field("int64[*]", ("x", "y", "z"))}
        ps.pack(rows, paths[-1], schema=schema, classes=["cat", "dog"])
    return paths


def records(*stores: Path) -> list[Any]:
    """Key and fields of all records, with bytes in place of views."""
    found = []
    for path in stores:
        with ps.open(path) as store:
            for record in store:
                fields = {
                    name: bytes(value) if isinstance(value, memoryview) else np.asarray(value).tolist()
                    for name, value in record.fields.items()
                }
                found.append((record.key, fields))
    return found


def test_records_follow_one_another(shards: list[Path], tmp_path: Path) -> None:
    """In the order of the packs, with every field as it was."""
    report = ps.merge(shards, tmp_path / "all.lmdb")

    assert report.records == 36
    assert records(tmp_path / "all.lmdb") == records(*shards)
    assert ps.verify(tmp_path / "all.lmdb").ok
    with ps.open(tmp_path / "all.lmdb") as merged, ps.open(shards[0]) as first:
        assert merged.schema == first.schema


def test_decode_indices_are_copied_and_completed(shards: list[Path], tmp_path: Path) -> None:
    """Those of the packs are copied; images of a pack without one get one."""
    seek_table_path(LmdbStore.locate(shards[1]), "image").unlink()

    report = ps.merge(shards, tmp_path / "all.lmdb")

    assert report.indexed is not None
    assert (report.indexed.indexed, report.indexed.resumed) == (36, 24)
    ps.index(shards[1])
    with ps.open(tmp_path / "all.lmdb") as merged:
        tables = SeekTableFile(seek_table_path(merged.location, "image"), merged.fingerprint(), 36).get(range(36))
    wanted = []
    for path in shards:
        with ps.open(path) as store:
            count = len(store)
            wanted += SeekTableFile(seek_table_path(store.location, "image"), store.fingerprint(), count).get(
                range(count)
            )
    assert tables == wanted
    assert ps.merge(shards, tmp_path / "bare.lmdb", index="none").indexed is None


def test_classes_of_another_order_are_renumbered_by_name(tmp_path: Path) -> None:
    """Labels and lists of labels keep their names; other classes are refused unless all are given."""
    given = {"a": ("cat", "dog"), "b": ("dog", "cat"), "c": ("cat", "emu")}
    for name, classes in given.items():
        schema: Any = {"label": ps.Field("label", classes), "tags": ps.Field("int64[*]", classes[:2])}
        rows = [
            {"__key__": f"{name}{n}", "label": n if n >= 0 else None, "tags": [0, 1, 1][: n + 1]} for n in (0, 1, -1)
        ]
        ps.pack(rows, tmp_path / f"{name}.lmdb", schema=schema)

    ps.merge([tmp_path / "a.lmdb", tmp_path / "b.lmdb"], tmp_path / "ab.lmdb")

    with ps.open(tmp_path / "ab.lmdb") as store:
        assert store.schema["label"].classes == ("cat", "dog")
        assert [record.fields["label"] for record in store] == [0, 1, None, 1, 0, None]
        assert [record.fields["tags"].tolist() for record in store] == [[0], [0, 1], [], [1], [1, 0], []]
    with pytest.raises(ps.ArgumentError, match=r"same classes of 'label'.*give classes="):
        ps.merge([tmp_path / "a.lmdb", tmp_path / "c.lmdb"], tmp_path / "ac.lmdb")
    with pytest.raises(ps.ArgumentError, match=r"classes must hold every class of the stores, and 'emu'"):
        ps.merge([tmp_path / "a.lmdb", tmp_path / "c.lmdb"], tmp_path / "ac.lmdb", classes=["cat", "dog"])


def test_classes_may_be_given(tmp_path: Path) -> None:
    """All of them, in the order of their numbers."""
    for name, classes in {"a": ("cat", "dog"), "b": ("cat", "emu")}.items():
        ps.pack([{"__key__": name, "label": 1}], tmp_path / f"{name}.lmdb", classes=classes)

    ps.merge([tmp_path / "a.lmdb", tmp_path / "b.lmdb"], tmp_path / "c.lmdb", classes=["emu", "dog", "cat"])

    with ps.open(tmp_path / "c.lmdb") as store:
        assert store.column("label").tolist() == [1, 0]


def test_shapes_are_united(tmp_path: Path) -> None:
    """Arrays of several lengths have any length in the merged pack; other dtypes are refused."""
    for name, value in {"a": np.zeros(3), "b": np.zeros(4), "c": np.zeros(3, np.float32)}.items():
        ps.pack([{"__key__": name, "x": value}], tmp_path / f"{name}.lmdb")

    ps.merge([tmp_path / "a.lmdb", tmp_path / "b.lmdb"], tmp_path / "ab.lmdb")

    with ps.open(tmp_path / "ab.lmdb") as store:
        assert store.schema["x"].kind == "float64[*]"
    with pytest.raises(
        ps.ArgumentError, match=r"field 'x' must be of one kind: it is float64\[3\], and float32\[3\] in"
    ):
        ps.merge([tmp_path / "a.lmdb", tmp_path / "c.lmdb"], tmp_path / "ac.lmdb")


def test_equal_keys_are_named_or_get_prefixes(tmp_path: Path) -> None:
    """Nothing is written if names occur twice, unless they are left out or told apart."""
    for name in ("a", "b"):
        ps.pack(make_photos(tmp_path / name, 4), tmp_path / f"{name}.lmdb")
    both = [tmp_path / "a.lmdb", tmp_path / "b.lmdb"]

    with pytest.raises(ps.PackError, match=r"(?s)4 records of the stores.*prefix=True.*cats/0\.jpg: its name equals"):
        ps.merge(both, tmp_path / "c.lmdb")
    assert not (tmp_path / "c.lmdb").exists()
    ps.merge(both, tmp_path / "c.lmdb", prefix=True)
    ps.merge(both, tmp_path / "d.lmdb", prefix=["", "second/"])
    skipped = ps.merge(both, tmp_path / "e.lmdb", on_error="skip")

    with ps.open(tmp_path / "c.lmdb") as c, ps.open(tmp_path / "d.lmdb") as d:
        assert (c[0].key, c[4].key) == ("a/cats/0.jpg", "b/cats/0.jpg")
        assert (d[0].key, d[4].key) == ("cats/0.jpg", "second/cats/0.jpg")
    assert (skipped.records, len(skipped.skipped)) == (4, 4)


@pytest.mark.parametrize("number", [0, 1])
def test_other_fields_and_wrong_arguments_are_refused(shards: list[Path], tmp_path: Path, number: int) -> None:
    """With the stores that differ; nothing is written."""
    ps.pack(make_photos(tmp_path / "photos"), tmp_path / "photos.lmdb")
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([*shards, tmp_path / "photos.lmdb"], {}, "the stores must have the same fields"),
        ([], {}, "merge needs a list of stores"),
        (str(shards[0]), {}, "merge needs a list of stores"),
        (shards, {"prefix": ["a"]}, "prefix must be a different text for each of 3 stores"),
        ([*shards, tmp_path / "all.lmdb"][:: 1 - 2 * number], {}, "no store at this path|neither a folder"),
    ]

    for srcs, arguments, reason in wrong:
        with pytest.raises(ps.PenstockError, match=reason):
            ps.merge(srcs, tmp_path / "all.lmdb", **arguments)
    with pytest.raises(ps.ArgumentError, match="none of the sources"):
        ps.merge(shards, shards[number])
    assert not (tmp_path / "all.lmdb").exists()


def test_an_interrupted_merge_is_resumed(shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same bytes; a finished one is used as it is, and one of other stores is not."""
    commit_often(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        ps.merge(shards, tmp_path / "p.lmdb", progress=stop)
    with pytest.raises(ps.StoreError, match="source was changed"):
        ps.merge(shards[::-1], tmp_path / "p.lmdb")

    report = ps.merge(shards, tmp_path / "p.lmdb")
    ps.merge(shards, tmp_path / "whole.lmdb")

    assert 0 < report.resumed < 36
    assert (tmp_path / "p.lmdb/data.mdb").read_bytes() == (tmp_path / "whole.lmdb/data.mdb").read_bytes()
    assert ps.merge(shards, tmp_path / "p.lmdb").reused


def test_a_damaged_record_is_named(shards: list[Path], tmp_path: Path) -> None:
    """Its checksum is compared when it is read; nothing that is damaged is copied."""
    with ps.open(shards[1]) as store:
        image = bytes(store[2].fields["image"])
    content = bytearray((shards[1] / "data.mdb").read_bytes())
    content[content.index(image) + 99] ^= 4
    (shards[1] / "data.mdb").write_bytes(content)

    with pytest.raises(ps.PackError, match=r"1/2: record 2 is damaged"):
        ps.merge(shards, tmp_path / "all.lmdb")


def test_one_process_writes_a_pack(tmp_path: Path) -> None:
    """While a pack is written, another writer is refused, also that of a merge."""
    ps.pack([{"x": 1}], tmp_path / "a.lmdb")
    schema = ps.Schema({"x": ps.Field("int")})
    writer = LmdbWriter(str(tmp_path / "b.lmdb"), schema, "someone else")

    with pytest.raises(ps.StoreError, match="another process is writing here"):
        ps.merge([tmp_path / "a.lmdb"], tmp_path / "b.lmdb")
    writer.discard()
