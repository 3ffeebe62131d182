"""Packing with ``resize``: smaller images, and what is in their pixels with them."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

import penstock as ps
from penstock.annotations import rle
from penstock.cli import app
from penstock.errors import ArgumentError, PackError, StoreError
from tests.pack.voc import write_voc

ROOT = Path(__file__).parents[2]
CELLS = ROOT / "examples" / "data" / "blood-cells"


def scene(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """A smooth picture."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encoded(image: Any, form: str = "JPEG", **options: Any) -> bytes:
    """The pixels as a file."""
    file = io.BytesIO()
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    picture.save(file, form, **options)
    return file.getvalue()


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Files in a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def photos(folder: Path, count: int = 20) -> Path:
    """Pictures of several sizes, in two classes."""
    sizes = [(160 + 7 * number, 120 + 3 * number) for number in range(count)]
    names = (f"{'ab'[number % 2]}/{number}.jpg" for number in range(count))
    return write(folder, {name: encoded(scene(*size)) for name, size in zip(names, sizes, strict=True)})


def records(path: Path) -> list[dict[str, Any]]:
    """The fields of all records, with the image as bytes."""
    with ps.open(path) as store:
        return [
            {name: bytes(value) if isinstance(value, memoryview) else value for name, value in record.fields.items()}
            for record in store.read(range(len(store)))
        ]


def resized(pixels: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """The same by Pillow."""
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))


def contents(path: Path) -> dict[str, bytes]:
    """The records as they lie in the files of a store; the order of its decode index is that of threads."""
    return {name: (path / name).read_bytes() for name in ("data.mdb", "pages.xxh3")}


def test_the_shorter_side_gets_the_size(tmp_path: Path) -> None:
    """Each image is Pillow's antialiased reduction to within a level, as PNG without further loss."""
    source = photos(tmp_path / "photos", 4)

    report = ps.pack(source, tmp_path / "p.lmdb", resize=90, image_format="png")

    for number, fields in zip([0, 2, 1, 3], records(tmp_path / "p.lmdb"), strict=True):
        width, height = 160 + 7 * number, 120 + 3 * number
        new = int(90 * width / height), 90
        original = ps.decode((source / f"{'ab'[number % 2]}/{number}.jpg").read_bytes())
        found = ps.decode(fields["image"]).astype(int)
        assert (fields["width"], fields["height"]) == new
        assert fields["label"] == number % 2
        assert np.abs(found - resized(original, *new)).max() <= 1
    assert report.resized is not None
    assert (report.resized.resized, report.resized.kept, report.resized.measured) == (4, 0, 4)
    assert report.resized.psnr == math.inf
    assert report.resized.nbytes_after == report.nbytes
    assert report.resized.nbytes_before == sum(file.stat().st_size for file in source.rglob("*.jpg"))


def test_the_longest_side_gets_the_size(tmp_path: Path) -> None:
    """With "longest:", the longer side becomes the size, in either direction."""
    source = write(tmp_path / "photos", {"a/0.jpg": encoded(scene(200, 100)), "a/1.jpg": encoded(scene(50, 301))})

    ps.pack(source, tmp_path / "p.lmdb", resize="longest:100")

    assert [(each["width"], each["height"]) for each in records(tmp_path / "p.lmdb")] == [(100, 50), (16, 100)]


def test_small_images_keep_their_bytes(tmp_path: Path) -> None:
    """An image that is small enough and of the format is not encoded again; of another format it is, in its size."""
    files = {"a/0.jpg": encoded(scene(60, 50)), "a/1.png": encoded(scene(60, 50), "PNG")}
    source = write(tmp_path / "photos", files)

    report = ps.pack(source, tmp_path / "p.lmdb", resize=90)

    small, other = records(tmp_path / "p.lmdb")
    assert small["image"] == files["a/0.jpg"]
    assert Image.open(io.BytesIO(other["image"])).format == "JPEG"
    assert (other["width"], other["height"]) == (60, 50)
    assert report.resized is not None
    assert (report.resized.resized, report.resized.kept) == (1, 1)


