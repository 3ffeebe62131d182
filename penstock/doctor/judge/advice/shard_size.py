"""Shards that are too small."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation

__all__ = ["find"]

_SMALL: Final = 32 << 20
_MOST: Final = 1000
_ENDINGS: Final = (".tar", ".tar.gz", ".tgz", ".tar.zst")


def find(situation: Situation) -> Iterator[Candidate]:
    """If reading limits, and the loader's dataset reads tar shards of a few megabytes."""
    sizes = _shard_sizes(getattr(situation.loader, "dataset", None))
    if not sizes or situation.share("read") < 0.25:
        return
    mean = sum(sizes) / len(sizes)
    if mean > _SMALL:
        return
    yield Candidate(
        "shard-size",
        "write shards of 100 MB or more",
        f"Shards have {mean / 1e6:.1f} MB on average, so that a reader opens one often. Half of the reading time is "
        "assumed to stay.",
        situation.gain_of(situation.pipeline.with_stage("read", 0.5)),
    )


def _shard_sizes(dataset: Any) -> list[int]:
    """Sizes of the tar files that attributes of the dataset, or of its store, name."""
    paths: list[str] = []
    for holder in (dataset, getattr(dataset, "store", None)):
        for value in list(getattr(holder, "__dict__", {}).values()):
            values = value if isinstance(value, (list, tuple)) else [value]
            paths += [str(path) for path in values[:_MOST] if isinstance(path, (str, Path))]
    sizes = []
    for path in dict.fromkeys(paths):
        if path.endswith(_ENDINGS):
            with contextlib.suppress(OSError, ValueError):
                sizes.append(Path(path).stat().st_size)
    return sizes
