"""Packing stores of pixels: copies, sources that give wrong records, verification against the source, and views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
import penstock.transforms as T
from penstock.errors import ArgumentError, PackError
from penstock.sample import Field, Schema
from penstock.sheets import contact_sheet, info
from penstock.sheets.info import SizeRange
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.datasets.test_pixels import MemoryStore, make_images
from tests.stores.lmdb_pack.patches import COUNT, make_fields, make_patches, names, write_batches


def write(path: Path, schema: dict[str, str], fields: dict[str, list[Any]]) -> Path:
    """A pack of records of any fields."""
    writer = LmdbWriter(path, Schema({name: Field(kind) for name, kind in schema.items()}), "source")
    count = len(next(iter(fields.values())))
    writer.append_batch(writer.prepare_batch([str(i) for i in range(count)], fields))
    writer.finish()
    return path


def test_a_pack_of_a_pack_is_the_same(tmp_path: Path) -> None:
    """Packing a store of blocks gives its bytes again, in batches; verification compares pixels, arrays and labels."""
    make_patches(tmp_path / "one.lmdb", make_keys=names)

    report = ps.pack(tmp_path / "one.lmdb", tmp_path / "two.lmdb", workers=2)

    assert report.records == COUNT
    assert report.nbytes == COUNT * 432
    with ps.open(tmp_path / "one.lmdb") as one, ps.open(tmp_path / "two.lmdb") as two:
        assert one.fingerprint() == two.fingerprint()
        assert list(one.keys()) == list(two.keys())
    verified = ps.verify(tmp_path / "two.lmdb", tmp_path / "one.lmdb")
    assert verified.ok
    assert verified.compared == COUNT


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_a_sample_of_pixels_is_the_row_of_its_batch(dtype: str, tmp_path: Path) -> None:
    """Samples that are built one by one, as for another library's loader, are those of filled batches."""
    images = np.random.default_rng(0).integers(0, 250, (4, 20, 30, 1)).astype(dtype)
    ps.pack({"image": images, "label": [0, 1, 0, 1]}, tmp_path / "p.lmdb")
    size = T.CenterCrop(16) if dtype == "float32" else T.Resize((16, 16))
    ops = [T.Decode(), size, T.HorizontalFlip(1), T.Normalize(0.5, 0.5), T.ToLayout("CHW", "float32")]
    with ps.open(tmp_path / "p.lmdb") as store:
        dataset = ps.StoreDataset(store, "image", ops)
        filled = next(iter(ps.DataLoader(dataset, 4)))

        alone = np.stack([dataset[number] for number in range(4)])

    np.testing.assert_allclose(alone, filled, atol=1e-6)


def test_arrays_of_a_dtype_that_images_lack_are_refused_with_the_way(tmp_path: Path) -> None:
    """Such as a scanner's int16, which is stored as it is, and is no image."""
    ps.pack({"image": np.zeros((2, 8, 9), np.int16), "label": [0, 1]}, tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        dataset = ps.StoreDataset(store, ("image", "label"), [T.Decode(), T.CenterCrop(4)])
        with pytest.raises(ArgumentError, match=r"'int16\[8,9\]'.*; images are .* uint16 or float32 \(convert arrays"):
            dataset[0]


def test_what_differs_from_the_source_is_named(tmp_path: Path) -> None:
    """Another pixel, another shape of the same bytes, another label."""
    fields = make_fields()
    write_batches(tmp_path / "source.lmdb", fields, names(COUNT)).finish()
    fields["image"] = fields["image"].copy()
    fields["image"][5, 11, 11, 2] ^= 1
    fields["label"][6] = -1
    write_batches(tmp_path / "other.lmdb", fields, names(COUNT)).finish()

    problems = ps.verify(tmp_path / "other.lmdb", tmp_path / "source.lmdb").problems

    assert [(problem.index, problem.reason.split(",")[0]) for problem in problems] == [
        (5, "the pixels of its image are not those of the source"),
        (6, "its label is -1"),
    ]
    flat = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3)]
    high = [np.arange(24, dtype=np.uint8).reshape(4, 2, 3)]
    one = write(tmp_path / "flat.lmdb", {"image": "pixels:uint8[*,*,3]"}, {"image": flat})
    two = write(tmp_path / "high.lmdb", {"image": "pixels:uint8[*,*,3]"}, {"image": high})
    assert [problem.index for problem in ps.verify(one, two).problems] == [0]


def test_gray_and_colour_arrays_are_packed_and_merged_as_they_are(tmp_path: Path) -> None:
    """The kind of the field says that the channels vary; a gray pack and one in colour are merged to such a pack."""
    images = make_images("uint8", [(4, 5, 3), (3, 4, 1), (5, 5, 4)])
    samples = [{"image": images[0]}, {"image": images[1][:, :, 0]}, {"image": images[2]}]
    gray = write(tmp_path / "gray.lmdb", {"image": "pixels:uint8[*,*,1]"}, {"image": images[1:2]})
    colour = write(tmp_path / "colour.lmdb", {"image": "pixels:uint8[4,5,3]"}, {"image": images[:1]})

    ps.pack(samples, tmp_path / "packed.lmdb")
    ps.merge([colour, gray], tmp_path / "merged.lmdb", prefix=True)

    for name, count in (("packed", 3), ("merged", 2)):
        with ps.open(tmp_path / f"{name}.lmdb") as store:
            assert store.schema["image"].kind == "pixels:uint8[*,*,*]"
            held = [record.fields["image"] for record in store]
        assert len(held) == count
        assert all(np.array_equal(one, other) for one, other in zip(held, images, strict=False))


