"""Arrow files and folders of ``save_to_disk``: which columns become which fields, and what damaged files do."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError, CorruptRecordError, PenstockError, StoreError, StoreFormatError
from tests.stores.arrow.columns import CLASSES, make_contents, make_table

pa = pytest.importorskip("pyarrow")


def write_stream(path: Path, table: Any, rows: int = 4, *, footer: bool = False, **options: Any) -> Path:
    """Write a table as record batches: a stream, or a file with a footer."""
    make = pa.ipc.new_file if footer else pa.ipc.new_stream
    with make(str(path), table.schema, **options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def read_all(path: Path | str, **options: Any) -> list[dict[str, Any]]:
    """The fields of all records."""
    with ps.open(path, **options) as store:
        return [dict(record.fields) for record in store]


@pytest.mark.parametrize("footer", [False, True])
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_streams_and_files_are_read(tmp_path: Path, footer: bool, compression: str | None) -> None:
    """Streams (the cache of datasets) and files with a footer hold the same records, compressed or not."""
    contents = make_contents(11)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    path = write_stream(tmp_path / "x.arrow", make_table([*contents]), footer=footer, options=options)

    with ps.open(path) as store:
        records = list(store)

    assert [bytes(record.fields["image"]) for record in records] == contents
    assert [record.key for record in records] == [f"{number}.jpg" for number in range(11)]
    assert store.schema["label"].classes == tuple(CLASSES)


def test_saved_datasets_are_read(tmp_path: Path) -> None:
    """A folder of save_to_disk is read in the order of its shards; one with splits needs split=."""
    datasets = pytest.importorskip("datasets")
    contents = make_contents(10)
    dataset = datasets.Dataset(make_table([*contents]))
    dataset.save_to_disk(tmp_path / "one", num_shards=3)
    datasets.DatasetDict({"train": dataset, "test": dataset.select([4])}).save_to_disk(tmp_path / "splits")

    assert [bytes(fields["image"]) for fields in read_all(tmp_path / "one")] == contents
    assert [bytes(fields["image"]) for fields in read_all(tmp_path / "splits", split="test")] == [contents[4]]
    with pytest.raises(ArgumentError, match=r"split must be one of 'train', 'test', got None"):
        ps.open(tmp_path / "splits")
    with pytest.raises(ArgumentError, match="no splits"):
        ps.open(tmp_path / "one", split="train")


def test_state_may_not_name_files_elsewhere(tmp_path: Path) -> None:
    """The list of files in a folder names files of this folder only."""
    (tmp_path / "set").mkdir()
    write_stream(tmp_path / "x.arrow", make_table([*make_contents(3)]))
    (tmp_path / "set" / "state.json").write_text('{"_data_files": [{"filename": "../x.arrow"}]}')
    (tmp_path / "set" / "dataset_info.json").write_text("{}")

    with pytest.raises(StoreFormatError, match="files of its folder"):
        ps.open(tmp_path / "set")


def test_fields_follow_types_and_names(tmp_path: Path) -> None:
    """Without features: bytes of an image are an image, a column named label is the label, others keep names."""
    table = pa.table(
        {
            "id": [7, 8],
            "name": ["a", "b"],
            "jpg": make_contents(2),
            "blob": [b"RIFFxxxxWAVE", b""],
            "labels": [4, None],
            "score": [0.5, None],
            "caption": pa.array(["x", None], pa.large_string()),
            "vector": pa.array([[1.0, 2.0], [3.0]], pa.list_(pa.float32())),
            "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)),
            "polygon": [[[1.0], [2.0, 3.0]], []],
            "when": pa.array([0, 1], pa.date32()),
            "nothing": pa.nulls(2),
        }
    )
    path = write_stream(tmp_path / "x.arrow", table)

    with ps.open(path) as store:
        kinds = {name: field.kind for name, field in store.schema.fields.items()}
        first, second = store.read([0, 1])
        labels, scores = store.column("label"), store.column("score")

    assert kinds == {
        "id": "int", "name": "text", "image": "image", "blob": "bytes", "label": "label", "score": "float",
        "caption": "text", "vector": "float32[*]", "fixed": "int16[2]", "polygon": "json", "when": "text",
    }  # fmt: skip
    assert first.key == "a"
    assert bytes(first.fields["blob"]) == b"RIFFxxxxWAVE"
    assert first.fields["polygon"] == [[1.0], [2.0, 3.0]]
    assert first.fields["vector"].tolist() == [1.0, 2.0]
    assert (second.fields["label"], second.fields["score"], second.fields["caption"]) == (None, None, None)
    assert labels.tolist() == [4, -1]
    assert np.isnan(scores[1])
    assert [problem.key for problem in store.problems] == ["nothing"]
    assert "'nothing': the column is left out: no field holds values of type null" in store.description


def test_columns_may_be_stated(tmp_path: Path) -> None:
    """image, label, key and fields choose columns; a name that is not there is refused with those that are."""
    contents = make_contents(3)
    table = pa.table({"thumb": make_contents(3, seed=9), "photo": contents, "fine": [1, 2, 3], "uid": [7, 8, 9]})
    path = write_stream(tmp_path / "x.arrow", table)

    with ps.open(path, image="photo", label="fine", key="uid", fields=["photo"]) as store:
        record = store[1]

    assert set(record.fields) == {"image", "label"}
    assert bytes(record.fields["image"]) == contents[1]
    assert (record.key, record.fields["label"]) == ("8", 2)
    with pytest.raises(ArgumentError, match=r"image must name columns .*'photo'.*, got 'picture'"):
        ps.open(path, image="picture")
    with pytest.raises(ArgumentError, match="key must name a column"):
        ps.open(path, key="photo.path")


@pytest.mark.parametrize("as_list", [False, True])
def test_boxes_are_read_in_the_stated_format(tmp_path: Path, as_list: bool) -> None:
    """objects.bbox becomes boxes once its format is stated, and stays what it is otherwise."""
    rows = [[([1.0, 2.0, 3.0, 4.0], 1), ([5.0, 6.0, 1.0, 1.0], 0)], []]
    if as_list:
        kind = pa.list_(pa.struct([("bbox", pa.list_(pa.float32())), ("category", pa.int64())]))
        objects = pa.array([[{"bbox": box, "category": c} for box, c in row] for row in rows], kind)
    else:
        kind = pa.struct([("bbox", pa.list_(pa.list_(pa.float32(), 4))), ("category", pa.list_(pa.int64()))])
        objects = pa.array([{"bbox": [b for b, _ in row], "category": [c for _, c in row]} for row in rows], kind)
    path = write_stream(tmp_path / "x.arrow", make_table([*make_contents(2)], objects=objects))

    first, second = read_all(path, boxes_format="xywh")
    corners, _ = read_all(path, boxes_format="xyxy")
    unstated, _ = read_all(path)

    assert first["boxes"].tolist() == [[1, 2, 4, 6], [5, 6, 6, 7]]
    assert first["boxes"].dtype == np.float32
    assert first["classes"].tolist() == [1, 0]
    assert (second["boxes"].shape, second["classes"].shape) == ((0, 4), (0,))
    assert corners["boxes"].tolist() == [[1, 2, 3, 4], [5, 6, 1, 1]]
    assert "boxes" not in unstated
    assert "objects" in unstated
    with pytest.raises(ArgumentError, match="boxes must be one of xyxy, xywh, got 'cxcywh'"):
        ps.open(path, boxes_format="cxcywh")


def test_pixels_need_shape_and_channels(tmp_path: Path) -> None:
    """Raw pixels are read as RGB from the stated shape and order; nothing is guessed."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), np.uint8)
    table = pa.table({"image": [each.tobytes() for each in pixels], "label": [0, 1, 2]})
    path = write_stream(tmp_path / "x.arrow", table)

    records = read_all(path, image="image", shape=(4, 5, 3), channels="BGR")

    for fields, expected in zip(records, pixels, strict=True):
        np.testing.assert_array_equal(fields["image"], expected[..., ::-1])
        assert not fields["image"].flags.writeable
    with pytest.raises(ArgumentError, match="state channels="):
        ps.open(path, image="image", shape=(4, 5, 3))
    with pytest.raises(ArgumentError, match="state shape="):
        ps.open(path, image="image")
    with ps.open(path, image="image", shape=(4, 4, 3), channels="RGB") as store, pytest.raises(CorruptRecordError):
        store.read([0])


