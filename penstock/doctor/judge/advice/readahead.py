"""Reading ahead on disks that are slow at single reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation

__all__ = ["find"]

_LEFT: Final = 0.5


def find(situation: Situation) -> Iterator[Candidate]:
    """If reading limits, and the dataset lies on a rotating disk or in a network file system."""
    if situation.share("read") < 0.25 or situation.idle_share("read") < 0.3:
        return
    for disk in situation.recording.machine.get("disks") or ():
        kind = str(disk.get("file_system") or "")
        is_remote = disk.get("kind") == "network"
        if not is_remote and not disk.get("is_rotational"):
            continue
        place = f"a network file system ({kind})" if is_remote else "a rotating disk"
        yield Candidate(
            "readahead",
            "copy the dataset to a local solid-state disk, or read shards from their beginning",
            f"The dataset lies on {place}, where each single read waits. Half of the reading time is assumed to stay.",
            situation.gain_of(situation.pipeline.with_stage("read", _LEFT)),
        )
        return
