"""JPEGs of four components, and of three with odd markers: everywhere the pixels of Pillow, whoever decodes."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

import penstock as ps
from penstock import _native
from penstock import transforms as T
from penstock.cli import app
from penstock.sample import SampleKeys
from tests.native.progressive_writer import Picture
from tests.native.sequential_writer import write_sequential
from tests.native.test_jpeg_exact import assert_exact, pillow

FOURS = {
    "4:4:4": [(1, 1)] * 4,
    "4:2:0": [(2, 2), (1, 1), (1, 1), (2, 2)],
    "4:2:0, black too": [(2, 2), (1, 1), (1, 1), (1, 1)],
}
THREES = {"4:4:4": [(1, 1)] * 3, "4:2:0": [(2, 2), (1, 1), (1, 1)]}
TRANSFORMS = (None, 0, 1, 2, 3, 255)
"""In Adobe's marker; None: there is none."""


def odd(
    factors: list[tuple[int, int]],
    adobe: int | None,
    *,
    jfif: bool = False,
    ids: bytes | None = None,
    apart: bool = False,
) -> bytes:
    """A picture of noise, 61 x 45, in one scan or in one for each component."""
    rng = random.Random(f"{factors} {adobe}")
    picture = Picture.noise(61, 45, factors, rng)
    together = tuple(range(len(factors)))
    groups = [(component,) for component in together] if apart else [together]
    return write_sequential(picture, groups, rng, adobe=adobe, jfif=jfif, ids=ids)


def saved(adobe: int | None, subsampling: str) -> bytes:
    """A smooth picture as Pillow writes CMYK, inverted as Adobe does, with another transform or no marker at all."""
    coarse = Image.fromarray(np.random.default_rng(3).integers(0, 256, (6, 8, 4), dtype=np.uint8), "CMYK")
    file = io.BytesIO()
    coarse.resize((61, 45), Image.Resampling.BICUBIC).save(file, "JPEG", subsampling=subsampling)
    jpeg = file.getvalue()
    marker = jpeg.index(b"\xff\xee")
    end = marker + 2 + int.from_bytes(jpeg[marker + 2 : marker + 4], "big")
    return jpeg[:marker] + (b"" if adobe is None else jpeg[marker : end - 1] + bytes([adobe])) + jpeg[end:]


CMYK = {f"{name}, {adobe}": odd(factors, adobe) for name, factors in FOURS.items() for adobe in TRANSFORMS}
CMYK |= {f"four scans, {adobe}": odd(FOURS["4:2:0"], adobe, apart=True) for adobe in TRANSFORMS}
CMYK |= {f"JFIF, {adobe}": odd(FOURS["4:2:0"], adobe, jfif=True) for adobe in TRANSFORMS}
CMYK |= {f"saved {name}, {adobe}": saved(adobe, name) for name in ("4:4:4", "4:2:0") for adobe in TRANSFORMS}
FEW = [f"{kind}, {adobe}" for kind in ("4:2:0", "saved 4:4:4") for adobe in (None, 0, 2)]