@pytest.mark.parametrize("orientation", range(2, 9))
def test_images_are_turned_upright(tmp_path: Path, orientation: int) -> None:
    """The Exif orientation is applied to the pixels, and is not in the result; small images too."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    files = {f"a/{size}.jpg": encoded(scene(size, size // 2), exif=exif) for size in (60, 160)}
    source = write(tmp_path / "photos", files)

    ps.pack(source, tmp_path / "p.lmdb", resize=40, image_format="png")

    for name, fields in zip(("a/60.jpg", "a/160.jpg"), records(tmp_path / "p.lmdb"), strict=True):
        upright = ps.decode(files[name], orient=True)
        height, width = upright.shape[:2]
        small = min(height, width) <= 40
        new = (width, height) if small else (80, 40) if width > height else (40, 80)
        assert (fields["width"], fields["height"]) == new
        expected = upright if small else resized(upright, *new)
        assert np.abs(ps.decode(fields["image"], orient=True).astype(int) - expected).max() <= 1
        assert Image.open(io.BytesIO(fields["image"])).getexif().get(0x0112, 1) == 1


@pytest.mark.parametrize("form", ["jpeg", "png", "webp"])
def test_formats_hold_what_they_can(tmp_path: Path, form: str) -> None:
    """Gray stays gray and alpha stays where the format has them, and PNG keeps 16 bits."""
    colour = Image.fromarray(scene(80, 60))
    deep = (np.asarray(colour.convert("L")).astype(np.uint16) * 257) ^ 0x55
    files = {
        "a/0.png": encoded(colour.convert("L"), "PNG"),
        "a/1.png": encoded(colour.convert("RGBA").rotate(10), "PNG"),
        "a/2.png": encoded(deep, "PNG"),
        "a/3.png": encoded(colour.quantize(20), "PNG"),
        "a/4.png": encoded(colour.convert("LA").rotate(10), "PNG"),
        "a/5.jpg": encoded(colour.convert("CMYK")),
    }
    source = write(tmp_path / "photos", files)

    report = ps.pack(source, tmp_path / "p.lmdb", resize=30, image_format=form)

    shapes = [ps.decode(fields["image"], mode="unchanged").shape for fields in records(tmp_path / "p.lmdb")]
    gray, both, alpha = ((30, 40, 3),) * 2 + ((30, 40, 4),) if form == "webp" else ((30, 40), (30, 40, 2), (30, 40, 4))
    if form == "jpeg":
        assert shapes == [(30, 40), (30, 40, 3), (30, 40), (30, 40, 3), (30, 40), (30, 40, 3)]
    elif form == "webp":
        assert shapes == [gray, alpha, gray, (30, 40, 3), alpha, (30, 40, 3)]
    else:
        assert shapes == [gray, alpha, gray, (30, 40, 3), both, (30, 40, 3)]
        assert ps.decode(records(tmp_path / "p.lmdb")[2]["image"], mode="unchanged").dtype == np.uint16
    assert report.resized is not None
    assert report.resized.measured == 6
    assert report.resized.psnr > 30


def test_a_profile_stays_with_its_colours(tmp_path: Path) -> None:
    """The ICC profile is stored with pixels of its kind, and other metadata are not."""
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exif = Image.Exif()
    exif[0x010E] = "a description"
    colour = Image.fromarray(scene(80, 60))
    files = {
        "a/0.jpg": encoded(colour, icc_profile=profile, exif=exif),
        "a/1.jpg": encoded(colour.convert("CMYK"), icc_profile=profile),
    }

    ps.pack(write(tmp_path / "photos", files), tmp_path / "p.lmdb", resize=30)

    pictures = [Image.open(io.BytesIO(fields["image"])) for fields in records(tmp_path / "p.lmdb")]
    assert pictures[0].info["icc_profile"] == profile
    assert not pictures[0].getexif()
    assert "icc_profile" not in pictures[1].info


def test_detection_annotations_follow(tmp_path: Path) -> None:
    """Boxes of a genuine VOC set are scaled with their images; labels and other fields stay."""
    ps.pack(CELLS, tmp_path / "whole.lmdb", format="voc", split="val")

    report = ps.pack(CELLS, tmp_path / "p.lmdb", format="voc", split="val", resize=240, image_format="png")

    whole, small = records(tmp_path / "whole.lmdb"), records(tmp_path / "p.lmdb")
    assert report.resized is not None
    assert report.resized.resized == len(whole) == len(small)
    for before, after in zip(whole, small, strict=True):
        ratio = np.array([after["width"] / before["width"], after["height"] / before["height"]] * 2)
        assert (after["width"], after["height"]) == (320, 240)
        np.testing.assert_allclose(after["boxes"], before["boxes"] * ratio, rtol=1e-6)
        kept = before.keys() - {"image", "boxes", "width", "height"}
        assert all(np.array_equal(before[name], after[name]) for name in kept)
        expected = resized(ps.decode(before["image"]), 320, 240)
        assert np.abs(ps.decode(after["image"]).astype(int) - expected).max() <= 1


def test_points_masks_and_areas_follow(tmp_path: Path) -> None:
    """Everything in the coordinates of the image is scaled as T.Resize scales it."""
    pixels = scene(120, 80)
    mask = np.zeros((80, 120), np.uint8)
    mask[20:40, 30:90] = 7
    schema = ps.Schema(
        {
            "image": ps.Field("image"),
            "mask": ps.Field("mask"),
            "boxes": ps.Field("boxes"),
            "labels": ps.Field("int64[*]"),
            "keypoints": ps.Field("float32[*,2,3]"),
            "corner": ps.Field("keypoints"),
            "area": ps.Field("float32[*]"),
            "instances": ps.Field("json"),
            "score": ps.Field("float"),
        }
    )
    sample = {
        "image": encoded(pixels, "PNG"),
        "mask": encoded(mask, "PNG"),
        "boxes": np.array([[30, 20, 90, 40]], np.float32),
        "labels": np.array([3]),
        "keypoints": np.array([[[30, 20, 2], [0, 0, 0]]], np.float32),
        "corner": np.array([[90, 40]], np.float32),
        "area": np.array([1200], np.float32),
        "instances": [rle.encode(mask), None],
        "score": 0.25,
    }

    ps.pack([sample], tmp_path / "p.lmdb", schema=schema, resize=40, image_format="png")

    found = records(tmp_path / "p.lmdb")[0]
    np.testing.assert_array_equal(found["boxes"], [[15, 10, 45, 20]])
    np.testing.assert_array_equal(found["keypoints"], [[[15, 10, 2], [0, 0, 0]]])
    np.testing.assert_array_equal(found["corner"], [[45, 20]])
    np.testing.assert_array_equal(found["area"], [300])
    np.testing.assert_array_equal(found["labels"], [3])
    assert found["score"] == 0.25
    expected = np.zeros((40, 60), np.uint8)
    expected[10:20, 15:45] = 7
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(found["mask"]))), expected)
    np.testing.assert_array_equal(rle.decode(found["instances"][0]), expected > 0)
    assert found["instances"][1] is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bbox": "float32[*,4]"}, "cannot scale the field 'bbox' of kind float32.*looks like boxes"),
        ({"polygons": "json"}, "cannot scale the field 'polygons' of kind json.*looks like keypoints"),
        ({"landmarks": "int64[*,2]"}, "cannot scale the field 'landmarks'"),
        ({"image": "pixels:uint8[*,*,3]"}, "'image' is stored as pixels"),
        ({"image": "bytes"}, "resize needs encoded images, and the fields are image"),
    ],
)
def test_what_cannot_be_scaled_is_refused_first(tmp_path: Path, fields: dict[str, str], message: str) -> None:
    """A field that looks like boxes or points and is of another kind is refused before anything is written."""
    kinds = {"image": "image", **fields}
    schema = ps.Schema({name: ps.Field(kind) for name, kind in kinds.items()})

    with pytest.raises(ArgumentError, match=message):
        ps.pack(iter([dict.fromkeys(kinds)]), tmp_path / "p.lmdb", schema=schema, resize=40)
    assert not (tmp_path / "p.lmdb").exists()


def test_a_mask_of_another_size_is_named(tmp_path: Path) -> None:
    """A mask that does not fit its image is listed like any record that cannot be packed."""
    samples = [{"image": encoded(scene(120, 80)), "mask": encoded(scene(60, 40)[:, :, 0], "PNG")}]

    with pytest.raises(PackError, match="'mask' cannot be scaled with the image: a mask must have the size"):
        ps.pack(samples, tmp_path / "p.lmdb", resize=40)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resize": 0}, "resize must be the number of pixels of the shorter side"),
        ({"resize": "512px"}, "resize must be the number"),
        ({"resize": True}, "resize must be the number"),
        ({"resize": 100.5}, "resize must be the number"),
        ({"quality": 90}, "must be given with resize"),
        ({"image_format": "png"}, "must be given with resize"),
        ({"format": "jpeg"}, "must be given with resize"),
        ({"resize": 9, "quality": 101}, "quality must be an integer"),
        ({"resize": 9, "image_format": "png", "quality": 90}, "quality must be left out"),
        ({"resize": 9, "image_format": "gif"}, "image_format must be one of jpeg, png, webp"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """The error says what is allowed."""
    with pytest.raises(ArgumentError, match=message):
        ps.pack(photos(tmp_path / "photos", 2), tmp_path / "p.lmdb", **options)


def test_broken_images_are_listed(tmp_path: Path) -> None:
    """An image that cannot be decoded is named, and left out with on_error="skip"."""
    source = photos(tmp_path / "photos", 4)
    file = source / "a" / "0.jpg"
    file.write_bytes(file.read_bytes()[:-400] + b"\xff\xd9")
    (source / "a" / "2.jpg").write_bytes(b"no image")

    report = ps.pack(source, tmp_path / "p.lmdb", resize=40, on_error="skip")

    assert "a/2.jpg" in [entry.key for entry in report.skipped]
    assert report.records == 4 - len(report.skipped)
    with pytest.raises(PackError, match=r"a/2.jpg: not an image"):
        ps.pack(source, tmp_path / "other.lmdb", resize=40)


def test_a_resized_pack_agrees_with_its_source(tmp_path: Path) -> None:
    """Verifying resizes the records of the source again, and finds a source that was changed."""
    source = photos(tmp_path / "photos", 6)
    ps.pack(source, tmp_path / "p.lmdb", resize=40, quality=80)

    assert ps.verify(tmp_path / "p.lmdb", source).ok
    (source / "a" / "2.jpg").write_bytes(encoded(scene(160, 120, 9)))
    problems = ps.verify(tmp_path / "p.lmdb", source).problems
    assert [problem.key for problem in problems] == ["a/2.jpg"]
    assert "bytes of its image" in str(problems[0])


def test_other_sizes_are_other_packs(tmp_path: Path) -> None:
    """A finished pack is used again with the same options only, whatever the number of workers."""
    source = photos(tmp_path / "photos", 6)
    ps.pack(source, tmp_path / "p.lmdb", resize=40)

    assert ps.pack(source, tmp_path / "p.lmdb", resize="shorter:40", workers=1).reused
    others: list[dict[str, Any]] = [
        {"resize": 41},
        {"resize": 40, "quality": 90},
        {"resize": 40, "image_format": "webp"},
    ]
    for options in [*others, {}]:
        with pytest.raises(ArgumentError, match=r"it was packed with (resize|quality|image_format)="):
            ps.pack(source, tmp_path / "p.lmdb", **options)
    ps.pack(source, tmp_path / "plain.lmdb")
    with pytest.raises(ArgumentError, match="it was packed without resize"):
        ps.pack(source, tmp_path / "plain.lmdb", resize=40)


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 3}, {"jobs": 2}])
def test_workers_change_no_byte(tmp_path: Path, options: dict[str, Any]) -> None:
    """One thread, several, and processes write the same store, and count the same."""
    source = photos(tmp_path / "photos")
    first = ps.pack(source, tmp_path / "first.lmdb", resize=40)

    report = ps.pack(source, tmp_path / "p.lmdb", resize=40, **options)

    assert contents(tmp_path / "p.lmdb") == contents(tmp_path / "first.lmdb")
    assert report.resized is not None
    assert first.resized is not None
    assert (report.resized.resized, report.resized.nbytes_after) == (first.resized.resized, first.resized.nbytes_after)


def test_an_interrupted_run_is_resumed_with_the_same_size_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed of an interrupted run is kept, and another size is refused."""
    from penstock.stores.common.lmdb.environment_writer import CommitLimits
    from penstock.stores.lmdb_pack.writer import LmdbWriter

    source = photos(tmp_path / "photos", 40)
    real, limits = LmdbWriter.__init__, CommitLimits(records=3)
    monkeypatch.setattr(LmdbWriter, "__init__", lambda self, *a, **k: real(self, *a, **{**k, "limits": limits}))
    ps.pack(source, tmp_path / "whole.lmdb", resize=40)

    def stop(progress: Any) -> None:
        if progress.done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ps.pack(source, tmp_path / "p.lmdb", resize=40, progress=stop)

    with pytest.raises(StoreError, match="resize='shorter:40'"):
        ps.pack(source, tmp_path / "p.lmdb", resize=50)
    report = ps.pack(source, tmp_path / "p.lmdb", resize=40)
    assert 0 < report.resumed < 40
    assert report.resized is not None
    assert report.resized.resized == 40 - report.resumed
    assert contents(tmp_path / "p.lmdb") == contents(tmp_path / "whole.lmdb")


