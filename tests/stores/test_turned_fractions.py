"""Boxes as fractions in containers of other programs, of photographs that are stored turned."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

import penstock as ps
import penstock.transforms as T  # as users import it
from penstock.errors import ArgumentError, PenstockError
from tests.stores.written import example, write_tfrecord
from tests.turned_pictures import BOX, SIZE, box_of, find_box, photograph, stored_pixels

Picture = tuple[bytes, Sequence[float], tuple[int, int] | None]
"""A file, its box as fractions, and the size that its record has."""
Write = Callable[[Path, Sequence[Picture]], tuple[Path, dict[str, Any]]]
"""Writes a container; returns its path, and the options to open it."""


def of_upright(orientation: int, form: str = "JPEG", size: tuple[int, int] | None = None) -> Picture:
    """A photograph with the box of its upright picture."""
    return photograph(orientation, form), np.divide(BOX, [*SIZE, *SIZE]).tolist(), size


def of_stored(orientation: int, size: tuple[int, int] | None = None) -> Picture:
    """A photograph with the box of the picture that is stored."""
    height, width = stored_pixels(orientation).shape[:2]
    return photograph(orientation), np.divide(box_of(orientation), [width, height] * 2).tolist(), size


def write_examples(path: Path, pictures: Sequence[Picture]) -> tuple[Path, dict[str, Any]]:
    """TFRecord as the Object Detection API has it."""
    records = []
    for content, box, size in pictures:
        named = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
        features: dict[str, Any] = {f"image/object/bbox/{edge}": [float(number)] for edge, number in named}
        if size is not None:
            features |= {"image/width": [size[0]], "image/height": [size[1]]}
        records.append(example({"image/encoded": [content], **features}))
    return write_tfrecord(path / "a.tfrecord", records), {}


def write_rec(path: Path, pictures: Sequence[Picture]) -> tuple[Path, dict[str, Any]]:
    """RecordIO as ``im2rec --pack-label`` writes it."""
    parts = []
    for number, (content, box, size) in enumerate(pictures):
        label = [2, 5, 0, *box] if size is None else [4, 5, *size, 0, *box]
        head = struct.pack("<IfQQ", len(label), 0.0, number, 0) + np.array(label, "<f4").tobytes()
        record = head + content
        parts.append(struct.pack("<II", 0xCED7230A, len(record)) + record + bytes(-len(record) % 4))
    (path / "a.rec").write_bytes(b"".join(parts))
    return path / "a.rec", {}


def write_names(path: Path, pictures: Sequence[Picture]) -> tuple[Path, dict[str, Any]]:
    """LMDB with rows of ``class cx cy w h``; it has no place for a size."""
    with lmdb.open(str(path / "a"), map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
        for number, (content, (x0, y0, x1, y1), _) in enumerate(pictures):
            row = np.array([[0, (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0]], "<f8")
            transaction.put(b"%03d.jpg" % number, content)
            transaction.put(b"%03d.txt" % number, row.tobytes())
    return path / "a", {"shape": (-1, 5), "dtype": "float64", "columns": "class cx cy w h", "units": "relative"}


WRITERS = pytest.mark.parametrize("write", [write_examples, write_rec, write_names])
SIZED = pytest.mark.parametrize("write", [write_examples, write_rec])


@WRITERS
@pytest.mark.filterwarnings("ignore:boxes of .* are of upright pictures")
@pytest.mark.parametrize("orientation", range(1, 9))
def test_fractions_without_a_size_are_of_the_upright_picture(tmp_path: Path, write: Write, orientation: int) -> None:
    """Boxes are those of the same photograph turned physically, and lie on the object that Decode() shows."""
    path, options = write(tmp_path, [of_upright(orientation), of_upright(1)])

    with ps.open(path, **options) as store:
        assert store.schema["boxes"].upright is (None if orientation == 1 else True)
        for record in store:
            np.testing.assert_allclose(record.fields["boxes"], [BOX], atol=1e-3)
            assert record.fields["boxes"].dtype == np.float32
        samples = ps.StoreDataset(store, ("image", "boxes"), [T.Decode()])
        for image, boxes in (samples[0], samples[1]):
            np.testing.assert_allclose(boxes[0], find_box(image), atol=1.5)


@SIZED
@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_fractions_are_of_the_picture_whose_size_the_record_has(tmp_path: Path, write: Write, orientation: int) -> None:
    """Those of the stored picture are turned while they are read, record by record."""
    pictures = [of_upright(orientation, size=SIZE), of_stored(orientation, SIZE[::-1]), of_upright(1, size=SIZE)]
    path, options = write(tmp_path, pictures)

    with ps.open(path, **options) as store:
        for record in store:
            np.testing.assert_allclose(record.fields["boxes"], [BOX], atol=1e-3)


@pytest.mark.parametrize("write", [write_examples, write_rec])
def test_pack_passes_on_which_picture_fractions_are_of(tmp_path: Path, write: Write) -> None:
    """`ps.pack(path, upright=False)` opens the container so; boxes of the pack are those of upright pictures."""
    path, _ = write(tmp_path, [of_stored(6), of_stored(1)])

    ps.pack(path, tmp_path / "a.lmdb", upright=False)

    with ps.open(tmp_path / "a.lmdb") as store:
        assert store.schema["boxes"].upright is True
        for record in store:
            np.testing.assert_allclose(record.fields["boxes"], [BOX], atol=1e-3)


@WRITERS
@pytest.mark.parametrize("orientation", range(1, 9))
def test_who_knows_which_picture_fractions_are_of_says_it(tmp_path: Path, write: Write, orientation: int) -> None:
    """upright=False reads what a program wrote that does not know Exif, whatever size it noted."""
    path, options = write(tmp_path, [of_stored(orientation)])

    with ps.open(path, upright=False, **options) as store:
        np.testing.assert_allclose(store[0].fields["boxes"], [BOX], atol=1e-3)
        assert store.schema["boxes"].upright is True


@WRITERS
def test_a_turned_picture_among_many_needs_to_be_said(tmp_path: Path, write: Write) -> None:
    """Where the images that are looked at are not turned, a record that is turned is refused, with the option."""
    path, options = write(tmp_path, [of_upright(6 if number == 20 else 1) for number in range(60)])

    with ps.open(path, **options) as store:
        assert store.schema["boxes"].upright is None
        np.testing.assert_allclose(store[19].fields["boxes"], [BOX], atol=1e-3)
        with pytest.raises(ArgumentError, match=r"its Exif orientation is 6, and .*: give upright=True") as caught:
            store.read([20])
        assert caught.value.where["index"] == 20
    with ps.open(path, upright=True, **options) as store:
        np.testing.assert_allclose(store[20].fields["boxes"], [BOX], atol=1e-3)


@SIZED
def test_a_size_of_neither_picture_is_damage_unless_it_is_said(tmp_path: Path, write: Write) -> None:
    """The message has both sizes."""
    path, options = write(tmp_path, [of_upright(6, size=(50, 51))])

    with ps.open(path, **options) as store, pytest.raises(PenstockError, match="of 50 x 51, the image has 48 x 80 or"):
        store.read([0])
    with ps.open(path, upright=True, **options) as store:
        np.testing.assert_allclose(store[0].fields["boxes"], [BOX], atol=1e-3)


@WRITERS
def test_what_upright_says_must_be_of_fractions(tmp_path: Path, write: Write) -> None:
    """Another value, and boxes that are pixels, are refused."""
    path, options = write(tmp_path, [of_upright(1)])

    with pytest.raises(ArgumentError, match="upright must be True, False or None, got 'yes'"):
        ps.open(path, upright="yes", **options)
    if write is write_rec:
        with pytest.raises(ArgumentError, match="there are none"):
            ps.open(path, upright=True, label_format="array")
    else:
        with pytest.raises(ArgumentError, match="upright says which picture"):
            ps.open(path, upright=True, **(options | {"units": "pixels"}))
