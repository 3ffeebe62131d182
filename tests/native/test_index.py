"""Decoding by an index gives the pixels of decoding without, whatever the index bytes are; learning changes nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock import _native

Jpeg = Callable[..., bytes]
Region = tuple[int, int, int, int]
Found = list[tuple[int, bool, bytes | None]]

KINDS = ["rows", "tiles"]


def regions(rng: random.Random, file: bytes, count: int) -> Iterator[Region]:
    """Random regions, and the whole picture."""
    width, height = (int(side) for side in _native.sizes([file])[0])
    yield 0, 0, width, height
    for _ in range(count):
        x0, y0 = rng.randrange(width), rng.randrange(height)
        yield x0, y0, rng.randint(x0 + 1, width), rng.randint(y0 + 1, height)


def decode(
    file: bytes, region: Region, index: bytes | None, learn: str | None = None
) -> tuple[NDArray[np.uint8], Found]:
    """The pixels, and what was told of the index."""
    found: Found = []
    return _native.decode(file, region, index=index, learn=learn, found=found), found


def fill(files: list[bytes], geometry: NDArray[np.int32], **given: Any) -> tuple[NDArray[np.float32], Found, list[Any]]:
    """A batch of 40 x 48, what was told of indices, and failures."""
    found: Found = []
    out = np.zeros((len(files), 3, 40, 48), np.float32)
    rows = np.arange(len(files))
    failures, _, _ = _native.fill(
        files,
        geometry,
        out,
        rows,
        layout="CHW",
        filter="bilinear",
        scale=[1.0] * 3,
        offset=[0.0] * 3,
        found=found,
        **given,
    )
    return out, found, failures


def crops(rng: random.Random, files: list[bytes]) -> NDArray[np.int32]:
    """A random region of each image, resized to 48 x 40."""
    chosen = [list(regions(rng, file, 1))[1] for file in files]
    return np.array([[*region, 48, 40, 0, 0, i % 4] for i, region in enumerate(chosen)], np.int32)


@pytest.mark.parametrize("kind", KINDS)
def test_photographs_decode_the_same_by_an_index(photographs_dir: Path, kind: str) -> None:
    """Whole, and three regions of every photograph."""
    rng = random.Random(kind)
    files = sorted(photographs_dir.glob("*/*.jpg"))

    for path in files:
        file = path.read_bytes()
        if not _native.inspect(file)["native"] or _native.inspect(file)["progressive"]:
            continue
        index = _native.build_index(file, kind)
        for region in regions(rng, file, 3):
            pixels, found = decode(file, region, index)
            np.testing.assert_array_equal(pixels, _native.decode(file, region), err_msg=f"{path.name} {region}")
            assert found == []


@given(
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from([0, 1, 2, "gray"]),
    st.integers(1, 100),
    st.integers(0, 30),
    st.sampled_from(KINDS),
    st.randoms(use_true_random=False),
)
def test_what_pillow_writes_decodes_the_same_by_an_index(
    jpeg: Jpeg, width: int, height: int, sampling: int | str, quality: int, restart: int, kind: str, rng: random.Random
) -> None:
    """Any size, quality, sampling and restart interval; built and learned indices are the same."""
    save: dict[str, Any] = {"gray": True} if sampling == "gray" else {"subsampling": sampling}
    try:
        file = jpeg(width, height, quality=quality, restart_marker_blocks=restart, **save)
    except OSError:  # Pillow's buffer is too small for very small files of high quality
        return
    index = _native.build_index(file, kind)
    learned: bytes | None = None

    for region in [*regions(rng, file, 4)][1:]:
        expected = _native.decode(file, region)
        pixels, found = decode(file, region, index)
        np.testing.assert_array_equal(pixels, expected)
        assert found == []
        pixels, found = decode(file, region, learned, learn=kind)
        np.testing.assert_array_equal(pixels, expected)
        assert not any(damaged for _, damaged, _ in found)
        learned = found[0][2] if found else learned
    _, found = decode(file, (0, 0, width, height), learned, learn=kind)
    total = _native.inspect_index(file, index)
    assert total is not None
    if total[2] > 1:
        assert (found[0][2] if found else learned) == index


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("level")
def test_wrong_indices_change_no_pixel_and_are_told(jpeg: Jpeg, kind: str) -> None:
    """Flipped bits, cuts, another image's index and rubbish: pixels as without, and the caller knows."""
    file, other = jpeg(200, 160), jpeg(200, 160, seed=1)
    index, rng = _native.build_index(file, kind), random.Random(kind)
    flips = [bytearray(index) for _ in range(200)]
    for flipped in flips:
        flipped[rng.randrange(len(index))] ^= 1 << rng.randrange(8)
    bad = [
        *map(bytes, flips),
        *(index[:n] for n in range(0, len(index), 7)),
        index + b"\0",
        _native.build_index(other, kind),
    ]
    region = (37, 50, 150, 140)
    expected = _native.decode(file, region)

    for wrong in [*bad, b"", b"\1" * 100, rng.randbytes(300)]:
        pixels, found = decode(file, region, wrong)

        np.testing.assert_array_equal(pixels, expected)
        assert found == [(0, True, None)]


