"""Samples that are read from object storage: a larger cache, more requests at once, larger objects, a nearer place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from penstock.doctor.judge.diagnosis import Advice
from penstock.doctor.judge.situation import Situation
from penstock.doctor.watching.recording import Recording
from penstock.loader.stats import RemoteStats
from penstock.wording import format_bytes

__all__ = ["describe_waiting", "find"]

_LEAST_SHARE: Final = 0.25
"""Of the loader's time, that reading takes."""
_CACHED_LEFT: Final = 0.1
"""Part of the reading time that is assumed to stay where all is read from the cache;"""
_OVERLAPPED_LEFT: Final = 0.5
"""where more requests are under way;"""
_SMALL_NBYTES: Final = 1 << 20
_MANY: Final = 100
_PACKED_LEFT: Final = 0.5
"""and where many small objects are few large ones."""
_FAR_MS: Final = 30.0
_NEAR_MS: Final = 5.0
"""Until the first byte, from which on a place is far away; and in the same region."""
_FEW_AT_ONCE: Final = 32.0
_MAIN_PART: Final = 0.5
_LOCAL_DISK_LEFT: Final = 0.7


def describe_waiting(recording: Recording) -> str:
    """Say in one sentence what readers of a remote store wait for; empty if nothing is remote."""
    counts = _read_counts(recording)
    if not counts:
        return ""
    parts = ", ".join(f"{share:.0%} for {name}" for name, share in counts.waiting.items())
    again = f", {counts.retries + counts.hedges} of {counts.requests} requests sent again" if counts.requests else ""
    return (
        f"The cache had {counts.hit_rate:.0%} of the bytes; readers waited {counts.wait_ns / 1e9:.1f} s for the rest: "
        f"{parts} ({counts.latency_ms:.0f} ms to the first byte{again})."
    )


def find(situation: Situation) -> Iterator[Advice]:
    """Advise on cache, look-ahead, objects and region if reading limits, and the store is in object storage."""
    if not situation.recording.remote or situation.share("read") < _LEAST_SHARE:
        return
    yield from _find_cache_size(situation)
    yield from _find_look_ahead(situation)
    yield from _find_small_objects(situation)
    yield from _find_region(situation)
    yield from _find_cache_folder(situation)


def _read_counts(recording: Recording) -> RemoteStats:
    return RemoteStats(**{each.name: int(recording.remote.get(each.name, 0)) for each in fields(RemoteStats)})


def _advise(situation: Situation, rule: str, change: str, reason: str, left: float, code: str = "") -> Advice:
    return Advice(rule, change, reason, situation.gain_of(situation.pipeline.with_stage("read", left)), code=code)


def _find_cache_size(situation: Situation) -> Iterator[Advice]:
    remote, counts = situation.recording.remote, _read_counts(situation.recording)
    store, cache = int(remote["store_nbytes"]), int(remote["cache_nbytes"])
    if store > cache and counts.hit_rate < 1 - _CACHED_LEFT:
        size = f"{-(-store * 11 // 10**10)}GB"
        yield _advise(
            situation,
            "cache-size",
            f'have the whole store cached: cache_size="{size}"',
            f"The store has {format_bytes(store)}, and the cache {format_bytes(cache)}, and {cache / store:.0%} of it "
            f"fits; {counts.hit_rate:.0%} of the bytes came from it. From the second epoch on all of it would; a tenth "
            "of the reading time is assumed to stay.",
            _CACHED_LEFT,
            f'penstock.open(..., cache_size="{size}")',
        )


def _find_look_ahead(situation: Situation) -> Iterator[Advice]:
    counts, steps = _read_counts(situation.recording), situation.recording.steps
    elapsed = float(steps.wait_ns.sum() + steps.step_ns.clip(0).sum())
    at_once = (counts.first_byte_ns + counts.transfer_ns) / max(elapsed, 1.0)
    if counts.waiting["latency"] > _MAIN_PART and at_once < _FEW_AT_ONCE and counts.hit_rate < 1 - _CACHED_LEFT:
        yield _advise(
            situation,
            "look-ahead",
            "have more batches under way, such that more requests are: prefetch_factor=16, or a sampler whose order is "
            "known (shuffle=True)",
            f"{at_once:.1f} requests were under way on average, each of {counts.latency_ms:.0f} ms; up to 128 may be. "
            "Half of the reading time is assumed to stay.",
            _OVERLAPPED_LEFT,
        )


def _find_small_objects(situation: Situation) -> Iterator[Advice]:
    remote = situation.recording.remote
    count = int(remote["objects"])
    mean = int(remote["store_nbytes"]) / max(count, 1)
    if count >= _MANY and mean < _SMALL_NBYTES:
        yield _advise(
            situation,
            "small-objects",
            "pack the objects: penstock pack URL DST.lmdb",
            f"The store has {count:,} objects of {format_bytes(mean)} on average, and each is a "
            "request of its own. Half of the reading time is assumed to stay.",
            _PACKED_LEFT,
            f"penstock pack {remote['url']} DST.lmdb",
        )


def _find_region(situation: Situation) -> Iterator[Advice]:
    counts = _read_counts(situation.recording)
    if counts.latency_ms > _FAR_MS and counts.waiting["latency"] > _MAIN_PART and counts.hit_rate < 1 - _CACHED_LEFT:
        yield _advise(
            situation,
            "region",
            "use a bucket in the region of this machine: the bucket is far away",
            f"A request takes {counts.latency_ms:.0f} ms to its first byte; within a region it is about "
            f"{_NEAR_MS:.0f} ms, and reading is assumed to wait as much less.",
            max(_NEAR_MS / counts.latency_ms, _CACHED_LEFT),
        )


def _find_cache_folder(situation: Situation) -> Iterator[Advice]:
    for disk in situation.recording.machine.get("disks") or ():
        if disk.get("kind") == "network" or disk.get("is_rotational"):
            place = "in a network file system" if disk.get("kind") == "network" else "on a rotating disk"
            yield _advise(
                situation,
                "cache-folder",
                "keep the cache on a local solid-state disk: cache=DIR",
                f"The cache folder is {place} ({disk.get('mount')}), where each page that is read or kept waits. 70 % "
                "of the reading time is assumed to stay.",
                _LOCAL_DISK_LEFT,
                "penstock.open(..., cache=DIR)",
            )
            return
