"""One image on several threads, where the system starts none of them."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from penstock import _native

# More than the address space holds: the system refuses every thread with a stack of this size.
ENDLESS_STACK = str(1 << 60)

SCRIPT = """
import sys
import numpy as np
from penstock import _native

image = open(sys.argv[1], "rb").read()
index = _native.build_index(image) if sys.argv[2] == "index" else None
np.save(sys.argv[3], _native.decode(image, index=index, found=[], threads=4))
out = np.zeros((1, 160, 160, 3), np.uint8)
geometry = np.array([[0, 0, 1280, 1024, 160, 160, 0, 0, 0]], np.int32)
failures, _, _ = _native.fill(
    [image], geometry, out, np.zeros(1, np.int64), layout="HWC", filter="bilinear", indices=[index], found=[], threads=4
)
assert failures == [], failures
np.save(sys.argv[4], out)
"""


def photograph() -> bytes:
    """A JPEG that is large enough for several threads."""
    pixels = np.random.default_rng(0).normal(0, 20, (1024, 1280, 3)).cumsum(0) + 128
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=60)
    return file.getvalue()


@pytest.mark.parametrize("given", ["index", "nothing"])
def test_an_image_is_decoded_where_no_thread_can_be_started(tmp_path: Path, given: str) -> None:
    """The calling thread does the work of those that the system refuses: by bands (an index) and by reading ahead."""
    image = photograph()
    (tmp_path / "image.jpg").write_bytes(image)
    results = [tmp_path / "decoded.npy", tmp_path / "filled.npy"]

    subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "image.jpg"), given, *map(str, results)],
        env={**os.environ, "RUST_MIN_STACK": ENDLESS_STACK},
        check=True,
        timeout=60,
    )

    decoded, filled = (np.load(path) for path in results)
    row = np.zeros_like(filled)
    geometry = np.array([[0, 0, 1280, 1024, 160, 160, 0, 0, 0]], np.int32)
    _native.fill([image], geometry, row, np.zeros(1, np.int64), layout="HWC", filter="bilinear")
    np.testing.assert_array_equal(decoded, _native.decode(image))
    np.testing.assert_array_equal(filled, row)


def running_threads() -> int:
    """Threads of this process, without those that the kernel is taking away."""
    exiting, count = 0x4, 0
    for stat in Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # gone meanwhile
            count += not int(stat.read_text().rpartition(")")[2].split()[6]) & exiting
    return count


@pytest.mark.parametrize("given", ["index", "nothing"])
def test_a_call_leaves_no_thread_behind(given: str) -> None:
    """Threads have ended when a call returns: they count towards no limit of the next one, and a fork meets none."""
    image = photograph()
    index = _native.build_index(image) if given == "index" else None
    before = running_threads()

    after = []
    for _ in range(50):
        _native.decode(image, index=index, found=[], threads=4)
        after.append(running_threads())

    assert after == [before] * 50
