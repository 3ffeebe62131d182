"""Hostile images through ``decode``: Pillow's pixels or a DecodeError, never anything else and never much memory."""

from __future__ import annotations

import io
import resource
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from penstock import transforms as T
from penstock.errors import DecodeError
from penstock.sample import SampleKeys
from penstock.transforms import decode, sizes
from tests.effort import IS_PART
from tests.native.png_writer import png, samples

CAP = 1 << 24


def verdict_of_pillow(file: bytes) -> NDArray[np.uint8] | None:
    """Pillow's pixels, or None where it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))
        except Exception:  # noqa: BLE001  # whatever it raises, it refuses
            return None


def verdict_of_ours(file: bytes) -> NDArray[np.uint8] | None:
    """Our pixels, or None where a DecodeError says why not; any other exception fails the test."""
    try:
        return decode(file, max_pixels=CAP)
    except DecodeError:
        return None


def assert_same_verdict(file: bytes, name: str = "") -> None:
    """Both give the same pixels, or both refuse."""
    expected, found = verdict_of_pillow(file), verdict_of_ours(file)
    assert (expected is None) == (found is None), f"{name}: Pillow {'refuses' if expected is None else 'decodes'} it"
    if expected is not None:
        np.testing.assert_array_equal(found, expected, err_msg=name)


def small(form: str, size: tuple[int, int] = (48, 40), **options: object) -> bytes:
    """A small valid file."""
    pixels = np.random.default_rng(3).integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).save(file, form, **options)
    return file.getvalue()


VALID = {
    "jpeg": small("JPEG"),
    "progressive": small("JPEG", progressive=True),
    "restart": small("JPEG", restart_marker_blocks=2),
    "png": small("PNG"),
    "png_gray": png(samples(48, 40, 0, 4), 0, 4),
    "png_interlaced": png(samples(48, 40, 3, 8), 3, 8, interlace=1),
    "gif": small("GIF"),
    "webp": small("WEBP"),
    "webp_lossless": small("WEBP", lossless=True),
    "bmp": small("BMP"),
    "tiff": small("TIFF", compression="tiff_lzw"),
    "avif": small("AVIF", speed=10),
    "ppm": small("PPM"),
    "ppm_plain": b"P3 8 4 255\n" + b"".join(b"%d " % (value * 7 % 256) for value in range(96)),
    "pgm": b"P5\n16 9\n17\n" + bytes(range(144)),
}


def test_every_file_of_the_gallery(hostile_dir: Path) -> None:
    """Each malformed JPEG decodes to Pillow's pixels or is a DecodeError with a reason."""
    files = sorted(hostile_dir.glob("*.jpg"))

    for path in files:
        assert_same_verdict(path.read_bytes(), path.name)

    assert len(files) >= 90


def test_the_gallery_leaves_the_other_rows_alone(hostile_dir: Path) -> None:
    """In a batch of hostile files and a good one, the good row is right and every other is filled or reported."""
    images = [path.read_bytes() for path in sorted(hostile_dir.glob("*.jpg"))]
    images.insert(40, VALID["jpeg"])
    pipeline = T.Pipeline([T.Decode(max_pixels=CAP), T.Resize((16, 16))])
    out = np.zeros((len(images), 16, 16, 3), np.uint8)
    failures: list[T.Failure] = []

    pipeline.compile("image").fill(images, out, SampleKeys(0, 0, np.arange(len(images))), failures=failures)

    failed = {failure.position for failure in failures}
    assert all(isinstance(failure.error, DecodeError) for failure in failures)
    for position, image in enumerate(images):
        found = verdict_of_ours(image)
        assert (found is None) == (position in failed)
        if found is not None:
            np.testing.assert_array_equal(out[position], pipeline(image), err_msg=str(position))


@pytest.mark.parametrize("name", VALID)
def test_a_file_cut_anywhere(name: str) -> None:
    """A file cut after any byte is refused where Pillow refuses it, and otherwise gives Pillow's pixels."""
    file = VALID[name]

    for length in range(0, len(file), max(1, len(file) // 150)):
        assert_same_verdict(file[:length], f"{name}[:{length}]")


def test_photographs_cut_at_every_thousandth_byte(photographs_dir: Path) -> None:
    """A truncated photograph gets the verdict that Pillow gives, at every thousandth byte."""
    for path in sorted(photographs_dir.glob("*/*.jpg"))[::9]:
        file = path.read_bytes()
        for length in range(0, len(file), 1000):
            assert_same_verdict(file[:length], f"{path.name}[:{length}]")
        assert_same_verdict(file[:-2], f"{path.name} without EOI")


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"\xff",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xd9",
        b"<!DOCTYPE html><html><body>404</body></html>",
        b"\x00" + VALID["jpeg"],
        VALID["jpeg"] + b"junk behind the end" * 20,
        VALID["jpeg"] + VALID["jpeg"],
        VALID["jpeg"][:-2] + VALID["jpeg"],
        VALID["jpeg"] + VALID["png"],
        VALID["png"] + VALID["jpeg"],
        VALID["jpeg"][: VALID["jpeg"].find(b"\xff\xda")],
        VALID["jpeg"][:2] + b"\xff" * 3000 + VALID["jpeg"][2:],
        VALID["jpeg"][:2] + b"\xff\xe5\xff\xff" + VALID["jpeg"][2:],
        VALID["jpeg"][:2] + b"\xff\xe5\x00\x00" + VALID["jpeg"][2:],
        VALID["png"].replace(b"IDAT", b"IDAX"),
        VALID["gif"][:13],
        VALID["webp"][:12] + b"XXXX" + VALID["webp"][16:],
    ],
)
def test_glued_cut_and_stuffed(file: bytes) -> None:
    """Junk before, behind and inside, images glued together, pages in place of images: Pillow's verdict each time."""
    assert_same_verdict(file)


