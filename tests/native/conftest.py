"""Pictures for the native core's tests, made here so that they are always there."""

from __future__ import annotations

import io
import platform
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from PIL import Image

from penstock import _native

Jpeg = Callable[..., bytes]


@pytest.fixture(scope="session")
def jpeg() -> Jpeg:
    """A function that makes a JPEG of a picture with smooth areas, edges and noise."""

    def make(width: int, height: int, seed: int = 0, *, gray: bool = False, **save: object) -> bytes:
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[0:height, 0:width]
        waves = [np.sin(x / a + c) + np.cos(y / b) for a, b, c in rng.uniform(2, 40, (3, 3))]
        pixels = np.stack(waves, axis=-1) * 50 + 128 + rng.normal(0, 12, (height, width, 3))
        pixels[height // 3 : height // 2, width // 4 : width // 2] = rng.uniform(0, 255, 3)
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        file = io.BytesIO()
        (image.convert("L") if gray else image).save(file, "JPEG", **{"quality": 85, **save})
        return file.getvalue()

    return make


def switch(level: str) -> None:
    """Runs the kernels of that level from now on; skips the test where the processor lacks it."""
    try:
        _native.level_override(level)
    except ValueError:
        pytest.skip(f"this processor has no {level}")


LEVELS = ("scalar", "neon") if platform.machine() == "aarch64" else ("scalar", "avx2", "avx512")


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test at every level that this processor has."""
    switch(request.param)
    yield request.param
    _native.level_override(None)


@pytest.fixture(params=LEVELS[:-1])
def lower_level(request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """A function that switches to a level below this processor's best until the test ends; skips where it is none."""
    best = _native.features()
    switch(request.param)
    lower = _native.features()
    _native.level_override(None)
    if lower == best:
        pytest.skip(f"this processor has nothing better than {request.param}")
    yield lambda: _native.level_override(request.param)
    _native.level_override(None)
