"""Images with annotations as a source: every field of every record, what is listed, and what a dataset gives."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
import penstock.transforms as T
from penstock.annotations import Annotations, read
from penstock.datasets.splits.splits import count_values
from penstock.errors import AnnotationError, ArgumentError, PackError
from penstock.ragged import Ragged
from penstock.samplers import ClassBalancedSampler, RepeatFactorSampler, WeightedRandomSampler, repeat_factors
from penstock.stores.lmdb_pack.format import RecordCodec
from tests.pack.voc import Object, write_voc

PICTURES: list[list[Object]] = [
    [("dog", 1, 2, 10.5, 12), ("cat", 3, 3, 9, 9)],
    [],
    [("cat", 0, 0, 19, 19)],
    [("bird", 2, 1, 8, 7), ("bird", 4, 4, 12, 12), ("cat", 0, 0, 5, 5)],
]
LANDMARKS = "<difficult>1</difficult><note>a</note><landmarks><x1>3</x1><y1>4</y1><x2>5</x2><y2>6</y2></landmarks>"


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """Four pictures of three classes, one of them without objects."""
    return write_voc(tmp_path / "voc", PICTURES, LANDMARKS)


def assert_equal_records(store: ps.Store, found: Annotations) -> None:
    """Every record has the bytes of its image, and every value of its annotation."""
    assert list(store.keys()) == [record["image"] for record in found.records]
    for record, expected in zip(store, found.records, strict=True):
        assert set(record.fields) == set(expected)
        for name, value in expected.items():
            got = record.fields[name]
            if name in {"image", "mask"}:
                assert bytes(got) == (found.root / value).read_bytes()
            elif isinstance(value, np.ndarray):
                assert (got.dtype, got.shape) == (value.dtype, value.shape)
                assert np.array_equal(got, value)
            else:
                assert got == value


def test_every_field_of_every_image_is_packed(voc: Path, tmp_path: Path) -> None:
    """Bytes of the images, boxes, classes with their names, points, and the format's own fields."""
    report = ps.pack(None, tmp_path / "p.lmdb", annotations=voc, format="voc")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert_equal_records(store, read(voc, "voc"))
        assert store.schema["labels"] == ps.Field("int64[*]", ("bird", "cat", "dog"))
        assert store.schema["keypoints"].kind == "float32[*,2,3]"
        assert (store.schema["boxes"].kind, store.schema["note"].kind) == ("boxes", "json")
    assert (report.records, report.skipped) == (4, ())


def test_the_images_may_lie_elsewhere(voc: Path, tmp_path: Path) -> None:
    """``src`` is the folder of the images, ``annotations`` that of the XML files; with a format alone, of both."""
    (voc / "JPEGImages").rename(tmp_path / "pictures")

    ps.pack(tmp_path / "pictures", tmp_path / "p.lmdb", annotations=voc / "Annotations", format="voc")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert_equal_records(store, read(voc / "Annotations", "voc", tmp_path / "pictures"))
    (tmp_path / "pictures").rename(voc / "JPEGImages")
    ps.pack(voc, tmp_path / "q.lmdb", format="voc", split="train", classes=["dog", "cat", "bird"])
    with ps.open(tmp_path / "q.lmdb") as store:
        assert store.schema["labels"].classes == ("dog", "cat", "bird")
        assert [record.fields["labels"].tolist() for record in store] == [[0, 1], [], [1], [2, 2, 1]]


def test_read_annotations_are_a_source(voc: Path, tmp_path: Path) -> None:
    """What ``annotations.read`` returned is packed to the same bytes as its files."""
    ps.pack(voc, tmp_path / "one.lmdb", format="voc")

    ps.pack(read(voc, "voc"), tmp_path / "two.lmdb")

    one, two = ((tmp_path / name / "data.mdb").read_bytes() for name in ("one.lmdb", "two.lmdb"))
    assert one == two