def test_nested_lists_may_be_pixels(tmp_path: Path) -> None:
    """Array3D of datasets is lists of lists: pixels, if they are stated."""
    pixels = np.arange(2 * 2 * 3 * 1, dtype=np.uint8).reshape(2, 2, 3, 1)
    column = pa.array(pixels.tolist(), pa.list_(pa.list_(pa.list_(pa.uint8()))))
    path = write_stream(tmp_path / "x.arrow", pa.table({"image": column, "label": [0, 1]}))

    records = read_all(path, image="image", shape=(2, 3, 1))

    np.testing.assert_array_equal([fields["image"] for fields in records], pixels)


def test_images_by_path_are_read_beside_the_container(tmp_path: Path) -> None:
    """An image without bytes is the file at its path below the container; elsewhere only with allow_paths=True."""
    (tmp_path / "set" / "photos").mkdir(parents=True)
    (tmp_path / "set" / "photos" / "a.jpg").write_bytes(b"\xff\xd8\xffinside")
    (tmp_path / "b.jpg").write_bytes(b"\xff\xd8\xffoutside")
    (tmp_path / "set" / "link.jpg").symlink_to(tmp_path / "b.jpg")
    names = ["photos/a.jpg", "../b.jpg", str(tmp_path / "b.jpg"), "link.jpg", "photos/none.jpg"]
    images = pa.array(
        [{"bytes": None, "path": name} for name in names], pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    )
    path = write_stream(tmp_path / "set" / "x.arrow", pa.table({"image": images, "label": [0] * 5}))

    with ps.open(path) as store:
        assert bytes(store[0].fields["image"]) == b"\xff\xd8\xffinside"
        for index in (1, 2, 3):
            with pytest.raises(ArgumentError, match="allow_paths=True"):
                store.read([index])
        with pytest.raises(StoreError, match="cannot be read"):
            store.read([4])
    with ps.open(path, allow_paths=True) as store:
        assert [bytes(record.fields["image"]) for record in store.read([1, 2, 3])] == [b"\xff\xd8\xffoutside"] * 3


