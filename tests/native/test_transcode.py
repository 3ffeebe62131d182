"""Transcoding to baseline changes no pixel and no metadata, whatever the scans were."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from penstock import _native
from tests.native.progressive_writer import Picture, Scan, random_script, segment, write
from tests.native.test_jpeg_exact import assert_exact, pillow
from tests.native.test_progressive_exact import SAMPLINGS

Jpeg = Callable[..., bytes]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_any_script_becomes_a_baseline_file_of_the_same_pixels(sampling: str) -> None:
    """The result is baseline for everyone, and decodes as the original does, here and with Pillow."""
    rng = random.Random(f"transcode {sampling}")
    factors = SAMPLINGS[sampling]

    for _ in range(25):
        picture = Picture.noise(rng.randint(1, 60), rng.randint(1, 60), factors, rng)
        script = random_script(len(factors), rng, complete=rng.random() < 0.5)
        file = write(picture, script, rng, restarts=rng.random() < 0.3)

        baseline = _native.transcode_baseline(file)

        assert _native.inspect(baseline)["process"] == "sequential"
        np.testing.assert_array_equal(pillow(baseline), pillow(file))
        assert_exact(baseline, 1, rng)


def test_photographs_keep_their_pixels(photographs_dir: Path) -> None:
    """Photographs saved as progressive, transcoded: the pixels of the progressive file."""
    for path in sorted(photographs_dir.glob("*/*.jpg"))[::5]:
        with Image.open(path) as image:
            file = io.BytesIO()
            image.save(file, "JPEG", quality=88, progressive=True)

        baseline = _native.transcode_baseline(file.getvalue())

        np.testing.assert_array_equal(_native.decode(baseline), pillow(file.getvalue()), err_msg=path.name)


def test_metadata_stay(jpeg: Jpeg) -> None:
    """Exif, ICC profile, comment and resolution are read from the result as from the original."""
    exif = Image.Exif()
    exif[0x010E] = "a picture"
    options = {"exif": exif.tobytes(), "icc_profile": b"profile" * 20, "comment": b"said", "dpi": (72, 71)}
    file = jpeg(40, 30, progressive=True, **options)

    with Image.open(io.BytesIO(_native.transcode_baseline(file))) as after, Image.open(io.BytesIO(file)) as before:
        assert "progression" in before.info
        progression = {"progressive", "progression"}
        assert after.info == {name: value for name, value in before.info.items() if name not in progression}
        assert after.getexif() == before.getexif()


def test_adobe_colours_stay(jpeg: Jpeg) -> None:
    """RGB stored as such stays RGB."""
    file = jpeg(40, 30, progressive=True, keep_rgb=True, subsampling=0)

    baseline = _native.transcode_baseline(file)

    assert _native.inspect(baseline)["color"] == "rgb"
    np.testing.assert_array_equal(_native.decode(baseline), pillow(file))


def test_sixteen_bit_quantisation_tables_make_an_extended_file(jpeg: Jpeg) -> None:
    """A baseline file may not have them; an extended sequential one, which decoders read alike, may."""
    file = jpeg(40, 30, progressive=True, subsampling=0)
    start = file.index(b"\xff\xdb")
    wide = segment(0xDB, b"\x10" + b"".join(bytes([0, step]) for step in file[start + 5 : start + 69]))
    file = file[:start] + wide + file[start + 69 :]

    transcoded = _native.transcode_baseline(file)

    assert b"\xff\xc1\0\x11\x08" in transcoded
    np.testing.assert_array_equal(_native.decode(transcoded), pillow(file))
    np.testing.assert_array_equal(pillow(transcoded), pillow(file))


def test_what_cannot_be_kept_is_refused(jpeg: Jpeg) -> None:
    """Baseline files, files without all scans, other formats and damage are refused, each in its way."""
    rng = random.Random(1)
    first_scan = write(Picture.noise(30, 20, [(1, 1)], rng), [Scan((0,), 0, 0, 0, 0)], rng)
    progressive = jpeg(40, 30, progressive=True)

    with pytest.raises(_native.UnsupportedError, match="not progressive"):
        _native.transcode_baseline(jpeg(40, 30))
    with pytest.raises(_native.UnsupportedError, match="scans missing"):
        _native.transcode_baseline(first_scan)
    with pytest.raises(_native.CorruptError):
        _native.transcode_baseline(progressive[:-40])
    with pytest.raises(_native.CorruptError):
        _native.transcode_baseline(b"\x89PNG")
    with pytest.raises(_native.TooLargeError):
        _native.transcode_baseline(progressive, max_pixels=40 * 30 - 1)
