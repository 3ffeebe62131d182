"""Every image among the test pictures that Pillow decodes: files, and those inside other people's containers."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from penstock.transforms.decoding import jpeg_markers

MOST_PIXELS = 1 << 22
_PNG = re.compile(rb"\x89PNG\r\n\x1a\n.*?IEND.{4}", re.DOTALL)
_JPEG_BYTES = 400_000


@functools.cache
def images(root: Path, folder: str, count: int | None = None) -> dict[str, bytes]:
    """Name and bytes of the different images of a folder that Pillow decodes, always in the same order."""
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    names = {str(path.relative_to(root)): path for path in (root / folder).rglob("*") if path.is_file()}
    for name in sorted(names, key=_digest):
        for offset, file in _inside(names[name].read_bytes()):
            if len(found) == count:
                return found
            if _digest(file) not in seen and pillow(file) is not None:
                seen.add(_digest(file))
                found[f"{name}:{offset}"] = file
    return found


@functools.lru_cache(maxsize=64)
def pillow(file: bytes) -> NDArray[np.uint8] | None:
    """What Pillow decodes, not to be written to; None where it refuses, and for pictures too large to try all on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(file))
            if image.width * image.height > MOST_PIXELS:
                return None
            return np.asarray(image.convert("RGB"))
        except Exception:  # noqa: BLE001  # whatever it raises, it refuses
            return None


def _digest(value: str | bytes) -> str:
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()


def _inside(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The image that the bytes are, or those that stand in them whole."""
    if content.startswith((b"\xff\xd8", b"\x89PNG")):
        yield 0, content
        return
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    yield from ((match.start(), match[0]) for match in _PNG.finditer(content))
    at = 0
    while (at := content.find(b"\xff\xd8\xff", at)) >= 0:
        piece = content[at : at + _JPEG_BYTES]
        end = next((offset for marker, offset in jpeg_markers.iterate_segments(piece) if marker == 0xD9), 1)
        if end > 1:
            yield at, piece[: end + 2]
        at += end + 2
