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

_MUCH: Final = 1.1
"""What the absence of reading brings, from which on facts of it are told."""
_CACHED: Final = 0.9
"""Part of the bytes that came from the cache, from which on it is large enough."""
_SMALL_NBYTES: Final = 1 << 20
_MANY: Final = 100
_FAR_MS: Final = 30.0
_NEAR_MS: Final = 5.0
"""Until the first byte: from which on a place is far away, and usual in the same region."""
_FEW_AT_ONCE: Final = 32.0
_MAIN_PART: Final = 0.5


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
    """Tell of cache, look-ahead, objects and region if reading limits, and the store is in object storage."""
    if not situation.recording.remote or situation.brings("read") < _MUCH:
        return
    yield from _find_cache_size(situation)
    yield from _find_look_ahead(situation)
    yield from _find_small_objects(situation)
    yield from _find_region(situation)
    yield from _find_cache_folder(situation)


def _read_counts(recording: Recording) -> RemoteStats:
    return RemoteStats(**{each.name: int(recording.remote.get(each.name, 0)) for each in fields(RemoteStats)})


def _find_cache_size(situation: Situation) -> Iterator[Advice]:
    remote, counts = situation.recording.remote, _read_counts(situation.recording)
    store, cache = int(remote["store_nbytes"]), int(remote["cache_nbytes"])
    if store > cache and counts.hit_rate < _CACHED:
        size = f"{-(-store * 11 // 10**10)}GB"
        yield Advice(
            "cache-size",
            f'have the whole store cached: cache_size="{size}"',
            f"The store has {format_bytes(store)}, and the cache {format_bytes(cache)}, and {cache / store:.0%} of it "
            f"fits; {counts.hit_rate:.0%} of the bytes came from it. From the second epoch on all of it would.",
            code=f'penstock.open(..., cache_size="{size}")',
        )


def _find_look_ahead(situation: Situation) -> Iterator[Advice]:
    counts, steps = _read_counts(situation.recording), situation.recording.steps
    elapsed = float(steps.wait_ns.sum() + steps.step_ns.clip(0).sum())
    at_once = (counts.first_byte_ns + counts.transfer_ns) / max(elapsed, 1.0)
    if counts.waiting["latency"] > _MAIN_PART and at_once < _FEW_AT_ONCE and counts.hit_rate < _CACHED:
        yield Advice(
            "look-ahead",
            "have more batches under way, such that more requests are: prefetch_factor=16, or a sampler whose order is "
            "known (shuffle=True)",
            f"{at_once:.1f} requests were under way on average, each of {counts.latency_ms:.0f} ms; up to 128 may be.",
        )


def _find_small_objects(situation: Situation) -> Iterator[Advice]:
    remote = situation.recording.remote
    count = int(remote["objects"])
    mean = int(remote["store_nbytes"]) / max(count, 1)
    if count >= _MANY and mean < _SMALL_NBYTES:
        yield Advice(
            "small-objects",
            "pack the objects: penstock pack URL DST.lmdb",
            f"The store has {count:,} objects of {format_bytes(mean)} on average, and each is a request of its own.",
            code=f"penstock pack {remote['url']} DST.lmdb",
        )


def _find_region(situation: Situation) -> Iterator[Advice]:
    counts = _read_counts(situation.recording)
    if counts.latency_ms > _FAR_MS and counts.waiting["latency"] > _MAIN_PART and counts.hit_rate < _CACHED:
        yield Advice(
            "region",
            "use a bucket in the region of this machine: the bucket is far away",
            f"A request takes {counts.latency_ms:.0f} ms to its first byte; within a region it is about "
            f"{_NEAR_MS:.0f} ms.",
        )


def _find_cache_folder(situation: Situation) -> Iterator[Advice]:
    for disk in situation.recording.machine.get("disks") or ():
        if disk.get("kind") == "network" or disk.get("is_rotational"):
            place = "in a network file system" if disk.get("kind") == "network" else "on a rotating disk"
            yield Advice(
                "cache-folder",
                "keep the cache on a local solid-state disk: cache=DIR",
                f"The cache folder is {place} ({disk.get('mount')}), where each page that is read or kept waits.",
                code="penstock.open(..., cache=DIR)",
            )
            return
