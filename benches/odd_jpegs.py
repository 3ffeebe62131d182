"""Claim: CMYK and YCCK JPEGs are so rare that decoding them natively would not shorten an epoch by 1 %.

Photographs are saved in each kind (and as YCbCr with one scan per component) at one quality, and become float32 CHW
rows of 224 x 224 after RandomResizedCrop: one thread, bytes in memory, in turns in one run. "Pillow" decodes the
kinds that the native decoder does not read. Where both decode a kind, their rows are compared first. The possible
gain follows from the times and from the fraction of such files: 22 of the 1,281,167 images in ImageNet-1k's training
set are CMYK or YCCK (github.com/cytsai/ilsvrc-cmyk-image-list lists them). The files of the given folder are counted.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import simplejpeg
from harness import Timing, arguments, images_folder, in_turns, jpegs, machine, table, versions
from PIL import Image

from penstock import _native
from penstock import transforms as T
from penstock.sample import SampleKeys
from penstock.transforms.decoding import fallback
from penstock.transforms.decoding.decode import MAX_PIXELS

QUALITY = 88
EVERY = 8
IMAGENET = 1_281_167
IMAGENET_CMYK = 22
COUNTED_AS_NATIVE = 4 / 3
"""Native time for four components, relative to three of the same sampling: an optimistic estimate."""

NORMALIZE = T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)
OPS = [T.RandomResizedCrop(224), T.HorizontalFlip(), NORMALIZE, T.ToLayout("CHW")]


def saved(image: Image.Image, **options: object) -> bytes:
    """Encode as Pillow does."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY, **options)
    return file.getvalue()


def inks(image: Image.Image) -> np.ndarray:
    """Convert to HWC CMYK; the common part of the three inks becomes black."""
    cmy = 255 - np.asarray(image)
    black = cmy.min(axis=2, keepdims=True)
    return np.concatenate([cmy - black, black], axis=2)


def ycck(image: Image.Image, subsampling: str) -> bytes:
    """Encode inverted, as Adobe's programs do."""
    return simplejpeg.encode_jpeg(255 - inks(image), QUALITY, "CMYK", subsampling)


def scan_by_scan(image: Image.Image) -> bytes:
    """YCbCr 4:2:0 with one scan per component; each is the scan of a gray JPEG."""
    width, height = image.size
    luma, *chroma = image.convert("YCbCr").split()
    half = ((width + 1) // 2, (height + 1) // 2)
    planes = [luma, *(plane.resize(half, Image.Resampling.BOX) for plane in chroma)]
    tables, scans = b"", b""
    for i, plane in enumerate(planes):
        gray = saved(plane)
        at = 2
        while gray[at + 1] != 0xDA:
            end = at + 2 + int.from_bytes(gray[at + 2 : at + 4], "big")
            if gray[at + 1] == 0xDB:
                tables += gray[at : at + 4] + bytes([i]) + gray[at + 5 : end]
            elif gray[at + 1] == 0xC4:
                scans += gray[at:end]
            at = end
        scans += gray[at : at + 5] + bytes([i + 1]) + gray[at + 6 : -2]
    frame = height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 2])
    return b"\xff\xd8" + tables + b"\xff\xc0\0\x11\x08" + frame + scans + b"\xff\xd9"


KINDS: dict[str, Callable[[Image.Image], bytes]] = {
    "YCbCr 4:2:0": lambda image: saved(image, subsampling="4:2:0"),
    "YCbCr 4:4:4": lambda image: saved(image, subsampling="4:4:4"),
    "gray": lambda image: saved(image.convert("L")),
    "CMYK 4:4:4": lambda image: saved(Image.fromarray(inks(image), "CMYK"), subsampling="4:4:4"),
    "YCCK 4:4:4": lambda image: ycck(image, "444"),
    "YCCK 4:2:0": lambda image: ycck(image, "420"),
    "YCbCr 4:2:0, three scans": scan_by_scan,
}