def test_only_the_files_of_the_records_are_compared(tmp_path: Path) -> None:
    """A shard that changed is noticed when one of its records is read."""
    contents = make_contents(9)
    shards = [write_stream(tmp_path / f"{n}.arrow", make_table([*contents[3 * n : 3 * n + 3]])) for n in range(3)]

    with ps.open(shards) as store:
        assert [bytes(record.fields["image"]) for record in store] == contents
        os.utime(shards[1], ns=(1, 1))
        assert [bytes(blob) for blob in store.blobs("image", [2, 6])] == [contents[2], contents[6]]
        for index in (3, 5):
            with pytest.raises(StoreError, match=r"1\.arrow was replaced or changed"):
                store.read([index])


def test_columns_of_shards_must_agree(tmp_path: Path) -> None:
    """Files of one store have the same columns; the one that differs is named."""
    one = write_stream(tmp_path / "a.arrow", make_table([*make_contents(2)]))
    other = write_stream(tmp_path / "b.arrow", make_table([*make_contents(2)]).drop_columns(["label"]))

    with pytest.raises(StoreFormatError, match=r"b\.arrow differ"):
        ps.open([one, other])


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    """A stream that was cut anywhere is an error of penstock, or a store with fewer whole records; never a crash."""
    contents = make_contents(6)
    whole = write_stream(tmp_path / "x.arrow", make_table([*contents]), rows=2).read_bytes()

    for end in range(0, len(whole), 61):
        path = tmp_path / "cut.arrow"
        path.write_bytes(whole[:end])
        with contextlib.suppress(PenstockError), ps.open(f"arrow://{path}") as store:
            assert [bytes(record.fields["image"]) for record in store] == contents[: len(store)]


@pytest.mark.parametrize("footer", [False, True])
def test_flipped_bits_are_errors_or_other_values(tmp_path: Path, footer: bool) -> None:
    """Any flipped bit gives an error of penstock or other values: no crash, no foreign exception."""
    table = make_table([*make_contents(6)], vector=[[1.0]] * 6, text=["abc"] * 6, poly=[[[1.0], [2.0, 3.0]]] * 6)
    whole = write_stream(tmp_path / "x.arrow", table, rows=3, footer=footer).read_bytes()
    rng = random.Random(4)

    for _ in range(150):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path = tmp_path / "flipped.arrow"
        path.write_bytes(damaged)
        with contextlib.suppress(PenstockError), ps.open(f"arrow://{path}") as store:
            for index in range(min(len(store), 6)):
                with contextlib.suppress(PenstockError):
                    store.read([index])
            with contextlib.suppress(PenstockError):
                store.column("label")


def test_other_folders_and_files_are_not_recognised(tmp_path: Path) -> None:
    """A folder of images stays one, whatever else is in it."""
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "a" / "x.jpg").write_bytes(make_contents(1)[0])
    (tmp_path / "photos" / "state.json").write_text("{}")
    write_stream(tmp_path / "photos" / "x.arrow", make_table([*make_contents(2)]))

    with ps.open(tmp_path / "photos") as store:
        assert store.kind == "files"


def test_images_are_found_behind_empty_batches(tmp_path: Path) -> None:
    """What a column holds is seen in its first values, also where the first record batches have no rows."""
    table = pa.table({"data": make_contents(6)})
    path = tmp_path / "x.arrow"
    with pa.ipc.new_stream(str(path), table.schema) as stream:
        for first, count in [(0, 0), (0, 2), (0, 0), (2, 4)]:
            part = table["data"].combine_chunks().slice(first, count)
            stream.write_batch(pa.record_batch([part], schema=table.schema))

    with ps.open(path) as store:
        assert store.schema["image"].kind == "image"
        assert [bytes(record.fields["image"]) for record in store.read(range(6))] == make_contents(6)
