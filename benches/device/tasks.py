"""The work that is measured: T1 and T2, and the files that hold it.

T1 is RandomResizedCrop 224 and a flip, T2 Resize 256 and CenterCrop 224; both are normalised, float16 or bfloat16,
channels first. All candidates of other libraries do the same, with their own filters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import penstock as ps
from penstock import _native
from penstock import transforms as T

__all__ = ["DEVIATION", "MEAN", "SIZE", "has_table", "open_dataset", "pipelines", "read_files", "write_files"]

MEAN: Final = (0.485, 0.456, 0.406)
DEVIATION: Final = (0.229, 0.224, 0.225)
SIZE: Final = 224


def pipelines(dtype: str = "float16") -> dict[str, T.Pipeline]:
    """The tasks; those of uint8 are not normalised."""
    last: list[Any] = [] if dtype == "uint8" else [T.Normalize(MEAN, DEVIATION)]
    last = [T.HorizontalFlip(), *last, T.ToLayout("CHW", dtype)]
    return {
        "T1": T.Pipeline([T.Decode(), T.RandomResizedCrop(SIZE), *last]),
        "T2": T.Pipeline([T.Decode(), T.Resize(256), T.CenterCrop(SIZE), *last]),
    }


def open_dataset(pack: Path, pipeline: T.Pipeline, repeats: int = 1, limit: int | None = None) -> Any:
    """Images and labels of the pack, several times over."""
    data: Any = ps.StoreDataset(ps.open(pack), ("image", "label"), pipeline, index="tiles")
    if limit is not None and limit < len(data):
        data = ps.Subset(data, range(limit))
    return ps.ConcatDataset([data] * repeats) if repeats > 1 else data


def read_files(pack: Path, limit: int | None = None) -> list[bytes]:
    """The encoded photographs of the pack."""
    with ps.open(pack) as store:
        count = len(store) if limit is None else min(limit, len(store))
        return [bytes(blob) for blob in store.blobs("image", range(count))]


def write_files(pack: Path, folder: Path, limit: int | None = None) -> Path:
    """The photographs of the pack as files, for candidates that read files: ``folder/0/000000.jpg``."""
    (folder / "0").mkdir(parents=True)
    for number, content in enumerate(read_files(pack, limit)):
        (folder / "0" / f"{number:06}.jpg").write_bytes(content)
    return folder


def has_table(image: bytes) -> bool:
    """Whether a device can decode the image: a seek table can be made."""
    try:
        _native.build_index(image, "tiles")
    except (_native.UnsupportedError, _native.CorruptError):
        return False
    return True
