"""Modes of decoding: the channels and the depth of every format, and what pipelines make of them."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError, DecodeError, ImageTooLargeError, UnsupportedImageError
from penstock.sample import SampleKeys
from tests.transforms.test_decode import JPEGS, OTHERS, encoded, picture

FILES = JPEGS | OTHERS
KEYS = SampleKeys(3, 1, np.arange(4, dtype=np.int64))


def png(samples: NDArray[Any], colour: int, depth: int = 16, key: bytes = b"", *, interlaced: bool = False) -> bytes:
    """A PNG with these samples, (H, W, channels), with a filter of its own for each row; by hand, or as Adam7."""
    height, width = samples.shape[:2]
    passes = [samples]
    if interlaced:
        starts = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
        passes = [samples[y::down, x::across] for y, x, down, across in starts]
    rows = b""
    nbytes = samples.shape[2] * depth // 8
    for part in (each for each in passes if each.size):
        before = np.zeros(part.shape[1] * nbytes, np.uint8)
        for number, row in enumerate(part.astype(f">u{depth // 8}").reshape(len(part), -1)):
            current = np.frombuffer(row.tobytes(), np.uint8)
            left = np.concatenate([np.zeros(nbytes, np.uint8), current[:-nbytes]])
            predicted: NDArray[np.uint8] = (np.zeros_like(current), left, before)[number % 3]
            rows += bytes([number % 3]) + (current - predicted).tobytes()
            before = current
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    chunks = [(b"IHDR", header), *([(b"tRNS", key)] if key else []), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def deep(channels: int, height: int = 11, width: int = 13) -> NDArray[np.uint16]:
    """Noise of 16 bits."""
    return np.random.default_rng(channels).integers(0, 65536, (height, width, channels)).astype(np.uint16)


def opened(file: bytes) -> Image.Image:
    """The picture that Pillow reads."""
    return Image.open(io.BytesIO(file))


@pytest.mark.parametrize("name", FILES)
def test_modes_of_8_bits_are_pillows(name: str) -> None:
    """BGR, L and RGBA are the conversions of Pillow, for every format."""
    file = FILES[name]

    np.testing.assert_array_equal(ps.decode(file, mode="BGR"), ps.decode(file)[:, :, ::-1])
    np.testing.assert_array_equal(ps.decode(file, mode="RGBA"), np.asarray(opened(file).convert("RGBA")))
    gray = ps.decode(file, mode="L")
    np.testing.assert_array_equal(gray, np.asarray(opened(file).convert("L")))
    if name != "ppm_of_16_bits":
        np.testing.assert_array_equal(ps.decode(file, mode="I;16"), gray.astype(np.uint16) * 257)


@pytest.mark.parametrize("mode", ["BGR", "L", "RGBA", "unchanged"])
@pytest.mark.parametrize("name", ["420", "gray", "progressive", "cmyk", "png_la", "png_palette", "webp_lossless"])
def test_parts_and_scales_are_those_of_the_mode(name: str, mode: str) -> None:
    """A region has the pixels that the whole image has there, and a reduced image the size of any mode."""
    whole = ps.decode(FILES[name], mode=mode)

    part = ps.decode(FILES[name], region=(3, 2, 19, 17), mode=mode)
    small = ps.decode(FILES[name], scale=2, mode=mode)

    np.testing.assert_array_equal(part, whole[2:17, 3:19])
    assert small.shape == (-(-whole.shape[0] // 2), -(-whole.shape[1] // 2), *whole.shape[2:])
    assert part.flags.c_contiguous
    assert part.flags.writeable


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gray", (45, 61)),
        ("420", (45, 61, 3)),
        ("cmyk", (45, 61, 3)),
        ("png_palette", (22, 31, 3)),
        ("png_one_bit", (22, 31)),
        ("png_gray", (22, 31)),
        ("png_la", (22, 31, 2)),
        ("png_rgba", (22, 31, 4)),
        ("gif", (22, 31, 3)),
        ("tiff_cmyk", (22, 31, 3)),
        ("pbm", (22, 31)),
    ],
)
def test_unchanged_has_the_channels_of_the_file(name: str, shape: tuple[int, ...]) -> None:
    """Gray has no axis of channels, alpha is one more channel, and palettes are looked up."""
    pixels = ps.decode(FILES[name], mode="unchanged")

    assert pixels.shape == shape
    assert pixels.dtype == np.uint8
    bands = {2: "L", 3: "RGB", 4: "RGBA"}
    kind = "LA" if shape[2:] == (2,) else bands[len(shape) if len(shape) == 2 else shape[2]]
    np.testing.assert_array_equal(pixels, np.asarray(opened(FILES[name]).convert(kind)))


def test_gray_of_16_bits_keeps_them() -> None:
    """16 bits stay in "I;16" and "unchanged"; in modes of 8 bits the upper ones stay."""
    values = deep(1)
    file = png(values, 0)

    for mode in ("I;16", "unchanged"):
        found = ps.decode(file, mode=mode)
        assert found.dtype == np.uint16
        np.testing.assert_array_equal(found, values[:, :, 0])
    np.testing.assert_array_equal(ps.decode(file, mode="L"), values[:, :, 0] >> 8)
    np.testing.assert_array_equal(ps.decode(file, mode="RGBA")[:, :, 1], values[:, :, 0] >> 8)
    tiff = encoded(Image.fromarray(values[:, :, 0]), "TIFF")
    np.testing.assert_array_equal(ps.decode(tiff, mode="unchanged"), values[:, :, 0])
    np.testing.assert_array_equal(ps.decode(b"P5 3 1 65535\n" + b"\1\2\3\4\5\6", mode="unchanged"), [[258, 772, 1286]])


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("channels", "colour"), [(2, 4), (3, 2), (4, 6)])
def test_colour_png_of_16_bits_keeps_them(channels: int, colour: int, *, interlaced: bool) -> None:
    """48-bit colour, and 16-bit alpha, are unchanged; Pillow alone keeps the upper bytes."""
    values = deep(channels)
    file = png(values, colour, interlaced=interlaced)

    found = ps.decode(file, mode="unchanged")

    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(ps.decode(file)[:, :, 0], values[:, :, 0] >> 8)
    gray = ps.decode(file, mode="I;16")
    exact = values[:, :, :3] @ np.array([19595, 38470, 7471]) / 65536 if channels > 2 else values[:, :, 0]
    assert np.abs(gray - exact).max() <= 0.5


def test_one_transparent_colour_is_alpha() -> None:
    """A colour that the file calls transparent becomes alpha in "RGBA" and "unchanged", also with 16 bits."""
    values = deep(3, 4, 5)
    values[1, 2] = (1, 2, 3)
    file = png(values, 2, key=struct.pack(">HHH", 1, 2, 3))
    gray = encoded(picture(31, 22, "L"), "PNG", transparency=int(np.asarray(picture(31, 22, "L"))[3, 4]))
    palette = encoded(picture(31, 22).quantize(5), "PNG", transparency=2)

    found = ps.decode(file, mode="unchanged")

    np.testing.assert_array_equal(found[:, :, :3], values)
    assert found[1, 2, 3] == 0
    assert (found[:, :, 3] == 65535).sum() == 19
    assert ps.decode(gray, mode="unchanged").shape == (22, 31, 2)
    assert ps.decode(gray, mode="unchanged")[3, 4, 1] == ps.decode(gray, mode="RGBA")[3, 4, 3] == 0
    np.testing.assert_array_equal(ps.decode(palette, mode="unchanged"), np.asarray(opened(palette).convert("RGBA")))
    deep_key = png(values[:, :, :1], 0, key=struct.pack(">H", int(values[0, 0, 0])))
    assert ps.decode(deep_key, mode="unchanged")[0, 0].tolist() == [values[0, 0, 0], 0]
    assert ps.decode(deep_key, mode="RGBA")[0, 0, 3] == 0


def test_values_of_32_bits_are_unchanged() -> None:
    """Floats and integers of a TIFF are returned as they are, and have no form of 16 bits."""
    real = np.random.default_rng(0).normal(0, 1e9, (5, 6)).astype(np.float32)
    whole = np.arange(30, dtype=np.int32).reshape(5, 6) * 99_999 - 1_000_000

    for values in (real, whole):
        file = encoded(Image.fromarray(values), "TIFF")
        found = ps.decode(file, mode="unchanged")
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)
        with pytest.raises(UnsupportedImageError, match="no form in mode 'I;16'"):
            ps.decode(file, mode="I;16")


def test_a_mode_that_keeps_depth_never_loses_it() -> None:
    """What Pillow would reduce is refused where 16 bits are asked for, and read with 8 bits elsewhere."""
    file = FILES["ppm_of_16_bits"]

    assert ps.decode(file).dtype == np.uint8
    for mode in ("I;16", "unchanged"):
        with pytest.raises(UnsupportedImageError, match="without loss"):
            ps.decode(file, mode=mode)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "rgb"}, "mode must be one of RGB, BGR, L, RGBA, I;16, unchanged, got 'rgb'"),
        ({"frame": -1}, "frame must be an integer of at least 0, got -1"),
        ({"frame": 1.5}, "frame must be an integer of at least 0, got 1.5"),
        ({"mode": "unchanged", "to_srgb": True}, "to_srgb=True needs mode RGB, BGR, RGBA or L, got 'unchanged'"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, Any], message: str) -> None:
    """An argument error names what is allowed, for the function and for the op."""
    with pytest.raises(ArgumentError, match=message):
        ps.decode(JPEGS["420"], **options)
    with pytest.raises(ArgumentError, match=message):
        T.Decode(**options)


def test_a_damaged_jpeg_is_repaired_in_any_mode() -> None:
    """What is left of a truncated JPEG is converted as the whole would be."""
    cut = JPEGS["420"][: len(JPEGS["420"]) * 2 // 3]

    gray = ps.decode(cut, mode="L", on_truncated="repair")

    whole = ps.decode(cut, on_truncated="repair")
    np.testing.assert_array_equal(gray, np.asarray(Image.fromarray(whole).convert("L")))


MOVING = [
    T.Resize((12, 14), "bicubic"),
    T.CenterCrop(40),
    T.RandomCrop(9),
    T.RandomResizedCrop(10),
    T.HorizontalFlip(1),
    T.VerticalFlip(1),
    T.Pad(2, 3),
    T.Normalize(0.5, 0.25),
    T.ToLayout(),
    T.RandomErasing(1, value="random"),
]


@pytest.mark.parametrize("op", MOVING, ids=repr)
@pytest.mark.parametrize(("mode", "channels"), [("BGR", 3), ("L", 1), ("RGBA", 4), ("I;16", 1)])
def test_rows_of_a_batch_are_the_samples(op: T.Op, mode: str, channels: int) -> None:
    """A compiled pipeline gives the images that it gives one by one, with the channels of the mode."""
    ops = [T.Decode(mode=mode), T.RandomCrop(20), op, T.ToLayout()]
    pipeline = T.Pipeline(ops[:3] if isinstance(op, T.ToLayout) else ops)
    images = [FILES["420"], FILES["png_rgba"], png(deep(1, 30, 30), 0), FILES["progressive"]]
    program = pipeline.compile("image")
    spec = program.spec()
    assert spec is not None
    assert spec.shape[0] == channels

    rows = np.empty((4, *spec.shape), spec.dtype)
    program.fill(images, rows, KEYS)

    for place, image in enumerate(images):
        np.testing.assert_array_equal(rows[place], pipeline(image, keys=KEYS[place : place + 1]))


def test_resizing_keeps_16_bits_and_four_channels() -> None:
    """16 bits are resized as floats and rounded; each of four channels as if it were alone."""
    values = deep(1, 40, 30)
    alpha = ps.decode(FILES["png_rgba"], mode="RGBA")

    found = T.Pipeline([T.Decode(mode="I;16"), T.Resize((13, 17))])(png(values, 0))
    four = T.Pipeline([T.Decode(mode="RGBA"), T.Resize((13, 17))])(FILES["png_rgba"])

    real = Image.fromarray(values[:, :, 0].astype(np.float32)).resize((17, 13), Image.Resampling.BILINEAR)
    assert (found.shape, found.dtype) == ((13, 17, 1), np.uint16)
    assert np.abs(found[:, :, 0] - np.asarray(real)).max() <= 0.5
    for channel in range(4):
        plane = np.ascontiguousarray(alpha[:, :, channel : channel + 1])
        np.testing.assert_array_equal(four[:, :, channel], T.Pipeline([T.Resize((13, 17))])(plane)[:, :, 0])


@pytest.mark.parametrize("mode", ["L", "RGBA", "I;16"])
@pytest.mark.parametrize("op", [T.ColorJitter(0.2), T.RandomRotation(9), T.Sharpness(2), T.Equalize()], ids=repr)
def test_ops_that_need_three_channels_say_so(op: T.Op, mode: str) -> None:
    """A pipeline that cannot work is refused when it is made."""
    with pytest.raises(ArgumentError, match=r"needs (uint8 images|images of three channels)"):
        T.Pipeline([T.Decode(mode=mode), op])


def test_letterbox_takes_gray_images() -> None:
    """A gray image is framed by one value."""
    found = T.Pipeline([T.Decode(mode="L"), T.Letterbox((70, 61))])(FILES["420"])

    assert found.shape == (70, 61, 1)
    np.testing.assert_array_equal(found[12:57, :, 0], ps.decode(FILES["420"], mode="L"))
    assert (found[:12] == 114).all()


def test_loaders_give_gray_batches(tmp_path: Any) -> None:
    """A dataset of one-channel images has batches (N, 1, H, W), and of unknown shapes it is collated."""
    for number in range(6):
        (tmp_path / f"{number}.png").write_bytes(encoded(picture(30 + number, 24, "L", number), "PNG"))

    def batch(*ops: T.Op) -> Any:
        dataset = ps.StoreDataset(tmp_path, fields="image", transform=T.Pipeline(ops))
        return next(iter(ps.DataLoader(dataset, batch_size=6)))

    gray = batch(T.Decode(mode="L"), T.CenterCrop(20), T.ToLayout("CHW", "float32"))
    stored = batch(T.Decode(mode="unchanged"), T.CenterCrop(20), T.ToLayout("CHW", "float32"))

    assert gray.shape == (6, 1, 20, 20)
    np.testing.assert_array_equal(gray, stored)


def test_pixels_that_are_stored_have_no_other_mode(tmp_path: Any) -> None:
    """Images that a store keeps as pixels are not converted in silence."""
    ps.pack({"image": np.zeros((3, 8, 9, 3), np.uint8)}, tmp_path / "p.lmdb")

    with pytest.raises(ArgumentError, match="stored as their pixels; leave out mode"):
        ps.StoreDataset(tmp_path / "p.lmdb", fields="image", transform=[T.Decode(mode="BGR"), T.CenterCrop(4)])
    with pytest.raises(ArgumentError, match="Mosaic mixes RGB images"):
        ps.Mosaic(ps.StoreDataset(tmp_path / "p.lmdb", fields={"image": "image"}), 64, decode=T.Decode(mode="L"))


def animated(form: str, count: int = 5) -> bytes:
    """Frames of different pictures."""
    frames = [picture(31, 22, seed=number) for number in range(count)]
    return encoded(frames[0], form, save_all=True, append_images=frames[1:])


@pytest.mark.parametrize("form", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
def test_frames_are_pillows(form: str) -> None:
    """A frame of an animated image, or a page, is that of Pillow; the first one is the default."""
    file = animated(form)
    reference = opened(file)

    for frame in (0, 1, 4):
        reference.seek(frame)
        expected = np.asarray(reference.convert("RGB"))
        np.testing.assert_array_equal(ps.decode(file, frame=frame), expected)
        np.testing.assert_array_equal(ps.decode(file, (2, 3, 20, 21), frame=frame), expected[3:21, 2:20])
        np.testing.assert_array_equal(
            T.Pipeline([T.Decode(frame=frame)]).compile("image").run([file], KEYS[:1])[0], expected
        )
    np.testing.assert_array_equal(ps.decode(file), ps.decode(file, frame=0))
    with pytest.raises(
        ArgumentError, match=rf"frame must be in \[0, 4\], since this {reference.format} image has 5 frames"
    ):
        ps.decode(file, frame=5)


def chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def test_later_frames_of_16_bits_are_refused_where_bits_are_kept() -> None:
    """The first frame of an animation of 48-bit colours keeps its bits; of the others, only 8 are there."""
    values = deep(3)
    file = png(values, 2)
    at, end = file.index(b"IDAT") - 4, file.index(b"IEND") - 4
    data = file[at + 8 : end - 4]
    frames = [chunk(b"fcTL", struct.pack(">IIIIIHHBB", n, 13, 11, 0, 0, 1, 10, 0, 0)) for n in (0, 1)]
    later = chunk(b"fdAT", struct.pack(">I", 2) + data)
    animation = file[:at] + chunk(b"acTL", struct.pack(">II", 2, 0)) + frames[0] + file[at:end]
    animation += frames[1] + later + file[end:]

    np.testing.assert_array_equal(ps.decode(animation, mode="unchanged"), values)
    np.testing.assert_array_equal(ps.decode(animation, frame=1), values >> 8)
    for mode in ("unchanged", "I;16"):
        with pytest.raises(UnsupportedImageError, match="without loss"):
            ps.decode(animation, mode=mode, frame=1)


def test_an_image_of_one_frame_says_so() -> None:
    """A frame that a JPEG does not have is refused with the number of its frames."""
    with pytest.raises(ArgumentError, match=r"frame must be in \[0, 0\], since this JPEG image has 1 frame, got 1"):
        ps.decode(JPEGS["420"], frame=1)


def test_frames_have_limits() -> None:
    """A frame that needs many large ones before it is refused, and so is a page that is larger than the first."""
    pages = encoded(Image.new("L", (4, 4)), "TIFF", save_all=True, append_images=[Image.new("L", (400, 300))])
    small = [Image.new("1", (8, 8), n % 2) for n in range(130)]
    gif = bytearray(encoded(small[0], "GIF", save_all=True, append_images=small[1:]))
    gif[6:10] = struct.pack("<HH", 4000, 3000)  # of the canvas, which no frame fills

    with pytest.raises(ImageTooLargeError, match="needs all frames before it, above the cap of 100"):
        ps.decode(bytes(gif), frame=120)
    with pytest.raises(ImageTooLargeError, match="400 x 300"):
        ps.decode(pages, frame=1, max_pixels=1000)


def test_frames_that_are_declared_and_missing_are_an_error() -> None:
    """A file that declares more frames than it has is refused by name."""
    file = animated("PNG", 3)
    at = file.index(b"acTL")
    body = struct.pack(">II", 9, 0)
    lying = file[: at + 4] + body + struct.pack(">I", zlib.crc32(b"acTL" + body)) + file[at + 16 :]

    with pytest.raises(DecodeError, match="PNG image"):
        ps.decode(lying, frame=7)


def profile() -> bytes:
    """A profile whose colours are not those of sRGB."""
    from PIL import ImageCms

    return ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_profiles_are_applied_on_request(form: str) -> None:
    """to_srgb=True converts by the profile of the file; the default ignores it, as Pillow does."""
    from PIL import ImageCms

    swapped = swapped_profile()
    file = encoded(picture(31, 22), form, icc_profile=swapped)
    source = opened(file).convert("RGB")
    expected = ImageCms.profileToProfile(
        source, ImageCms.ImageCmsProfile(io.BytesIO(swapped)), ImageCms.createProfile("sRGB"), outputMode="RGB"
    )

    found = ps.decode(file, to_srgb=True)

    np.testing.assert_array_equal(found, np.asarray(expected))
    np.testing.assert_array_equal(ps.decode(file), np.asarray(source))
    assert np.abs(found.astype(int) - np.asarray(source)).max() > 20
    np.testing.assert_array_equal(ps.decode(file, to_srgb=True, mode="BGR"), found[:, :, ::-1])
    np.testing.assert_array_equal(T.Pipeline([T.Decode(to_srgb=True)]).compile("image").run([file], KEYS[:1])[0], found)


def swapped_profile() -> bytes:
    """sRGB with red and blue exchanged: a valid profile of other colours."""
    from PIL import ImageCms

    content = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return content.replace(b"rXYZ", b"tmpX", 1).replace(b"bXYZ", b"rXYZ", 1).replace(b"tmpX", b"bXYZ", 1)


def test_alpha_and_images_without_a_profile_stay() -> None:
    """Alpha is not a colour, and nothing happens without a profile."""
    file = encoded(picture(31, 22, "RGBA"), "PNG", icc_profile=swapped_profile())

    found = ps.decode(file, mode="RGBA", to_srgb=True)

    np.testing.assert_array_equal(found[:, :, 3], ps.decode(file, mode="RGBA")[:, :, 3])
    np.testing.assert_array_equal(found[:, :, :3], ps.decode(file, to_srgb=True))
    for name in ("420", "png", "png_palette"):
        np.testing.assert_array_equal(ps.decode(FILES[name], to_srgb=True), ps.decode(FILES[name]))


@pytest.mark.parametrize("content", [b"no profile", bytes(200), None])
def test_a_bad_profile_is_refused_by_name(content: bytes | None) -> None:
    """A profile that is damaged, or of other colours, is an error where it is asked for, and ignored elsewhere."""
    file = encoded(picture(31, 22), "JPEG", icc_profile=profile() if content is None else content)

    with pytest.raises(DecodeError, match="ICC profile of"):
        ps.decode(file, to_srgb=True)
    assert ps.decode(file).shape == (22, 31, 3)


def test_one_transparent_colour_of_16_bits() -> None:
    """It is compared with all 16 bits: another colour of the same upper ones stays opaque, in each mode with alpha."""
    samples = deep(3)
    samples[0, 1] = samples[0, 0] ^ 1
    file = png(samples, 2, key=samples[0, 0].astype(">u2").tobytes())

    for mode in ("RGBA", "unchanged"):
        alpha = ps.decode(file, mode=mode)[:, :, 3]
        assert alpha[0, 0] == 0
        assert (alpha.ravel()[1:] == np.iinfo(alpha.dtype).max).all()
    np.testing.assert_array_equal(ps.decode(file, mode="RGBA")[:, :, :3], ps.decode(file))
