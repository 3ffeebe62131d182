"""Claim: a pack in object storage is read with a global shuffle nearly as fast as on this machine.

T1 (ImageNet photographs, RandomResizedCrop 224, flip, normalise, float32, batch 64, two threads) from a pack on this
machine, and from the same pack behind a server of S3's protocol on the loopback with 20, 50 and 200 ms before each
answer: with an empty cache, with no room in the cache, and with all of the pack in it; and from a sharded pack, whose
shards are objects of 32 MB. Rates are those after the first second; the first batch is measured from `ps.open` on. The
server (``tests/servers/s3``) works on the same processors: what it takes of them for an image is stated beside what the
reader takes. The task "spare" is the same with one thread, which on a machine with two processors leaves one of them to
the requests and to the server.

The task "forms": T1 with two threads, 50 ms before each answer and an empty cache, from packs of the same photographs
as files, as files with tiles, and as coefficients; at the server's own rate, and at 40 MB/s. Rates are those of a whole
epoch, from `ps.open` on. A reader takes no tiles that lie beside a pack in object storage: it makes its own indices.

The task "rivals": T1 in two epochs, with 50 ms before each answer, by penstock and by other libraries in turns, each
from its own format of the same JPEGs. Every turn is a new program with an empty cache; the second epoch is another
order with what the first left in the cache. Each has two workers, the settings that its documentation recommends, and
all but penstock the fastest decoder of ``rivals.py`` in torch. Rates are those after the first batch. Order: the mean
length of runs of one label, if 1 % of the source's neighbours have the same (a global shuffle: 1.01), and the
correlation of the parts, of 5 % of the source each, of successive samples (a global shuffle: 0).

``RIVALS=folder`` contains their environments. Each is made as this one: ``uv venv folder/lance``, then ``uv pip install
--compile-bytecode --python folder/lance/bin/python torch torchvision simplejpeg pylance``. Without bytecode, worker
processes that are spawned compile torch again. Beside torch, torchvision and simplejpeg:

- ``litdata``: litdata (Lightning AI)
- ``streaming``: streaming-community (the maintained fork of MosaicML Streaming)
- ``webdataset``: webdataset, boto3 (needs ``curl``)
- ``s3torch``: s3torchconnector (Amazon)
- ``lance``: pylance (LanceDB)

Missing environments are reported and not measured.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import Distribution
from pathlib import Path

import numpy as np
from harness import Timing, arguments, images_folder, jpegs, machine, ratio, versions
from rivals import Peer

import penstock as ps
from penstock import transforms as T

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.servers.s3_server import S3Server, build, serving

BATCH = 64
LATENCIES_MS = (20, 50, 200)
Run = Callable[[int], float]
"""Runs an epoch of that number; gives images a second."""
REPEATS = 32
"""How often each photograph is in the pack."""
FORMS = {"files": {"index": "none"}, "tiles": {"index": "tiles"}, "coefficients": {"transcode": "coefficients"}}
"""Options of `pack`, by the name of the pack."""
FORM_REPEATS = 8
RATES = (0, 40_000_000)
"""Bytes a second of the server; 0: no limit."""
RIVALS = (
    ("LitData", "litdata", "litdata"),
    ("MosaicML Streaming (community fork)", "streaming", "streaming-community"),
    ("WebDataset", "webdataset", "webdataset"),
    ("torch + s3torchconnector", "s3torch", "s3torchconnector"),
    ("Lance", "lance", "pylance"),
)
"""The environment, with which the name of the program in ``benches/peers`` begins, and the package."""


@dataclass
class Network:
    """What one candidate asked of the server."""

    first_batch_s: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    nbytes: list[float] = field(default_factory=list)
    reader_us: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)


def run_epoch(
    store: ps.stores.Store, started: float, epoch: int, workers: int, index: str | None = None
) -> tuple[float, float]:
    """Images a second after the first second of an epoch, and when the first batch came."""
    transform: list[T.Op] = [
        T.Decode(),
        T.RandomResizedCrop(224),
        T.HorizontalFlip(),
        T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
    ]
    transform.append(T.ToLayout("CHW", "float32"))
    dataset = ps.StoreDataset(store, transform=transform, index=index)
    loader = ps.DataLoader(dataset, BATCH, shuffle=True, seed=epoch, num_workers=workers)
    first, begun, images = 0.0, 0.0, 0
    for batch in loader:
        now = time.perf_counter()
        first = first or now - started
        if begun:
            images += len(batch["label"])
        elif now - started > 1:
            begun = now
    return images / (time.perf_counter() - begun), first


def candidates(server: S3Server, local: Path, folder: Path, workers: int) -> tuple[dict[str, Run], dict[str, Network]]:
    """What is run in turns, by name, and what each asks of the server."""
    networks: dict[str, Network] = {}

    def read_here(turn: int) -> float:
        started, used = time.perf_counter(), time.process_time()
        with ps.open(local) as store:
            rate, first = run_epoch(store, started, turn, workers)
            networks["this machine"].reader_us.append((time.process_time() - used) / len(store) * 1e6)
        networks["this machine"].first_batch_s.append(first)
        return rate

    def read_there(
        name: str, latency_ms: int, cache_size: str, *, keep: bool = False, pack: str = "photos.lmdb"
    ) -> Run:
        cache = folder / f"cache {name}"

        def read(turn: int) -> float:
            if not keep:
                shutil.rmtree(cache, ignore_errors=True)
            server.set_faults(latency_ms=latency_ms)
            started, used, served = time.perf_counter(), time.process_time(), server.processor_s
            given = {"storage_options": server.options, "cache": cache, "cache_size": cache_size}
            with ps.open(f"s3://bucket/{pack}", **given) as store:
                rate, first = run_epoch(store, started, turn, workers)
                counts, count = server.count(), len(store)
            networks[name].first_batch_s.append(first)
            networks[name].requests.append(counts["requests"] / count)
            networks[name].nbytes.append(counts["bytes"] / count)
            networks[name].reader_us.append((time.process_time() - used) / count * 1e6)
            networks[name].server_us.append((server.processor_s - served) / count * 1e6)
            return rate

        return read

    found: dict[str, Run] = {"this machine": read_here}
    for latency_ms in LATENCIES_MS:
        found[f"S3, {latency_ms} ms"] = read_there(f"S3, {latency_ms} ms", latency_ms, "100GB")
    found["S3, 50 ms, sharded"] = read_there("S3, 50 ms, sharded", 50, "100GB", pack="sharded.lmdb")
    found["S3, 50 ms, no cache"] = read_there("S3, 50 ms, no cache", 50, "0")
    found["S3, 50 ms, second epoch"] = read_there("S3, 50 ms, second epoch", 50, "100GB", keep=True)
    networks.update({name: Network() for name in found})
    return found, networks


def measure_latencies(server: S3Server, images: list[Path], folder: Path, rounds: int, workers: int) -> None:
    """A pack in object storage against the same pack on this machine."""
    local = folder / "photos.lmdb"
    if not local.exists():
        records = [{"image": path, "label": at % 1000} for at, path in enumerate(images * REPEATS)]
        ps.pack(records, local)
        ps.pack(records, folder / "sharded.lmdb", shard_size="32MB")
    found, networks = candidates(server, local, folder.parent.parent, workers)
    timings = {name: Timing(name, "images/s") for name in found}
    for turn in range(1 + rounds):
        for name, run in found.items():
            rate = run(turn)
            if turn:
                timings[name].rates.append(rate)
            print(f"  round {turn}/{rounds} {name:<30} {rate:10.1f} images/s", file=sys.stderr)
    report(timings, networks)


def measure_forms(server: S3Server, images: list[Path], folder: Path, rounds: int) -> None:
    """Packs of files, with tiles, and of coefficients."""
    for name, given in FORMS.items():
        with tempfile.TemporaryDirectory() as once:
            records = [{"image": path, "label": at % 1000} for at, path in enumerate(images)]
            ps.pack(records, Path(once) / "once.lmdb", **{"index": "none", **given})
            with ps.open(Path(once) / "once.lmdb") as store:
                stored = [
                    {**each.fields, "image": bytes(each.fields["image"])}
                    for each in store.read_stored(range(len(store)))
                ]
        ps.pack(stored * FORM_REPEATS, folder / f"{name}.lmdb", index=given.get("index", "none"))
    names = {
        (name, rate): f"{name}, {f'{rate / 1e6:.0f} MB/s' if rate else 'no limit'}" for rate in RATES for name in FORMS
    }
    timings = {each: Timing(said, "images/s") for each, said in names.items()}
    networks = {each: Network() for each in names}
    for turn in range(1 + rounds):
        for (name, rate), timing in timings.items():
            with tempfile.TemporaryDirectory() as cache:
                server.set_faults(latency_ms=50, bytes_per_second=rate)
                started, used = time.perf_counter(), time.process_time()
                with ps.open(f"s3://bucket/{name}.lmdb", storage_options=server.options, cache=cache) as store:
                    _, first = run_epoch(store, started, turn, 2, "auto")
                    count, seconds, used = len(store), time.perf_counter() - started, time.process_time() - used
                counts, network = server.count(), networks[name, rate]
            print(f"  round {turn}/{rounds} {timing.name:<30} {seconds:10.2f} s", file=sys.stderr)
            if turn:
                timing.rates.append(count / seconds)
                network.first_batch_s.append(first)
                network.requests.append(counts["requests"] / count)
                network.nbytes.append(counts["bytes"] / count)
                network.reader_us.append(used / count * 1e6)
    columns = "candidate", "s an epoch", "images/s", "spread", "against files (lowest - highest)", "first batch, s"
    more = "requests an image", "KB an image", "processor time of reader, us an image"
    print(f"| {' | '.join(columns + more)} |\n{'|---' * 9}|")
    for (name, rate), timing in timings.items():
        middle, low, high = ratio(timing, timings["files", rate])
        network = networks[name, rate]
        asked = f"{np.median(network.requests):.2f} | {np.median(network.nbytes) / 1e3:.1f}"
        rate_said = f"{timing.median:,.0f} | ±{timing.spread:.0%} | {middle:.2f} ({low:.2f} - {high:.2f})"
        first, used = np.median(network.first_batch_s), np.median(network.reader_us)
        print(f"| {timing.name} | {count / timing.median:.2f} | {rate_said} | {first:.2f} | {asked} | {used:.0f} |")


def report(timings: dict[str, Timing], networks: dict[str, Network]) -> None:
    """One table."""
    columns = "candidate", "images/s", "spread", "against this machine (lowest - highest)", "first batch, s"
    more = "requests an image", "KB an image", "processor time of reader", "of server, us an image"
    print(f"| {' | '.join(columns + more)} |\n{'|---' * 9}|")
    for name, timing in timings.items():
        middle, low, high = ratio(timing, timings["this machine"])
        network = networks[name]
        first, asked, served = np.median(network.first_batch_s[1:]), "- | -", "-"
        if network.requests:
            asked = f"{np.median(network.requests[1:]):.2f} | {np.median(network.nbytes[1:]) / 1e3:.0f}"
            served = f"{np.median(network.server_us[1:]):.0f}"
        asked += f" | {np.median(network.reader_us[1:]):.0f} | {served}"
        rate = f"{timing.median:,.0f} | ±{timing.spread:.0%} | {middle:.2f} ({low:.2f} - {high:.2f})"
        print(f"| {name} | {rate} | {first:.2f} | {asked} |")


@dataclass
class Epoch:
    """What a peer did in its first or second epoch, in each round."""

    timing: Timing
    network: Network = field(default_factory=Network)
    runs: list[float] = field(default_factory=list)
    correlations: list[float] = field(default_factory=list)

    def run(self, peer: Peer, server: S3Server, count: int) -> None:
        """Run one."""
        server.set_faults(latency_ms=50)
        answer, counts = json.loads(peer.ask("epoch")), server.count()
        numbers = np.array(answer["numbers"])
        if sorted(answer["numbers"]) != list(range(count)):
            sys.exit(f"{self.timing.name} gave {len(numbers)} records, {len(np.unique(numbers))} of the {count} stored")
        rest_s = answer["seconds"] - answer["first_batch_s"]
        self.timing.rates.append((len(numbers) - BATCH) / rest_s)
        self.network.first_batch_s.append(answer["first_batch_s"])
        self.network.requests.append(counts["requests"] / count)
        self.network.nbytes.append(counts["bytes"] / count)
        labels, parts = numbers * 100 // count, numbers * 20 // count
        self.runs.append(len(labels) / (1 + np.count_nonzero(np.diff(labels))))
        self.correlations.append(np.corrcoef(parts[:-1], parts[1:])[0, 1])


def find_programs() -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Python and the beginning of the program's name, by name with version; and the names of missing environments."""
    folder, absent = Path(os.environ.get("RIVALS", "rivals")), []
    found = {"penstock": (sys.executable, "penstock")}
    for name, program, package in RIVALS:
        packages = [str(path) for path in (folder / program).glob("lib/python*/site-packages")]
        versions = [each.version for each in Distribution.discover(name=package, path=packages)]
        if versions:
            found[f"{name} {versions[0]}"] = (str(folder / program / "bin" / "python"), program)
        else:
            absent.append(name)
    return found, absent


