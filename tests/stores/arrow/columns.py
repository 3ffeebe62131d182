"""Arrow tables for the tests of the stores over columns, in the layouts of Hugging Face."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

CLASSES = ["cat", "dog", "bird"]


def make_contents(count: int, seed: int = 3, least: int = 10, most: int = 400) -> list[bytes]:
    """Bytes that begin as a JPEG, of different lengths."""
    rng = np.random.default_rng(seed)
    return [b"\xff\xd8\xff" + rng.bytes(int(rng.integers(least, most))) for _ in range(count)]


def make_table(contents: list[bytes | None], *, features: bool = True, **columns: Any) -> Any:
    """A table with images as struct<bytes, path>, and labels; with the metadata of ``datasets`` unless told."""
    import pyarrow as pa

    images = pa.array(
        [None if each is None else {"bytes": each, "path": f"{number}.jpg"} for number, each in enumerate(contents)],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    declared = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": CLASSES}}
    metadata = {"huggingface": json.dumps({"info": {"features": declared}})} if features else None
    labels = [number % len(CLASSES) for number in range(len(contents))]
    return pa.table({"image": images, "label": labels, **columns}, metadata=metadata)
