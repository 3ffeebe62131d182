"""What the stores over columns have in common: their packages are optional, keys and pixels are read alike."""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError, CorruptRecordError, OptionalPackageError, StoreFormatError
from penstock.stores.arrow import columns
from penstock.stores.arrow.table import ColumnarReader
from tests.stores.arrow.columns import make_contents, make_table

pa = pytest.importorskip("pyarrow")


def write_parquet(folder: Path, table: Any) -> Path:
    """Write a table as a Parquet file."""
    from pyarrow import parquet as pq

    pq.write_table(table, folder / "x.parquet", row_group_size=5)
    return folder / "x.parquet"


def write_arrow(folder: Path, table: Any) -> Path:
    """Write a table as an Arrow file."""
    with pa.ipc.new_file(str(folder / "x.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return folder / "x.arrow"


def write_lance(folder: Path, table: Any, **options: Any) -> Path:
    """Write a table as a Lance dataset."""
    pytest.importorskip("lance").write_dataset(table, str(folder / "x.lance"), **options)
    return folder / "x.lance"


def write_fragments(folder: Path, table: Any) -> Path:
    """Write a table as a Lance dataset of several fragments, each with a row that is then deleted."""
    path = write_lance(folder, table.append_column("gone", pa.array([False] * len(table))), max_rows_per_file=7)
    dataset = pytest.importorskip("lance").dataset(str(path))
    for first in range(0, len(table), 7):
        dataset.insert(table.slice(first, 1).append_column("gone", pa.array([True])), mode="append")
    dataset.delete("gone")
    dataset.drop_columns(["gone"])
    return path


def open_rows(folder: Path, table: Any) -> Any:
    """A ``datasets.Dataset`` of a saved table of several chunks, whose rows are in another order on the disk."""
    datasets = pytest.importorskip("datasets")
    count = len(table)
    back = [count - 1 - row for row in range(count)]
    datasets.Dataset(table.take(back)).save_to_disk(folder / "rows", num_shards=min(3, count))
    return datasets.load_from_disk(str(folder / "rows")).select(back)


def open_slices(folder: Path, table: Any) -> Any:
    """A ``datasets.Dataset`` whose table is slices of a larger one, in memory."""
    del folder
    datasets = pytest.importorskip("datasets")
    twice = pa.concat_tables([table, table])
    return datasets.Dataset(pa.concat_tables([twice.slice(0, 4), twice.slice(len(table) + 4)]))


@pytest.fixture(params=[write_parquet, write_arrow, write_lance])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Any], Path]:
    """Writes a table as a container of each kind."""
    return lambda table: request.param(tmp_path, table)


@pytest.mark.parametrize("write", [write_parquet, write_arrow, write_lance, write_fragments, open_rows, open_slices])
def test_records_are_given_in_the_order_that_was_asked_for(write: Callable[[Path, Any], Any], tmp_path: Path) -> None:
    """Records and blobs of shuffled, repeated, very many, no and few indices, with null images, read ahead or not."""
    contents = [None if number % 9 == 4 else each for number, each in enumerate(make_contents(40, least=1))]
    rng = np.random.default_rng(5)
    batches: list[Any] = [
        rng.permutation(40),
        rng.integers(0, 40, 5000),
        np.zeros(0, np.int64),
        [39],
        [3, 3, 39, 3],
        range(40),
    ]

    with ps.open(write(tmp_path, make_table(contents))) as store:
        for each in batches:
            batch = list(each)
            store.prefetch(batch)
            records = store.read(batch)

            assert [record.index for record in records] == batch
            assert [record.fields["label"] for record in records] == [index % 3 for index in batch]
            assert [read_value(record.fields["image"]) for record in records] == [contents[index] for index in batch]
            assert [read_value(blob) for blob in store.blobs("image", batch)] == [contents[index] for index in batch]
            assert [record.key for record in records] == [store.keys()[index] for index in batch]