def test_problems_are_refused_or_listed(voc: Path, tmp_path: Path) -> None:
    """A box outside, and an image that is missing: an error that names both, or the rest is packed and both listed."""
    path = voc / "Annotations" / "0.xml"
    path.write_text(path.read_text().replace("10.5", "0.5"))
    (voc / "JPEGImages" / "2.jpg").unlink()

    with pytest.raises(PackError, match=r"(?s)Annotations/0.xml:1: .*inverted.*Annotations/2.xml: there is no image"):
        ps.pack(voc, tmp_path / "p.lmdb", format="voc")
    assert not (tmp_path / "p.lmdb").exists()
    report = ps.pack(voc, tmp_path / "p.lmdb", format="voc", on_error="skip")

    assert report.records == 3
    assert [entry.key for entry in report.skipped] == ["Annotations/0.xml:1", "Annotations/2.xml"]
    with ps.open(tmp_path / "p.lmdb") as store:
        assert [len(record.fields["boxes"]) for record in store] == [1, 0, 3]


def test_a_finished_pack_is_used_again_until_an_annotation_changes(voc: Path, tmp_path: Path) -> None:
    """The digest is of all values, and of the files of the images."""
    ps.pack(voc, tmp_path / "p.lmdb", format="voc")
    assert ps.pack(voc, tmp_path / "p.lmdb", format="voc").reused
    path = voc / "Annotations" / "3.xml"
    path.write_text(path.read_text().replace("<xmin>4<", "<xmin>3<"))

    with pytest.raises(ArgumentError, match="source"):
        ps.pack(voc, tmp_path / "p.lmdb", format="voc")


