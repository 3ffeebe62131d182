"""Claim: a pack in object storage is read with a global shuffle nearly as fast as on this machine.

T1 (ImageNet photographs, RandomResizedCrop 224, flip, normalise, float32, batch 64, two threads) from a pack on this
machine, and from the same pack behind a server of S3's protocol on the loopback with 20, 50 and 200 ms before each
answer: with an empty cache, with no room in the cache, and with all of the pack in it. Rates are those after the first
second; the first batch is measured from `ps.open` on. The server (``tests/servers/s3``) works on the same processors.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from harness import Timing, arguments, images_folder, jpegs, machine, ratio, versions

import penstock as ps
from penstock import transforms as T

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.servers.s3_server import S3Server, build, serving

LATENCIES_MS = (20, 50, 200)
Run = Callable[[int], float]
"""Runs an epoch of that number; gives images a second."""
REPEATS = 8
"""How often each photograph is in the pack."""


@dataclass
class Network:
    """What one candidate asked of the server."""

    first_batch_s: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    nbytes: list[float] = field(default_factory=list)


def run_epoch(store: ps.stores.Store, started: float, epoch: int) -> tuple[float, float]:
    """Images a second after the first second of an epoch, and when the first batch came."""
    transform: list[T.Op] = [
        T.Decode(),
        T.RandomResizedCrop(224),
        T.HorizontalFlip(),
        T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
    ]
    transform.append(T.ToLayout("CHW", "float32"))
    dataset = ps.StoreDataset(store, transform=transform, index=None)
    loader = ps.DataLoader(dataset, 64, shuffle=True, seed=epoch, num_workers=2)
    first, begun, images = 0.0, 0.0, 0
    for batch in loader:
        now = time.perf_counter()
        first = first or now - started
        if begun:
            images += len(batch["label"])
        elif now - started > 1:
            begun = now
    return images / (time.perf_counter() - begun), first


def candidates(server: S3Server, local: Path, folder: Path) -> tuple[dict[str, Run], dict[str, Network]]:
    """What is run in turns, by name, and what each asks of the server."""
    networks: dict[str, Network] = {}

    def read_here(turn: int) -> float:
        started = time.perf_counter()
        with ps.open(local) as store:
            rate, first = run_epoch(store, started, turn)
        networks["this machine"].first_batch_s.append(first)
        return rate

    def read_there(name: str, latency_ms: int, cache_size: str, *, keep: bool) -> Run:
        cache = folder / f"cache {name}"

        def read(turn: int) -> float:
            if not keep:
                shutil.rmtree(cache, ignore_errors=True)
            server.set_faults(latency_ms=latency_ms)
            started = time.perf_counter()
            given = {"storage_options": server.options, "cache": cache, "cache_size": cache_size}
            with ps.open("s3://bucket/photos.lmdb", **given) as store:
                rate, first = run_epoch(store, started, turn)
                counts, count = server.count(), len(store)
            networks[name].first_batch_s.append(first)
            networks[name].requests.append(counts["requests"] / count)
            networks[name].nbytes.append(counts["bytes"] / count)
            return rate

        return read

    found: dict[str, Run] = {"this machine": read_here}
    for latency_ms in LATENCIES_MS:
        found[f"S3, {latency_ms} ms"] = read_there(f"S3, {latency_ms} ms", latency_ms, "100GB", keep=False)
    found["S3, 50 ms, no cache"] = read_there("S3, 50 ms, no cache", 50, "0", keep=False)
    found["S3, 50 ms, second epoch"] = read_there("S3, 50 ms, second epoch", 50, "100GB", keep=True)
    networks.update({name: Network() for name in found})
    return found, networks


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=5)
    images = jpegs(images_folder(options.images))
    program = build()
    if program is None:
        sys.exit("the server cannot be built: install Rust's cargo")
    print(f"{machine()}; {versions('penstock-data', 'obstore', 'numpy')}; {len(images) * REPEATS} JPEGs.\n")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        local = folder / "buckets" / "bucket" / "photos.lmdb"
        local.parent.mkdir(parents=True)
        ps.pack([{"image": path, "label": at % 1000} for at, path in enumerate(images * REPEATS)], local)
        with serving(program, folder / "buckets") as server:
            found, networks = candidates(server, local, folder)
            timings = {name: Timing(name, "images/s") for name in found}
            for turn in range(1 + options.rounds):
                for name, run in found.items():
                    rate = run(turn)
                    if turn:
                        timings[name].rates.append(rate)
                    print(f"  round {turn}/{options.rounds} {name:<30} {rate:10.1f} images/s", file=sys.stderr)
    report(timings, networks)


def report(timings: dict[str, Timing], networks: dict[str, Network]) -> None:
    """One table."""
    columns = "candidate", "images/s", "spread", "against this machine (lowest - highest)", "first batch, s"
    print(f"| {' | '.join(columns)} | requests an image | KB an image |\n{'|---' * 7}|")
    for name, timing in timings.items():
        middle, low, high = ratio(timing, timings["this machine"])
        network = networks[name]
        first, asked = np.median(network.first_batch_s[1:]), "- | -"
        if network.requests:
            asked = f"{np.median(network.requests[1:]):.2f} | {np.median(network.nbytes[1:]) / 1e3:.0f}"
        rate = f"{timing.median:,.0f} | ±{timing.spread:.0%} | {middle:.2f} ({low:.2f} - {high:.2f})"
        print(f"| {name} | {rate} | {first:.2f} | {asked} |")


if __name__ == "__main__":
    main()
