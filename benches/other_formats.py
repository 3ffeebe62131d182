"""Claim: a mode adds at most half to the decoding of a JPEG; and what each format that Pillow reads takes.

One thread, from bytes in memory to arrays, photographs saved in each format (those that need an extra only if it is
installed), in turns. The pixels of each format are compared with Pillow's first, and those of a mode with Pillow's
conversion. PNG and WebP are measured by ``benches/formats.py``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions
from PIL import Image

import penstock as ps

EVERY = 20
MODES = ("RGB", "BGR", "L", "RGBA", "unchanged")


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    """Encode as Pillow does."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def encoders() -> dict[str, Callable[[Image.Image], bytes]]:
    """How a photograph is saved in each format."""
    found: dict[str, Callable[[Image.Image], bytes]] = {
        "GIF": lambda image: saved(image.quantize(256), "GIF"),
        "BMP": lambda image: saved(image, "BMP"),
        "TIFF, stored": lambda image: saved(image, "TIFF"),
        "TIFF, deflate": lambda image: saved(image, "TIFF", compression="tiff_deflate"),
        "PPM": lambda image: saved(image, "PPM"),
        "AVIF": lambda image: saved(image, "AVIF", quality=80, speed=8),
    }
    if find_spec("pillow_heif"):
        import pillow_heif

        pillow_heif.register_heif_opener()
        found["HEIC"] = lambda image: saved(image, "HEIF", quality=80)
    if find_spec("pillow_jxl"):
        import pillow_jxl  # noqa: F401  # registers itself

        found["JPEG XL"] = lambda image: saved(image, "JXL", quality=90, effort=3)
    return found


def over(images: Sequence[bytes], mode: str = "RGB") -> Callable[[], float]:
    """Decode all images in a mode; returns megapixels."""
    pixels = sum(ps.decode(image).shape[0] * ps.decode(image).shape[1] for image in images) / 1e6

    def run() -> float:
        for image in images:
            ps.decode(image, mode=mode)
        return pixels

    return run


def check(images: Sequence[bytes], modes: Sequence[str]) -> None:
    """Stop if a pixel is not Pillow's."""
    for image in images:
        for mode in modes:
            stored = Image.open(io.BytesIO(image)).convert("RGB")
            want = np.asarray(stored if mode in {"BGR", "unchanged"} else stored.convert(mode))
            if not np.array_equal(ps.decode(image, mode=mode), want[:, :, ::-1] if mode == "BGR" else want):
                raise SystemExit(f"mode {mode}: the pixels are not Pillow's")


def main() -> None:
    """Check, measure and print."""
    options = arguments(__doc__, rounds=5)
    photographs = [path.read_bytes() for path in jpegs(images_folder(options.images))[::EVERY]]
    photographs = [image for image in photographs if ps.decode(image, mode="unchanged").ndim == 3]
    check(photographs, MODES)
    candidates = {f"JPEG, {mode}": over(photographs, mode) for mode in MODES}
    for name, encode in encoders().items():
        files = [encode(Image.open(io.BytesIO(image)).convert("RGB")) for image in photographs]
        check(files, ["RGB"])
        candidates[name] = over(files)
    timings = in_turns(candidates, rounds=options.rounds, unit="megapixels/s")
    print("### Modes and other formats, one thread\n")
    print(f"{len(photographs)} photographs; {machine()}; ", end="")
    print(
        versions("penstock-data", "Pillow", "pillow-heif", "pillow-jxl-plugin", "numpy") + ". Same pixels as Pillow.\n"
    )
    print(table(timings, against="JPEG, RGB"))


if __name__ == "__main__":
    main()