def test_worker_processes_give_the_same_pack(voc: Path, tmp_path: Path) -> None:
    """The source can be sent to worker processes."""
    ps.pack(voc, tmp_path / "one.lmdb", format="voc")
    ps.pack(voc, tmp_path / "two.lmdb", format="voc", jobs=2)

    one, two = ((tmp_path / name / "data.mdb").read_bytes() for name in ("one.lmdb", "two.lmdb"))
    assert one == two


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"annotations": "x", "columns": {"a": "b"}}, "columns is no option of annotations"),
        ({"split": "train"}, "must be given with annotations"),
        ({"format": "voc", "annotations": "gone"}, "there is nothing at"),
        ({"format": "vox"}, "unknown annotation format 'vox'"),
        ({"format": "voc", "annotation_options": {"depth": 3}}, "has the options elements, got 'depth'"),
    ],
)
def test_wrong_arguments_are_refused(voc: Path, tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    """The error names the argument."""
    if arguments.get("annotations") == "x":
        arguments = {**arguments, "annotations": voc}
    with pytest.raises(ps.PenstockError, match=message):
        ps.pack(voc, tmp_path / "p.lmdb", **arguments)


def test_a_folder_without_annotations_is_refused(tmp_path: Path) -> None:
    """Nothing to pack is an error, not an empty pack."""
    write_voc(tmp_path / "voc", [])

    with pytest.raises(AnnotationError, match="no annotations of the format 'voc'"):
        ps.pack(tmp_path / "voc", tmp_path / "p.lmdb", format="voc")
    with pytest.raises(PackError, match="there are no images with annotations"):
        ps.pack(Annotations("voc", tmp_path, [], ()), tmp_path / "p.lmdb")


def test_images_that_the_only_split_of_voc_lacks_are_read(voc: Path) -> None:
    """Behind those of the split, in order of names: a folder with one list of several is a part of a download."""
    lists = voc / "ImageSets" / "Main"
    lists.mkdir(parents=True, exist_ok=True)
    for each in lists.iterdir():
        each.unlink()
    (lists / "train.txt").write_text("2\n0\n")

    found, train = read(voc, "voc"), read(voc, "voc", split="train")

    assert [(Path(row["image"]).stem, row["split"]) for row in found] == [
        ("2", "train"), ("0", "train"), ("1", None), ("3", None)
    ]  # fmt: skip
    assert [Path(row["image"]).stem for row in train] == ["2", "0"]


def test_a_folder_with_annotations_is_not_packed_as_classes(voc: Path, tmp_path: Path) -> None:
    """Its sub-folders would be classes: the format is named. Classes that are given are believed."""
    for split in ("train", "valid"):
        folder = tmp_path / "flow" / split
        content = write_coco(folder)
        (folder / "_annotations.coco.json").write_text(json.dumps(content))

    with pytest.raises(ArgumentError, match=r"annotations of the format 'voc', .*format='voc'\) \(--format voc\)"):
        ps.pack(voc, tmp_path / "p.lmdb")
    with pytest.raises(ArgumentError, match="annotations of the format 'coco'"):
        ps.pack(tmp_path / "flow", tmp_path / "p.lmdb")
    assert ps.pack(tmp_path / "flow", tmp_path / "p.lmdb", classes=["train", "valid"]).records == 4


def make_annotations(folder: Path, **fields: list[Any]) -> Annotations:
    """Annotations of as many pictures as each field has values."""
    count = len(next(iter(fields.values())))
    records = []
    for number in range(count):
        Image.new("RGB", (30, 20), (number, 0, 0)).save(folder / f"{number}.png")
        record = {
            "image": f"{number}.png",
            "width": 30,
            "height": 20,
            "boxes": np.zeros((0, 4), np.float32),
            "labels": np.zeros(0, np.int64),
        }
        records.append({**record, **{name: values[number] for name, values in fields.items()}})
    return Annotations("voc", folder, records, ("cat", "dog"))


def test_masks_are_the_bytes_of_their_files(tmp_path: Path) -> None:
    """A mask is stored exactly; a record that has none gets one of 255, no class, of the size of its image."""
    Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30)).save(tmp_path / "m.png")

    ps.pack(make_annotations(tmp_path, mask=["m.png", None]), tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert store.schema["mask"].kind == "mask"
        assert bytes(store[0].fields["mask"]) == (tmp_path / "m.png").read_bytes()
        missing = np.asarray(Image.open(io.BytesIO(bytes(store[1].fields["mask"]))))
        assert np.array_equal(missing, np.full((20, 30), 255, np.uint8))


def test_values_of_images_have_the_kind_of_all_of_them(tmp_path: Path) -> None:
    """Numbers, texts, classes, lists; where an image has none, what a dataset has for missing values."""
    fields: dict[str, list[Any]] = {
        "id": [7, 8, None],
        "label": [1, 0, 1],
        "score": [1, 0.5, None],
        "text": ["a", None, "b"],
        "texts": [["a", "b"], [], None],
        "polygon": [[[1, 2.5]], [None], []],
    }

    ps.pack(make_annotations(tmp_path, **fields), tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        kinds = {name: store.schema[name].kind for name in fields}
        assert kinds == {
            "id": "int", "label": "label", "score": "float", "text": "text", "texts": "json", "polygon": "json",
        }  # fmt: skip
        assert store.schema["label"].classes == ("cat", "dog")
        assert [store[row].fields["polygon"] for row in range(3)] == fields["polygon"]
    samples = ps.StoreDataset(tmp_path / "p.lmdb")[:]
    assert len({tuple(sample) for sample in samples}) == 1
    assert [sample["id"] for sample in samples] == [7, 8, -1]
    assert [sample["text"] for sample in samples] == ["a", "", "b"]
    assert np.isnan(samples[2]["score"])


def test_points_of_objects_follow_the_image(voc: Path, tmp_path: Path) -> None:
    """Points (n, k, 3) are moved with the pixels, one by one and in filled batches; records without have none."""
    ps.pack(voc, tmp_path / "p.lmdb", format="voc")
    ops = [T.Decode(), T.Resize((40, 80))]
    dataset = ps.StoreDataset(
        tmp_path / "p.lmdb", ["image", "boxes", "keypoints", "width", "height"], T.Pipeline(ops), ragged="flat"
    )

    samples = dataset[:]
    batch = next(iter(ps.DataLoader(dataset, batch_size=4)))

    assert dataset.why_not_filled() == ""
    assert [sample[2].shape for sample in samples] == [(2, 2, 3), (0, 2, 3), (1, 2, 3), (3, 2, 3)]
    scale = 80 / samples[0][3], 40 / samples[0][4]
    assert np.allclose(samples[0][2][0], [[3 * scale[0], 4 * scale[1], 2], [5 * scale[0], 6 * scale[1], 2]])
    assert np.array_equal(batch[2].values, np.concatenate([sample[2] for sample in samples]))
    assert isinstance(batch[2], Ragged)


def test_samplers_use_the_classes_of_boxes_without_a_picture(
    voc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeat factors, weights by class name and class balance come from the column; no image is read."""
    ps.pack(voc, tmp_path / "p.lmdb", format="voc")
    names = [["dog", "cat"], [], ["cat"], ["bird", "bird", "cat"]]
    labels = [[{"bird": 0, "cat": 1, "dog": 2}[name] for name in each] for each in names]
    with ps.open(tmp_path / "p.lmdb") as store:
        monkeypatch.setattr(type(store), "read", refuse_reading)
        monkeypatch.setattr(type(store), "blobs", refuse_reading)
        monkeypatch.setattr(RecordCodec, "blob", refuse_reading)
        weighted = WeightedRandomSampler({"dog": 5, "bird": 0}, 40, seed=2, labels=store, field="labels")
        balanced = ClassBalancedSampler(store, seed=4, field="labels")
        factors = repeat_factors(store, 0.9, field="labels")
        repeated = RepeatFactorSampler(store, 0.9, field="labels", seed=1)
    assert list(weighted) == list(WeightedRandomSampler([5, 1, 1, 1], 40, seed=2))
    assert list(balanced) == list(ClassBalancedSampler(labels, seed=4))
    assert np.array_equal(factors, repeat_factors(labels, 0.9))
    assert list(repeated) == list(RepeatFactorSampler(labels, 0.9, seed=1))


def refuse_reading(*_arguments: object, **_options: object) -> None:
    """Stand in for what reads images."""
    raise AssertionError("an image was read")


def test_a_ragged_column_does_not_look_at_images(tmp_path: Path) -> None:
    """The column is read where a large image is damaged, which reading the record refuses."""
    found = make_annotations(tmp_path, id=[1, 2])
    found.records[1]["labels"] = np.array([1, 0, 1])
    noise = np.random.default_rng(0).integers(0, 256, (120, 120, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "1.png")
    ps.pack(found, tmp_path / "p.lmdb")
    path, image = tmp_path / "p.lmdb" / "data.mdb", (tmp_path / "1.png").read_bytes()
    content = path.read_bytes()
    at = content.index(image[20_000:])
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])

    with ps.open(tmp_path / "p.lmdb") as store:
        with pytest.raises(ps.CorruptRecordError, match="field 'image'"):
            store.read([1])
        column = store.ragged_column("labels")
        assert (column.values.tolist(), column.offsets.tolist()) == ([1, 0, 1], [0, 0, 3])
        assert store.ragged_column("boxes").values.shape == (0, 4)
        with pytest.raises(ArgumentError, match="first length varies"):
            store.ragged_column("width")


@pytest.mark.parametrize("suffix", ["parquet", "tar"])
def test_containers_and_packs_beside_them_have_ragged_columns(voc: Path, tmp_path: Path, suffix: str) -> None:
    """A conversion keeps the classes of boxes, in the container or beside it, and their column is the same."""
    ps.pack(voc, tmp_path / "p.lmdb", format="voc")
    ps.convert(tmp_path / "p.lmdb", tmp_path / f"q.{suffix}")

    with ps.open(tmp_path / "p.lmdb") as store, ps.open(tmp_path / f"q.{suffix}") as other:
        for name in ("labels", "boxes", "keypoints"):
            one, two = store.ragged_column(name), other.ragged_column(name)
            assert np.array_equal(one.values, two.values)
            assert np.array_equal(one.offsets, two.offsets)


def test_a_split_by_classes_of_boxes_counts_them(voc: Path, tmp_path: Path) -> None:
    """``info`` and splits name the classes of boxes."""
    ps.pack(voc, tmp_path / "p.lmdb", format="voc")
    with ps.open(tmp_path / "p.lmdb") as store:
        counts, names = count_values(store, "labels")
    assert names == ("bird", "cat", "dog")
    assert list(zip(counts.items.tolist(), counts.labels.tolist(), counts.counts.tolist(), strict=True)) == [
        (0, 1, 1), (0, 2, 1), (2, 1, 1), (3, 0, 2), (3, 1, 1),
    ]  # fmt: skip


def test_datasets_of_torchvision_are_their_files(voc: Path, tmp_path: Path) -> None:
    """A ``VOCDetection`` gives the same pack as its files; with transforms, its samples are packed."""
    datasets = pytest.importorskip("torchvision.datasets")
    home = tmp_path / "VOCdevkit" / "VOC2012"
    home.parent.mkdir()
    voc.rename(home)
    ps.pack(home, tmp_path / "one.lmdb", format="voc", split="train")

    ps.pack(datasets.VOCDetection(str(tmp_path), "2012", "train"), tmp_path / "two.lmdb")

    one, two = ((tmp_path / name / "data.mdb").read_bytes() for name in ("one.lmdb", "two.lmdb"))
    assert one == two
    changed = datasets.VOCDetection(str(tmp_path), "2012", "train", transform=lambda image: image.resize((4, 4)))
    ps.pack(changed, tmp_path / "three.lmdb")
    with ps.open(tmp_path / "three.lmdb") as store:
        assert set(store.column("width").tolist()) == {4}


def test_the_order_of_a_dataset_is_kept(voc: Path, tmp_path: Path) -> None:
    """Where its lists were shortened or sorted anew, the pack follows them."""
    datasets = pytest.importorskip("torchvision.datasets")
    home = tmp_path / "VOCdevkit" / "VOC2012"
    home.parent.mkdir()
    voc.rename(home)
    dataset = datasets.VOCDetection(str(tmp_path), "2012", "train")
    dataset.images, dataset.targets = dataset.images[2:0:-1], dataset.targets[2:0:-1]

    ps.pack(dataset, tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert list(store.keys()) == ["JPEGImages/2.jpg", "JPEGImages/1.jpg"]


def write_coco(folder: Path) -> dict[str, Any]:
    """A set of two pictures, listed backwards, with polygons and a crowd; returns what its file holds."""
    (folder / "images").mkdir(parents=True)
    for name in ("a.png", "b.png"):
        Image.new("RGB", (30, 20)).save(folder / "images" / name)
    polygon, runs = [[1, 2, 4, 2, 4, 6]], {"size": [20, 30], "counts": [105, 5, 490]}
    dog = {"image_id": 5, "category_id": 4}
    content = {
        "images": [{"id": i, "file_name": name, "width": 30, "height": 20} for i, name in ((5, "b.png"), (3, "a.png"))],
        "categories": [{"id": 9, "name": "cat"}, {"id": 4, "name": "dog"}],
        "annotations": [
            {"id": 1, "bbox": [1, 2, 3.5, 4], "area": 12.25, "iscrowd": 0, "segmentation": polygon, **dog},
            {"id": 2, "bbox": [5, 5, 2, 2], "iscrowd": 1, "segmentation": runs, **dog},
        ],
    }
    (folder / "instances_train.json").write_text(json.dumps(content))
    return content


def test_coco_detection_is_its_file(tmp_path: Path) -> None:
    """A ``CocoDetection``, which does not know its file, has the same records, with keys below its own folder."""
    CocoDetection = type("CocoDetection", (), {"__module__": "torchvision.datasets.coco"})  # noqa: N806  # a class
    dataset: Any = CocoDetection()
    dataset.coco = type("COCO", (), {})()
    dataset.coco.dataset = write_coco(tmp_path / "set")
    dataset.root, dataset.ids = str(tmp_path / "set" / "images"), [3, 5]

    ps.pack(dataset, tmp_path / "p.lmdb")
    path = tmp_path / "set" / "instances_train.json"
    ps.pack(tmp_path / "set" / "images", tmp_path / "q.lmdb", annotations=path, format="coco")

    with ps.open(tmp_path / "p.lmdb") as store, ps.open(tmp_path / "q.lmdb") as of_file:
        assert list(store.keys()) == ["a.png", "b.png"]
        assert list(of_file.keys()) == ["images/a.png", "images/b.png"]
        assert store.schema.fields.keys() - {"split"} == of_file.schema.fields.keys() - {"split"}
        for one, other in zip(store, of_file, strict=True):
            for name in set(one.fields) - {"image", "split"}:
                assert np.array_equal(one.fields[name], other.fields[name]), name
        assert [record.fields["crowd"].tolist() for record in store] == [[], [0, 1]]
        assert store.schema["labels"].classes == ("dog", "cat")


def test_masks_of_objects_are_written_to_coco(tmp_path: Path) -> None:
    """Run lengths, areas, crowds and ids of a pack are the same when the folder that was made of it is read."""
    write_coco(tmp_path / "set")
    path = tmp_path / "set" / "instances_train.json"
    ps.pack(None, tmp_path / "p.lmdb", annotations=path, format="coco")

    report = ps.convert(tmp_path / "p.lmdb", tmp_path / "made", to_layout="coco")

    one, other = read(path, "coco"), read(tmp_path / "made", "coco")
    assert report.ok
    assert report.left_out == ()
    for name in ("id", "boxes", "labels", "instances", "area", "crowd"):
        for first, second in zip(one.records, other.records, strict=True):
            assert np.array_equal(first[name], second[name]), name


def test_annotations_with_problems_that_were_seen_are_packed(voc: Path, tmp_path: Path) -> None:
    """Problems of annotations that the caller read with ``skip`` are listed, and not refused again."""
    (voc / "JPEGImages" / "2.jpg").unlink()

    report = ps.pack(read(voc, "voc", on_error="skip"), tmp_path / "p.lmdb")

    assert [entry.key for entry in report.skipped] == ["Annotations/2.xml"]
    nothing = replace(read(voc, "voc", on_error="skip"), records=[])
    with pytest.raises(PackError, match=r"there is no image '2\.jpg'"):
        ps.pack(nothing, tmp_path / "q.lmdb")


def test_the_blood_cells_are_packed_as_they_are(data_dir: Path, tmp_path: Path) -> None:
    """The genuine VOC set, where the folder of collections has it."""
    folder = data_dir / "foreign" / "annotations-voc"
    if not folder.is_dir():
        pytest.skip("needs the collection annotations-voc")

    ps.pack(folder, tmp_path / "p.lmdb", annotations=folder, format="voc", split="train")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert_equal_records(store, read(folder, "voc", split="train"))
        assert store.schema["labels"].classes == ("Platelets", "RBC", "WBC")


def test_of_very_many_images_without_annotations_some_are_named(voc: Path, tmp_path: Path) -> None:
    """The others are counted, so that a report stays small; without `on_error="skip"` they refuse nothing."""
    for number in range(1003):
        (voc / "JPEGImages" / f"x{number}.jpg").write_bytes(b"")

    report = ps.pack(None, tmp_path / "p.lmdb", annotations=voc, format="voc")

    assert (report.records, len(report.skipped)) == (4, 1001)
    assert report.skipped[-1] == ("*", "3 more images that no annotation names")