def measure_rivals(server: S3Server, images: Path, folder: Path, rounds: int) -> None:
    """Penstock and the rivals in turns."""
    found, absent = find_programs()
    if absent:
        print(f"Not installed: {', '.join(absent)}.\n")
    os.environ.update({f"AWS_{name.upper()}": str(value) for name, value in server.options.items()})
    os.environ.update(AWS_ENDPOINT_URL=server.url, S3_ENDPOINT_URL=server.url, AWS_ALLOW_HTTP="true")
    os.environ.update(AWS_EC2_METADATA_DISABLED="true", LITDATA_DISABLE_VERSION_CHECK="1")
    count = REPEATS * len(jpegs(images))
    epochs = {name: [Epoch(Timing(name, "images/s")), Epoch(Timing(name, "images/s"))] for name in found}
    for turn in range(rounds):
        for name, (python, program) in found.items():
            with tempfile.TemporaryDirectory() as cache:
                given = str(images), str(REPEATS), str(folder / program), f"s3://bucket/{program}", cache
                peer = Peer(python, f"{program}_s3.py", *given)
                for epoch in epochs[name]:
                    epoch.run(peer, server, count)
                peer.close()
            rates = ", ".join(f"{epoch.timing.rates[-1]:.1f}" for epoch in epochs[name])
            print(f"  round {turn + 1}/{rounds} {name:<30} {rates} images/s", file=sys.stderr)
    report_rivals(epochs)


