"""JPEGs of all samplings, crops of them, and the calls that make rows and packets of a crop."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from penstock import _native
from tests.native.test_jpeg_exact import with_sampling


@functools.cache
def jpegs() -> dict[str, bytes]:
    """By name: sizes that do not fill blocks, samplings, gray, RGB, restart intervals, few and many bits."""
    rng = np.random.default_rng(16)
    found = {}
    for (width, height), sampling, options in (
        ((97, 75), 2, {}),
        ((97, 75), 1, {}),
        ((64, 48), 0, {}),
        ((200, 133), 2, {"quality": 30}),
        ((131, 200), 2, {"quality": 98, "optimize": True}),
        ((255, 40), 2, {"restart_marker_rows": 1}),
        ((160, 120), 2, {"restart_marker_blocks": 3}),
        ((160, 120), 0, {"restart_marker_blocks": 7}),
        ((33, 17), 2, {}),
        ((9, 300), 1, {"quality": 100}),
        ((1, 1), 2, {}),
    ):
        name = f"{width}x{height}-{sampling}-{options}"
        found[name] = _encode(_picture(rng, width, height), subsampling=sampling, **options)
    gray = Image.fromarray(np.asarray(_picture(rng, 90, 61).convert("L")))
    found["gray"] = _encode(gray)
    found["rgb"] = _encode(_picture(rng, 70, 50), keep_rgb=True, subsampling=0)
    for other, (width, height) in (("4:4:0", (61, 83)), ("4:1:1", (77, 40)), ("4:2:2", (3, 30)), ("4:2:0", (2, 41))):
        found[other] = with_sampling(width, height, other, seed=width, quality=10)
    return found


@functools.cache
def records() -> dict[str, bytes]:
    """The same as records of coefficients, and progressive JPEGs and one of several segments in a row of blocks."""
    rng = np.random.default_rng(17)
    images = jpegs() | {
        "wide": _encode(_picture(rng, 1400, 24)),
        "wide, of many bits": _encode(_picture(rng, 1033, 30), quality=100, subsampling=1),
        "progressive": _encode(_picture(rng, 203, 99), progressive=True),
        "progressive, gray": _encode(_picture(rng, 600, 41).convert("L"), progressive=True, quality=40),
        "noise": _encode(Image.fromarray(rng.integers(0, 256, (64, 520, 3), np.uint8)), quality=100, subsampling=0),
    }
    return {name: _native.coefficients_from_jpeg(image) for name, image in images.items()}


def _picture(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    small = rng.integers(0, 256, (max(height // 6, 1), max(width // 6, 1), 3), np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    noisy = np.clip(smooth + rng.integers(-20, 20, smooth.shape), 0, 255)
    return Image.fromarray(noisy.astype(np.uint8))


def _encode(image: Image.Image, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 85, **options})
    return out.getvalue()


@dataclass(frozen=True)
class Case:
    """A crop of an image, and the row that is made of it."""

    region: tuple[int, int, int, int]
    width: int = 24
    height: int = 18
    flip: int = 0
    orientation: int = 1
    mode: str = "RGB"
    quality: float | None = None

    @property
    def channels(self) -> int:
        """Of the row."""
        return 1 if self.mode == "L" else 3

    def _arguments(self) -> dict[str, Any]:
        return {
            "orientations": np.array([self.orientation], np.uint8),
            "quality": self.quality,
            "mode": self.mode,
        }

    @property
    def _geometry(self) -> np.ndarray:
        return np.array([[*self.region, self.width, self.height, 0, 0, self.flip]], np.int32)

    def fill(self, image: bytes, filter_name: str, table: bytes | None = None) -> tuple[np.ndarray, list[Any]]:
        """The row that the CPU makes, (1, C, H, W), and failures."""
        out = np.zeros((1, self.channels, self.height, self.width), np.uint8)
        failures, _, _ = _native.fill(
            [image], self._geometry, out, np.zeros(1, np.int64), layout="CHW", filter=filter_name,
            indices=[table], found=[], **self._arguments(),
        )  # fmt: skip
        return out, failures

    def write_packets(
        self, image: bytes, filter_name: str, kind: str, table: bytes | None = None
    ) -> tuple[np.ndarray, np.ndarray, list[Any]]:
        """The packet of the crop."""
        packets, nbytes, lengths, failures = _native.write_packets(
            [image], self._geometry, (self.width, self.height), filter=filter_name, indices=[table], learn=kind,
            found=[], **self._arguments(),
        )  # fmt: skip
        return packets[:nbytes], lengths, failures


def cases_of(image: bytes, seed: int, count: int) -> Iterator[Case]:
    """Random crops of an image."""
    rng = np.random.default_rng(seed)
    width, height = _native.sizes([image])[0].tolist()
    for number in range(count):
        w, h = int(rng.integers(1, width + 1)), int(rng.integers(1, height + 1))
        if number == 0 and seed % 3 == 0:
            w, h = width, height
        x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
        size = (int(rng.integers(1, 60)), int(rng.integers(1, 60)))
        if number == 1:
            size = (w, h)  # nothing is resized
        yield Case(
            (x, y, x + w, y + h),
            *size,
            flip=int(rng.integers(0, 4)),
            orientation=int(rng.integers(1, 9)) if number > 1 else 1,
            mode=("RGB", "BGR", "L")[int(rng.integers(0, 3))],
            quality=(None, 1.0)[int(rng.integers(0, 2))],
        )


def mutated(image: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Copies of an image with a few bytes changed, in the middle of its scan: its seek table stays valid."""
    rng = np.random.default_rng(seed)
    scan = image.rindex(b"\xff\xda") + 14
    first, last = scan + 64, len(image) - 70
    for _ in range(count if last > first else 0):
        changed = bytearray(image)
        for _ in range(int(rng.integers(1, 4))):
            place = int(rng.integers(first, last))
            changed[place] = (0x00, 0xFF, 0xD3, int(rng.integers(0, 256)))[int(rng.integers(0, 4))]
        yield bytes(changed)