def test_missing_labels_survive_packing(tmp_path: Path) -> None:
    """None stays None, as a record of its own and in a block."""
    images = make_images("uint8", [(4, 5, 3)] * 4)
    for number, kind in enumerate(["pixels:uint8[4,5,3]", "pixels:uint8[*,5,3]"]):
        source = MemoryStore(
            {"image": kind, "label": "label", "score": "float"},
            {"image": images, "label": [1, None, 0, 2], "score": [None, 0.5, 1.5, None]},
        )
        path = tmp_path / f"{number}.lmdb"

        ps.pack(source, path)

        with ps.open(path) as store:
            assert [record.fields["label"] for record in store] == [1, None, 0, 2]
            assert [record.fields["score"] for record in store] == [None, 0.5, 1.5, None]
            assert store.column("label").tolist() == [1, -1, 0, 2]
            np.testing.assert_array_equal(store.column("score"), [np.nan, 0.5, 1.5, np.nan])
        assert ps.verify(path, source).ok


def test_packs_of_encoded_images_hold_missing_values_too(tmp_path: Path) -> None:
    """Such a pack has the second version of the format; other packs are as they were."""
    kinds = {"text": "text", "n": "int", "v": "float32[2]", "boxes": "boxes", "json": "json"}
    fields: dict[str, list[Any]] = {
        "text": ["a", None], "n": [None, 2], "v": [None, [1, 2]], "boxes": [np.ones((1, 4), np.float32), None],
        "json": [None, {"a": None}],
    }  # fmt: skip
    with ps.open(write(tmp_path / "p.lmdb", kinds, fields)) as store:
        first, second = (record.fields for record in store)
        texts, arrays = store.column("text").tolist(), store.column("v")

    assert [first["text"], first["n"], first["v"], first["json"]] == ["a", None, None, None]
    assert [second["text"], second["n"], second["boxes"], second["json"]] == [None, 2, None, {"a": None}]
    assert texts == ["a", ""]
    np.testing.assert_array_equal(arrays, [[np.nan, np.nan], [1, 2]])
    with pytest.raises(PackError, match="field 'v' must have a value"):
        write(tmp_path / "bad.lmdb", {"v": "uint8[2]"}, {"v": [None]})


@pytest.mark.parametrize("kind", ["pixels:uint8[4,5,3]", "pixels:uint8[*,5,3]"])
def test_a_record_that_cannot_be_packed_is_named_or_left_out(tmp_path: Path, kind: str) -> None:
    """One wrong image among others, in the middle of a batch."""
    images: list[Any] = make_images("uint8", [(4, 5, 3)] * 20)
    images[7] = images[7].astype(np.uint16)
    source = MemoryStore({"image": kind, "label": "label"}, {"image": images, "label": list(range(20))})

    with pytest.raises(PackError, match=r"7: field 'image' must be pixels \(uint8"):
        ps.pack(source, tmp_path / "p.lmdb")
    report = ps.pack(source, tmp_path / "p.lmdb", on_error="skip")

    assert [entry.key for entry in report.skipped] == ["7"]
    with ps.open(tmp_path / "p.lmdb") as store:
        assert store.column("label").tolist() == [*range(7), *range(8, 20)]
        assert list(store.keys()) == [str(i) for i in range(20) if i != 7]


def test_pixels_have_no_decode_indices(tmp_path: Path) -> None:
    """There is nothing to decode."""
    with pytest.raises(ArgumentError, match="there are none"):
        ps.index(make_patches(tmp_path / "p.lmdb", 3))


def test_info_tells_sizes_of_pixels(tmp_path: Path) -> None:
    """Width, height and bytes as they are stored; no format."""
    summary = info(make_patches(tmp_path / "p.lmdb", 10))

    assert (summary.width, summary.height, summary.nbytes) == (
        SizeRange(12, 12, 12),
        SizeRange(12, 12, 12),
        SizeRange(432, 432, 432),
    )
    assert summary.formats == {"pixels": 10}


@pytest.mark.parametrize("kind", ["uint8[8,9,3]", "uint8[8,9,1]", "uint8[8,9,4]", "uint16[8,9,3]", "float32[8,9,1]"])
def test_a_contact_sheet_shows_pixels(tmp_path: Path, kind: str) -> None:
    """Every kind of pixels becomes a picture that a person can look at; uint8 RGB with its own colours."""
    pixels = Field(f"pixels:{kind}").pixels
    assert pixels is not None
    assert pixels.shape is not None
    images = make_images(pixels.dtype.name, [pixels.shape])
    pack = write(tmp_path / "p.lmdb", {"image": f"pixels:{kind}"}, {"image": images})

    assert contact_sheet(pack, tmp_path / "sheet.png", tile=72) == [0]

    with Image.open(tmp_path / "sheet.png") as sheet:
        colours = {colour for _, colour in sheet.convert("RGB").getcolors(1 << 20) or []}
    assert len(colours) > 30
    if kind == "uint8[8,9,3]":
        assert {tuple(pixel) for pixel in images[0].reshape(-1, 3).tolist()} <= colours