def test_a_wrong_index_is_replaced_by_what_is_learned(jpeg: Jpeg) -> None:
    """Who learns gets a right index back for a wrong one."""
    file = jpeg(200, 160)

    _, found = decode(file, (0, 0, 200, 160), b"rubbish", learn="rows")

    assert found == [(0, True, _native.build_index(file))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_filled_batch_is_the_same_by_indices(photographs_dir: Path, kind: str) -> None:
    """The fused fill, with an index for some images, wrong for others and none for the rest, over two epochs."""
    rng = random.Random(kind)
    files = [path.read_bytes() for path in sorted(photographs_dir.glob("*/*.jpg"))[:60]]
    files = [file for file in files if _native.inspect(file)["native"] and not _native.inspect(file)["progressive"]]
    indices: list[bytes | None] = [[_native.build_index(f, kind), None, b"wrong"][i % 3] for i, f in enumerate(files)]

    for _ in range(3):
        geometry = crops(rng, files)
        expected, _, _ = fill(files, geometry)
        batch, found, failures = fill(files, geometry, indices=indices, learn=kind)

        np.testing.assert_array_equal(batch, expected)
        assert failures == []
        assert all(damaged == (indices[i] == b"wrong") for i, damaged, _ in found)
        for i, _, learned in found:
            indices[i] = learned
    assert all(indices)


def test_damage_of_the_image_is_not_blamed_on_its_index(jpeg: Jpeg) -> None:
    """A damaged scan fails with an index as without."""
    file = jpeg(200, 160)
    index = _native.build_index(file)
    cut = bytearray(file)
    cut[-2000:-1000] = b"\xff\x01" * 500

    with pytest.raises(_native.CorruptError):
        _native.decode(bytes(cut), index=index, found=[])


def test_an_index_tells_how_much_it_knows(jpeg: Jpeg) -> None:
    """Kind, entries known and in all; None for what is not this image's."""
    file, other = jpeg(200, 160, subsampling=2), jpeg(200, 176, subsampling=2)
    _, found = decode(file, (0, 0, 200, 50), None, learn="rows")
    partial = found[0][2]
    assert partial is not None

    assert _native.inspect_index(file, _native.build_index(file, "tiles")) == ("tiles", 40, 40)
    assert _native.inspect_index(file, partial) == ("rows", 5, 10)
    assert _native.inspect_index(other, partial) is None


def test_indices_need_a_list_to_tell_of_them(jpeg: Jpeg) -> None:
    """Nobody gives an index and does not hear that it is wrong."""
    file = jpeg(20, 20)

    with pytest.raises(ValueError, match="found"):
        _native.decode(file, index=b"")
    with pytest.raises(ValueError, match="found"):
        _native.decode(file, learn="rows")
    with pytest.raises(ValueError, match="columns"):
        _native.decode(file, learn="columns", found=[])
    with pytest.raises(ValueError, match="indices of 1 images must have 1 elements"):
        fill([file], np.array([[0, 0, 20, 20, 48, 40, 0, 0, 0]], np.int32), indices=[None, None])
    with pytest.raises(TypeError, match="index 0"):
        fill([file], np.array([[0, 0, 20, 20, 48, 40, 0, 0, 0]], np.int32), indices=["a"])


def test_an_image_that_is_damaged_has_no_index(jpeg: Jpeg) -> None:
    """Building reads to the end of the scan."""
    file = jpeg(100, 100)

    with pytest.raises(_native.CorruptError):
        _native.build_index(file[:-40])
    with pytest.raises(_native.CorruptError):
        _native.build_index(b"no jpeg")


def test_progressive_files_have_no_index(jpeg: Jpeg) -> None:
    """There is no place to begin inside several scans: none is built or learned, and one that is given is wrong."""
    file = jpeg(100, 100, progressive=True)
    expected = _native.decode(file)

    with pytest.raises(_native.UnsupportedError, match="progressive"):
        _native.build_index(file)
    for index, told in [(None, []), (_native.build_index(jpeg(100, 100)), [(0, True, None)])]:
        pixels, found = decode(file, (0, 0, 100, 100), index, "rows")
        np.testing.assert_array_equal(pixels, expected)
        assert found == told


@pytest.mark.parametrize("sampling", [0, 2])
@pytest.mark.parametrize("restart", [0, 12, 100])
def test_threads_change_no_pixel(jpeg: Jpeg, sampling: int, restart: int) -> None:
    """One large picture on several threads, with an index, without, with a wrong one, and with restart markers."""
    file = jpeg(1600, 1200, subsampling=sampling, restart_marker_blocks=restart)
    index, region = _native.build_index(file), (13, 9, 1590, 1111)
    expected = _native.decode(file, region)
    geometry = np.array([[*region, 48, 40, 0, 0, 3]], np.int32)
    row, _, _ = fill([file], geometry)

    for threads in (3, 16):
        for entry in (None, index, b"wrong"):
            found: Found = []
            pixels = _native.decode(file, region, index=entry, found=found, threads=threads)
            np.testing.assert_array_equal(pixels, expected)
            assert found == ([(0, True, None)] if entry == b"wrong" else [])
            filled, found, _ = fill([file], geometry, indices=[entry], threads=threads)
            np.testing.assert_array_equal(filled, row)
            assert found == ([(0, True, None)] if entry == b"wrong" else [])


def test_threads_learn_too(jpeg: Jpeg) -> None:
    """What two threads come by is what one would have."""
    for restart in (0, 100):
        file = jpeg(1600, 1200, subsampling=2, restart_marker_blocks=restart)
        found: Found = []

        _native.decode(file, learn="rows", found=found, threads=2)

        assert _native.inspect_index(file, found[0][2] or b"") == ("rows", 75, 75)


def test_threads_find_the_same_damage(jpeg: Jpeg) -> None:
    """The error is the one of a single thread; numbers that are none are refused."""
    file = bytearray(jpeg(1600, 1200))
    file[-9000:-8000] = b"\xff\x01" * 500

    with pytest.raises(_native.CorruptError) as plain:
        _native.decode(bytes(file))

    for threads in (2, 4):
        with pytest.raises(_native.CorruptError, match=re.escape(str(plain.value))):
            _native.decode(bytes(file), threads=threads)
    for threads in (0, 257):
        with pytest.raises(ValueError, match="threads"):
            _native.decode(bytes(file), threads=threads)