def drafted(file: bytes, scale: int) -> NDArray[np.uint8]:
    """The picture at a fraction of its size, by libjpeg's own scaling."""
    image = Image.open(io.BytesIO(file))
    image.draft(None, (61 // scale, 45 // scale))
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("name", CMYK)
def test_four_components_are_pillows(name: str) -> None:
    """CMYK and YCCK, whatever the markers say: the whole, a region and scaled, as Pillow converts them to RGB."""
    file, expected = CMYK[name], pillow(CMYK[name])

    np.testing.assert_array_equal(ps.decode(file), expected)
    np.testing.assert_array_equal(ps.decode(file, region=(5, 7, 50, 33)), expected[7:33, 5:50])
    for scale in (2, 4, 8):
        np.testing.assert_array_equal(ps.decode(file, scale=scale), drafted(file, scale))
    with pytest.raises(_native.UnsupportedError, match="components"):
        _native.decode(file)


def test_the_markers_make_a_difference() -> None:
    """Where Adobe's marker says "transformed" and where it does not, the same numbers are other colours."""
    plain, transformed = ps.decode(saved(0, "4:4:4")), ps.decode(saved(2, "4:4:4"))

    assert np.abs(plain.astype(int) - transformed).mean() > 5


@pytest.mark.parametrize("scale", ["full", "auto"])
def test_batches_take_four_components_from_pillow(scale: str) -> None:
    """Crop, resize and normalisation see Pillow's pixels in full size, also where scaled decoding is asked for."""
    resize = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
    files, keys = list(CMYK.values()), SampleKeys(7, 0, np.arange(len(CMYK)))
    crop: list[T.Op] = [T.RandomResizedCrop((8, 9)), T.HorizontalFlip(), *resize]
    program = T.Pipeline([T.Decode(scale=scale, quality=1.0), *crop]).compile("image")
    rows = np.zeros((len(files), 3, 8, 9), np.float32)

    program.fill(files, rows, keys)

    for i, file in enumerate(files):
        png = io.BytesIO()
        Image.fromarray(pillow(file)).save(png, "PNG")
        expected = T.Pipeline([T.Decode(), *crop])(png.getvalue(), keys=keys[i : i + 1])
        np.testing.assert_array_equal(rows[i], expected)


def test_stores_of_four_components(tmp_path: Path) -> None:
    """They are packed as they are and verified, measured by `info`, listed as having no index, and never transcoded."""
    (tmp_path / "folder").mkdir()
    for name in FEW:
        (tmp_path / "folder" / f"{name.replace(':', '')}.jpg").write_bytes(CMYK[name])
    run, pack = CliRunner(), str(tmp_path / "pack.lmdb")

    said = run.invoke(
        app, ["pack", str(tmp_path / "folder"), pack, "--index", "rows", "--transcode", "baseline", "--check", "decode"]
    )
    verified = run.invoke(app, ["verify", pack, "--source", str(tmp_path / "folder")])
    measured = run.invoke(app, ["info", pack, "--json"])

    assert said.exit_code == verified.exit_code == measured.exit_code == 0
    assert "0 images transcoded" in said.output
    assert "0 images indexed" in said.output
    assert "the number of components must be 1 or 3" in said.output
    assert f"{len(FEW)} entries" in said.output
    assert "nothing wrong" in verified.output
    facts = json.loads(measured.output)
    assert facts["formats"] == {"JPEG": len(FEW)}
    assert (facts["width"]["median"], facts["height"]["median"]) == (61, 45)
    with ps.open(pack) as store:
        for record in store.read(range(len(store))):
            np.testing.assert_array_equal(ps.decode(record.fields["image"]), pillow(bytes(record.fields["image"])))


@pytest.mark.parametrize("adobe", TRANSFORMS)
@pytest.mark.parametrize("ids", [b"\1\2\3", b"RGB", b"rgb", b"\0\1\2", b"BGR"])
@pytest.mark.parametrize("jfif", [False, True])
@pytest.mark.parametrize("sampling", THREES)
def test_three_components_mean_what_libjpeg_takes_them_for(
    sampling: str, jfif: bool, ids: bytes, adobe: int | None
) -> None:
    """JFIF says YCbCr; else Adobe's transform decides, 0 being RGB; else the components' names."""
    file = odd(THREES[sampling], adobe, ids=ids, jfif=jfif)

    facts = _native.inspect(file)

    assert facts["native"]
    assert facts["color"] == ("rgb" if not jfif and (adobe == 0 or (adobe is None and ids == b"RGB")) else "ycbcr")
    assert_exact(file, 2, random.Random(adobe))
    for scale in (2, 4, 8):
        np.testing.assert_array_equal(_native.decode(file, scale=scale), drafted(file, scale))


@pytest.mark.parametrize("adobe", TRANSFORMS)
def test_gray_stays_gray(adobe: int | None) -> None:
    """One component has one meaning, whatever a marker says."""
    assert_exact(odd([(1, 1)], adobe), 2, random.Random(adobe))


def lossless(levels: NDArray[np.uint8], bits: int = 8) -> bytes:
    """A lossless JPEG (SOF3) of gray: differences to the left pixel, or the upper one at the left, of up to 8 bits."""
    height, width = (int(side) for side in levels.shape)
    values, code = levels.astype(int), ""
    for y, x in np.ndindex(height, width):
        before = values[y, x - 1] if x else values[y - 1, 0] if y else 1 << bits - 1
        difference = int(values[y, x] - before)
        count = abs(difference).bit_length()
        code += f"{count:04b}"
        if count:
            code += f"{difference if difference > 0 else difference + (1 << count) - 1:0{count}b}"
    code += "1" * (-len(code) % 8)
    scan = bytes(int(code[at : at + 8], 2) for at in range(0, len(code), 8)).replace(b"\xff", b"\xff\0")
    frame = b"\xff\xc3\0\x0b" + bytes([bits]) + height.to_bytes(2, "big") + width.to_bytes(2, "big") + b"\1\1\x11\0"
    table = b"\xff\xc4\0\x1c\0" + bytes([0, 0, 0, 9, *[0] * 12]) + bytes(range(9))
    return b"\xff\xd8" + frame + table + b"\xff\xda\0\x08\1\1\0\1\0\0" + scan + b"\xff\xd9"


def arithmetic(marker: int, scan: bytes) -> bytes:
    """An arithmetic-coded JPEG of gray, 61 x 45, one level a block: any bytes are the code of some levels."""
    frame = bytes([0xFF, marker, 0, 11, 8, 0, 45, 0, 61, 1, 1, 0x11, 0])
    parts = [b"\xff\xd8\xff\xdb\0\x43\0", bytes([16] * 64), frame, b"\xff\xda\0\x08\1\1\0\0\0\0", scan, b"\xff\xd9"]
    return b"".join(parts)


LEVELS = np.random.default_rng(1).integers(0, 256, (45, 61)).astype(np.uint8)
ARITHMETIC = arithmetic(0xCA, bytes(random.Random(4).choices(range(255), k=200)))


def test_a_lossless_jpeg_is_decoded_exactly_by_pillow() -> None:
    """SOF3: refused by the native decoder, and each value comes back, decoded alone, in part and into a batch."""
    file = lossless(LEVELS)

    with pytest.raises(_native.UnsupportedError, match="lossless"):
        _native.decode(file)
    assert (ps.decode(file, mode="unchanged") == LEVELS).all()
    assert (ps.decode(file, (3, 5, 40, 20)) == LEVELS[5:20, 3:40, None]).all()
    assert (filled(file) == LEVELS[:, :, None]).all()


def test_an_arithmetic_coded_jpeg_is_decoded_by_pillow() -> None:
    """SOF10: refused by the native decoder, and everywhere Pillow's pixels, which are of many levels here."""
    expected = pillow(ARITHMETIC)

    with pytest.raises(_native.UnsupportedError, match="arithmetic"):
        _native.decode(ARITHMETIC)
    assert len(np.unique(expected)) > 10
    assert (ps.decode(ARITHMETIC) == expected).all()
    assert (filled(ARITHMETIC) == expected).all()


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (saved(None, "4:4:4").replace(b"\xff\xc0\0\x14\x08", b"\xff\xc0\0\x14\x0c"), "12-bit samples"),
        (lossless(LEVELS, bits=12), "12-bit samples"),
        (lossless(LEVELS, bits=16), "16-bit samples"),
        (ARITHMETIC.replace(b"\xff\xca\0\x0b\x08", b"\xff\xca\0\x0b\x0c"), "12-bit samples"),
        (ARITHMETIC.replace(b"\xff\xca", b"\xff\xce"), "hierarchical"),
    ],
    ids=["12 bits", "lossless, 12 bits", "lossless, 16 bits", "arithmetic, 12 bits", "hierarchical"],
)
def test_a_jpeg_that_nobody_reads_is_told_apart_from_a_damaged_one(file: bytes, kind: str) -> None:
    """The error says which property is not supported, also in a batch."""
    with pytest.raises(ps.UnsupportedImageError, match=f"unsupported JPEG: {kind}"):
        ps.decode(file)
    with pytest.raises(ps.UnsupportedImageError, match=f"unsupported JPEG: {kind}"):
        filled(file)


def filled(file: bytes) -> NDArray[np.uint8]:
    """The row of a batch, at full size."""
    out, failures = np.zeros((1, 45, 61, 3), np.uint8), list[T.Failure]()
    T.Pipeline([T.Decode(), T.Resize((45, 61))]).compile("image").fill(
        [file], out, SampleKeys(0, 0, np.arange(1)), failures=failures
    )
    for failure in failures:
        raise failure.error
    row: NDArray[np.uint8] = out[0]
    return row