@pytest.mark.parametrize("write", [write_arrow, open_rows, open_slices])
def test_the_system_is_told_where_images_are(
    write: Callable[[Path, Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of the images of a batch, and no others; none of null and empty images; nothing of a single record."""
    told: list[bytes] = []
    contents = [*make_contents(20), None, b""]

    def tell(places: list[int], sizes: list[int]) -> int:
        told.extend(map(ctypes.string_at, places, sizes))
        return 1

    with ps.open(write(tmp_path, make_table(contents)), image="image") as store:
        monkeypatch.setattr(columns, "_read_ahead", tell)
        store.prefetch([7, 21, 3, 20, 22, -1])
        assert told == [contents[7], contents[3]]
        store.read([19, 2])
        store.blobs("image", [5])
        assert told[2:] == [contents[19], contents[2]]
        store.blobs("image", [5, 20, 4])
        assert told[4:] == [contents[5], contents[4]]


def test_the_system_is_asked_rarely_while_it_has_nothing_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 1, 3, 7 ... 63 batches; before each batch again once bytes were missing."""
    asked: list[int] = []

    def announce(*_: object) -> int:
        asked.append(batch)
        return int(len(asked) > 8)

    with ps.open(write_arrow(tmp_path, make_table([*make_contents(20)]))) as store:
        monkeypatch.setattr(ColumnarReader, "announce", announce)
        for batch in range(260):
            store.blobs("image", [batch % 20, 1])

    assert asked[:8] == [0, 1, 4, 11, 26, 57, 120, 183]
    assert asked[8:] == list(range(246, 260))


def test_lance_is_not_asked_to_read_ahead(tmp_path: Path) -> None:
    """Its library reads what is asked for; loaders need not announce batches."""
    with ps.open(write_lance(tmp_path, make_table([*make_contents(5)]))) as store:
        assert not store.prefetches
        assert store.prefetch([1, 2]) is False


def read_value(value: Any) -> bytes | None:
    """The bytes of a blob."""
    return None if value is None else bytes(value)


def test_a_missing_package_is_named(write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its package, a container is recognised, and opening it says which command installs what is missing."""
    path = write(make_table([*make_contents(3)]))
    for name in ("pyarrow", "pyarrow.parquet", "lance"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(OptionalPackageError, match=r"pip install 'penstock-data\[(parquet|lance)\]'"):
        ps.open(path)


def test_options_of_columns_are_in_every_signature(write: Callable[[Any], Path]) -> None:
    """Each kind has the same options of columns, by keyword; an unknown option is refused with the names of all."""
    path = write(make_table([*make_contents(3)]))
    names = ["image", "label", "key", "fields", "boxes", "boxes_format", "shape", "dtype", "channels"]

    with ps.open(path) as store:
        parameters = inspect.signature(type(store)).parameters.values()
        assert [each.name for each in parameters if each.default is None and each.name in names] == names
        assert all(each.kind is each.KEYWORD_ONLY for each in parameters if each.name != "path")
    with pytest.raises(ArgumentError, match=rf"no option 'colour'; it has: .*{', '.join(names)}"):
        ps.open(path, colour="BGR")


@pytest.mark.parametrize("count", [0, 1])
def test_containers_of_few_records_are_described(write: Callable[[Any], Path], count: int) -> None:
    """A container without records is recognised, and one record is 1 row."""
    path = write(make_table([*make_contents(count)]).slice(0, count))

    with ps.open(path) as store:
        assert len(store) == count
        assert ("1 row " if count else "0 rows ") in store.description
        assert [record.index for record in store.read(range(count))] == list(range(count))


def test_metadata_nested_without_end_are_damage(write: Callable[[Any], Path]) -> None:
    """JSON that is nested deeper than Python's limit is ignored where types are known without it, and else refused."""
    nested = b"[" * 100_000 + b"]" * 100_000
    table = make_table([*make_contents(3)])

    with ps.open(write(table.replace_schema_metadata({"huggingface": nested}))) as store:
        assert len(store.read([0, 2])) == 2


def test_own_metadata_nested_without_end_are_refused(write: Callable[[Any], Path]) -> None:
    """The same in the metadata that penstock writes is an error of the file."""
    nested = b"[" * 100_000 + b"]" * 100_000
    path = write(make_table([*make_contents(3)]).replace_schema_metadata({"penstock": nested}))

    with pytest.raises(StoreFormatError, match="'penstock' of the schema are damaged"):
        ps.open(path)


def test_names_with_points_are_columns_or_children(tmp_path: Path) -> None:
    """A column whose name has a point can be stated; a child in ``fields`` is refused, not left out."""
    contents = make_contents(2)
    objects = [{"bbox": [[1.0, 2.0, 3.0, 4.0]], "category": [1]}] * 2
    path = write_parquet(tmp_path, pa.table({"a.jpg": contents, "b.cls": [4, 5], "objects": objects}))

    with ps.open(path, image="a.jpg", label="b.cls", fields=["a.jpg"]) as store:
        assert [bytes(record.fields["image"]) for record in store.read([0, 1])] == contents
        assert store.column("label").tolist() == [4, 5]
    with ps.open(path, fields=["a.jpg"], label="objects.category", boxes_format="xyxy") as store:
        assert store[0].fields["label"].tolist() == [1]
    with pytest.raises(ArgumentError, match=r"fields must name columns .*got 'objects\.bbox'"):
        ps.open(path, fields=["a.jpg", "objects.bbox"])


def test_usual_names_are_found_in_any_case(write: Callable[[Any], Path]) -> None:
    """Columns of keys and boxes are found by their names in lower case, as those of images and labels are."""
    boxes = pa.array([[[1.0, 2.0, 3.0, 4.0]]] * 2, pa.list_(pa.list_(pa.float32(), 4)))
    path = write(pa.table({"Image": make_contents(2), "FileName": ["b", "a"], "BBox": boxes}))

    with ps.open(path, boxes="xyxy") as store:
        assert list(store.keys()) == ["b", "a"]
        assert store[1].fields["boxes"].tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("order", [[2, 1, 0], [2, 1, 0, 3]])
def test_raw_pixels_are_read_as_rgb(write: Callable[[Any], Path], order: list[int]) -> None:
    """Pixels in a column of bytes are arrays in the stated shape, RGB whatever their order; a fourth channel stays."""
    pixels = np.random.default_rng(1).integers(0, 256, (12, 3, 4, len(order)), np.uint8)
    path = write(pa.table({"data": [each.tobytes() for each in pixels], "y": list(range(12))}))

    with ps.open(path, image="data", shape=[3, 4, len(order)], channels="BGR") as store:
        records = store.read([11, 0, 5])

        assert store.schema["image"].kind == f"pixels:uint8[3,4,{len(order)}]"
    for record, row in zip(records, (11, 0, 5), strict=True):
        np.testing.assert_array_equal(record.fields["image"], pixels[row][..., order])
        assert record.fields["label"] == row


def test_keys_are_a_sequence(write: Callable[[Any], Path]) -> None:
    """Keys are found from both ends, by slices, and are the number of the record where a row has none."""
    images = pa.array(make_contents(7))
    path = write(pa.table({"image": images, "name": ["a", None, "c", "d", "e", "f", "g"]}))

    with ps.open(path) as store:
        keys = store.keys()
        assert list(keys) == ["a", "1", "c", "d", "e", "f", "g"]
        assert (keys[-1], keys[1:3], keys.index("e"), len(keys)) == ("g", ["1", "c"], 4, 7)
        assert store[1].fields["name"] is None
        assert store.column("name").tolist() == ["a", "", "c", "d", "e", "f", "g"]
        with pytest.raises(IndexError):
            keys[7]
    with ps.open(path, fields=["image"], key="name") as store:
        assert store.keys()[2] == "c"
        assert set(store.schema.fields) == {"image"}


def test_packs_keep_everything(write: Callable[[Any], Path], tmp_path: Path) -> None:
    """A container that is packed gives records with the same bytes, labels, keys and arrays."""
    from PIL import Image

    contents = []
    for number in range(6):
        Image.new("RGB", (9 + number, 8), (number, 0, 0)).save(tmp_path / "one.png")
        contents.append((tmp_path / "one.png").read_bytes())
    boxes = pa.array([[[0.0, 1.0, 2.0, 3.0]] * (number % 3) for number in range(6)], pa.list_(pa.list_(pa.float32())))
    path = write(make_table([*contents], bbox=boxes, caption=["text"] * 6))

    with ps.open(path, boxes_format="xywh") as source:
        ps.pack(source, tmp_path / "packed.lmdb")
        with ps.open(tmp_path / "packed.lmdb") as packed:
            assert list(packed.keys()) == list(source.keys())
            for one, other in zip(source, packed, strict=True):
                assert bytes(one.fields["image"]) == bytes(other.fields["image"])
                assert one.fields["label"] == other.fields["label"]
                assert one.fields["caption"] == other.fields["caption"]
                np.testing.assert_array_equal(one.fields["boxes"], other.fields["boxes"])
                assert one.fields["boxes"].tolist() == [[0, 1, 2, 4]] * (one.index % 3)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([[1, None], [2, 3]]), "record 0 cannot be read: its list has nulls"),
        (pa.array([[2**63, 1], [2, 3]], pa.list_(pa.uint64(), 2)), ""),
        (pa.array([2**63, 1], pa.uint64()), "column of field 'values' cannot be read: int64 does not hold"),
    ],
    ids=["nulls", "lists", "numbers"],
)
def test_values_of_another_form_are_not_called_damaged(write: Callable[[Any], Path], column: Any, reason: str) -> None:
    """The bytes are those that were written: the error says what of the value does not fit."""
    path = write(make_table([*make_contents(2)], values=column))

    with ps.open(path, fields=["label", "values"]) as store:
        if not reason:
            assert store.column("values").tolist() == column.to_pylist()
            return
        use = store.column if column.type == pa.uint64() else lambda _: store.read([0])
        with pytest.raises(CorruptRecordError, match=reason):
            use("values")