class Rows:
    """Fills the same rows with either decoder."""

    def __init__(self, images: Sequence[bytes]) -> None:
        self.images = images
        self.keys = SampleKeys(0, 0, np.arange(len(images)))
        self.out = np.empty((len(images), 3, 224, 224), np.float32)
        self.program = T.Pipeline([T.Decode(), *OPS]).compile("image")

    def pipeline(self) -> float:
        """Fill as the loader does."""
        self.program.fill(self.images, self.out, self.keys)
        return len(self.images)

    def pillow(self) -> float:
        """Fill with images decoded by Pillow."""
        plan = self.program.plan(self.keys, T.sizes(self.images)).geometry
        scale, offset = NORMALIZE.scale.tolist(), NORMALIZE.offset.tolist()
        for i, image in enumerate(self.images):
            pixels = fallback.read_pixels(image, MAX_PIXELS)
            _native.fill_pixels(
                pixels, plan[i], self.out, i, layout="CHW", filter="bilinear", scale=scale, offset=offset
            )
        return len(self.images)


def candidates(images: Sequence[Image.Image]) -> dict[str, Callable[[], float]]:
    """The candidates of each kind; stop if the rows of two decoders differ."""
    found: dict[str, Callable[[], float]] = {}
    for name, write in KINDS.items():
        rows = Rows([write(image) for image in images])
        natively = all(_native.inspect(image)["native"] for image in rows.images)
        rows.pipeline()
        ours = rows.out.copy()
        rows.pillow()
        if not np.array_equal(ours, rows.out):
            raise SystemExit(f"{name}: the two ways differ")
        if natively:
            found[f"{name}, native"] = rows.pipeline
        found[f"{name}, Pillow"] = rows.pillow if natively else rows.pipeline
    return found


def counted(folder: Path) -> str:
    """Count the reasons for which Pillow decodes files of a folder."""
    reasons: Counter[str] = Counter()
    for path in jpegs(folder):
        try:
            reasons[_native.inspect(path.read_bytes())["reason"] or "native"] += 1
        except ValueError:
            reasons["no JPEG"] += 1
    return ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())


def gains(timings: dict[str, Timing]) -> str:
    """The possible gain for the known fraction of files, and the fraction for a gain of 1 %."""
    ms = {name: 1000 / timing.median for name, timing in timings.items()}
    usual = ms["YCbCr 4:2:0, native"]
    lines = ["| kind | ms by Pillow | ms natively | 1 % of an epoch is gained from a share of |", "|---|---|---|---|"]
    for name, like in {
        "CMYK 4:4:4": "YCbCr 4:4:4",
        "YCCK 4:4:4": "YCbCr 4:4:4",
        "YCCK 4:2:0": "YCbCr 4:2:0",
    }.items():
        slow, fast = ms[f"{name}, Pillow"], COUNTED_AS_NATIVE * ms[f"{like}, native"]
        # s (slow - fast) = 1 % of ((1 - s) usual + s slow)
        share = 0.01 * usual / (slow - fast - 0.01 * (slow - usual))
        lines.append(f"| {name} | {slow:.2f} | {fast:.2f} (estimated) | {share:.2%} |")
    slowest = max(ms[f"{name}, Pillow"] for name in KINDS if name[:4] in {"CMYK", "YCCK"})
    saved_ms = IMAGENET_CMYK * slowest
    epoch_ms = (IMAGENET - IMAGENET_CMYK) * usual + saved_ms
    return "\n".join(lines) + (
        f"\n\nImageNet-1k: {IMAGENET_CMYK} of {IMAGENET:,} pictures, {IMAGENET_CMYK / IMAGENET:.4%}. Were they "
        f"decoded in no time, an epoch would be shorter by {saved_ms / epoch_ms:.4%}: {saved_ms:.0f} ms "
        f"of {epoch_ms / 60000:.0f} minutes of one core."
    )


def main() -> None:
    """Check, measure and print."""
    options = arguments(__doc__, rounds=7)
    folder = images_folder(options.images)
    photographs = [Image.open(path).convert("RGB") for path in jpegs(folder)[::EVERY]]
    timings = in_turns(candidates(photographs), rounds=options.rounds, unit="images/s")
    print(f"{len(photographs)} photographs saved at quality {QUALITY}; {machine()}; ", end="")
    print(f"{versions('penstock-data', 'Pillow', 'simplejpeg', 'numpy')}. Both decoders give the same rows.\n")
    print(table(timings, against="YCbCr 4:2:0, native"))
    print(f"\n{gains(timings)}\n\nThe folder's own files: {counted(folder)}.")


if __name__ == "__main__":
    main()