def report_rivals(epochs: dict[str, list[Epoch]]) -> None:
    """A table of each epoch, with ratios of penstock to each."""
    columns = "epoch", "candidate", "images/s", "spread", "penstock against it (lowest - highest)", "first batch, s"
    print(f"| {' | '.join(columns)} | requests an image | KB an image | label run | correlation |\n{'|---' * 10}|")
    for number in range(2):
        for name, both in epochs.items():
            epoch = both[number]
            middle, low, high = ratio(epochs["penstock"][number].timing, epoch.timing)
            network = epoch.network
            asked = f"{np.median(network.requests):.3f} | {np.median(network.nbytes) / 1e3:.0f}"
            order = f"{np.median(epoch.runs):.2f} | {np.median(epoch.correlations):.2f}"
            rate = f"{epoch.timing.median:,.0f} | ±{epoch.timing.spread:.0%} | {middle:.2f} ({low:.2f} - {high:.2f})"
            first = f"{np.median(network.first_batch_s):.2f}"
            print(f"| {number + 1} | {name} | {rate} | {first} | {asked} | {order} |")


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=5, tasks=("latencies", "spare", "forms", "rivals"))
    images = images_folder(options.images)
    program = build()
    if program is None:
        sys.exit("the server cannot be built: install Rust's cargo")
    print(f"{machine()}; {versions('penstock-data', 'obstore', 'numpy')}; {len(jpegs(images)) * REPEATS} JPEGs.\n")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "buckets" / "bucket"
        folder.mkdir(parents=True)
        with serving(program, folder.parent) as server:
            if "latencies" in options.tasks:
                measure_latencies(server, list(jpegs(images)), folder, options.rounds, 2)
            if "spare" in options.tasks:
                print("\n### One thread\n")
                measure_latencies(server, list(jpegs(images)), folder, options.rounds, 1)
            if "forms" in options.tasks:
                print(f"\n### Files, tiles and coefficients, 50 ms, {FORM_REPEATS * len(jpegs(images))} JPEGs\n")
                measure_forms(server, list(jpegs(images)), folder, options.rounds)
            if "rivals" in options.tasks:
                measure_rivals(server, images, folder, options.rounds)


if __name__ == "__main__":
    main()