def test_the_command_states_the_loss(tmp_path: Path) -> None:
    """`penstock pack --resize` prints bytes before and after, and the mean PSNR."""
    source = photos(tmp_path / "photos")

    done = CliRunner().invoke(
        app, ["pack", str(source), str(tmp_path / "p.lmdb"), "--resize", "64", "--quality", "90", "--format", "jpeg"]
    )

    assert done.exit_code == 0, done.output
    assert "20 images encoded anew, 0 unchanged: " in done.output
    assert " kB became " in done.output
    assert " dB against the resized pixels, of 20 images measured" in done.output
    assert Image.open(io.BytesIO(records(tmp_path / "p.lmdb")[0]["image"])).format == "JPEG"


def test_annotations_and_images_have_formats(tmp_path: Path) -> None:
    """`--format` is that of the annotations beside `--image-format`; training reads what was packed."""
    write_voc(tmp_path / "voc", [[("dog", 2, 3, 10, 12)], [("cat", 5, 5, 15, 18)]])

    command = ["pack", str(tmp_path / "voc"), str(tmp_path / "p.lmdb"), "--format", "voc", "--resize", "16"]
    done = CliRunner().invoke(app, [*command, "--image-format", "webp"])

    assert done.exit_code == 0, done.output
    assert all(fields["image"][:4] == b"RIFF" for fields in records(tmp_path / "p.lmdb"))
    assert min(min(fields["width"], fields["height"]) for fields in records(tmp_path / "p.lmdb")) == 16