@pytest.mark.parametrize("name", VALID)
@given(
    edits=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.integers(0, 1 << 20),
)
def test_any_bytes_changed(name: str, edits: list[tuple[int, int]], cut: int) -> None:
    """Whatever bytes are changed, the file decodes or is a DecodeError; never another error, never a crash."""
    file = bytearray(VALID[name])
    for at, value in edits:
        file[at % len(file)] = value

    found = verdict_of_ours(bytes(file[: 1 + cut % (4 * len(file))]))

    assert found is None or (found.ndim == 3 and found.size <= 3 * CAP)


@pytest.mark.parametrize("name", ["jpeg", "restart"])
@given(edits=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=3))
def test_a_changed_jpeg_has_pillows_pixels(name: str, edits: list[tuple[int, int]]) -> None:
    """A damaged baseline JPEG that decodes all the same has the pixels that Pillow makes of the damage."""
    file = bytearray(VALID[name])
    for at, value in edits:
        file[at % len(file)] = value
    found = verdict_of_ours(bytes(file))

    if found is not None:
        np.testing.assert_array_equal(found, verdict_of_pillow(bytes(file)))


def test_refusals_leave_no_memory_behind() -> None:
    """Ten thousand refused files, native and through Pillow, leave the process no larger."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("resident memory is read from /proc")
    bad = [VALID["jpeg"][:-40], VALID["progressive"][:-40], VALID["png"][:-40], b"<html>", VALID["webp"][:-9]]

    def refuse(times: int) -> int:
        for _ in range(times):
            for file in bad:
                with pytest.raises(DecodeError):
                    decode(file)
        return int(statm.read_text().split()[1]) * resource.getpagesize()

    before = refuse(400)
    after = refuse(2000)

    assert after - before < 4 << 20


def test_sizes_never_believes_a_hostile_header(hostile_dir: Path) -> None:
    """The size of a hostile file is a DecodeError or one that its pixels, if they decode, really have."""
    for path in sorted(hostile_dir.glob("*.jpg")):
        try:
            width, height = sizes([path.read_bytes()])[0]
        except DecodeError:
            continue
        found = verdict_of_ours(path.read_bytes())
        assert found is None or found.shape[:2] == (height, width), path.name


EXACT = ("jpeg", "png", "png_gray", "png_interlaced", "webp", "webp_lossless")
"""Valid files whose mutations are compared with Pillow, since they are decoded natively."""


def mutated(file: bytes, rng: np.random.Generator, is_cut: bool) -> bytes:
    """The file with one to five other bytes, cut anywhere if asked for."""
    mutant = np.frombuffer(file, np.uint8).copy()
    for _ in range(int(rng.integers(1, 6))):
        mutant[rng.integers(len(mutant))] = rng.integers(256)
    return mutant[: int(rng.integers(len(mutant))) if is_cut else len(mutant)].tobytes()


def mutate(names: list[str], turns: int) -> None:
    """Decode so many mutations of these files: pixels or a DecodeError, of native formats those of Pillow."""
    rng, decoded = np.random.default_rng(2026), 0
    for turn in range(turns):
        name = names[turn % len(names)]
        mutant = mutated(VALID[name], rng, turn % 3 == 0)
        found = verdict_of_ours(mutant)
        decoded += found is not None
        if found is not None and name in EXACT:
            np.testing.assert_array_equal(found, verdict_of_pillow(mutant), err_msg=f"{name}, {turn}")

    assert 0 < decoded < turns


@pytest.mark.parametrize("name", EXACT)
def test_a_thousand_mutations(name: str) -> None:
    """Mutations of files that are decoded natively give Pillow's pixels or a DecodeError."""
    mutate([name], 1000)


@pytest.mark.slow
def test_thirty_thousand_mutations() -> None:
    """30,000 random mutations of valid files: pixels or a DecodeError, Pillow's pixels where they are native."""
    mutate(list(VALID), 10_000 if IS_PART else 30_000)
