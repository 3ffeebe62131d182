"""Claim: penstock reads every container at least as fast as a plain script with the container's own library.

Each container is written by its own library, and read by a plain script in a process of its own
(``peers/plain_stores.py``) and by ``ps.open(container).read``, in turns: single records in random order ("random"),
batches of 64 in random order ("epoch": for tar and TFRecord, which have no random access, the script has a shuffle
buffer of 1,000), and batches of 64 in order ("sequential"). Every page of every image is touched. "cold": the container
was closed and its files were dropped from the page cache; it is opened again. "datasets" is a Parquet file that
``datasets`` copies to its cache, and penstock reads as it is; "dataset" is the ``datasets.Dataset`` of that cache. The
same is printed in processor time, which other work on the machine changes less. Time per record is that of records of
200 bytes in batches of 64: all fields by ``read``, and the image alone by ``blobs``, which is what fills batches.

T1 is training input (RandomResizedCrop 224, flip, normalise, float32, batch 64, two threads) from each container.

``RIVALS=folder`` contains ``core/bin/python`` with lmdb, h5py, webdataset, pyarrow, datasets, pylance, tfrecord,
mosaicml-streaming, litdata and pymongo, and ``ffcv/bin/python`` with ffcv, whose reader and memory manager give the
bytes of a ``.beton`` as its decoders get them. ``MONGODB=mongodb://host:port`` is a server to fill; without it, the
server of the tests is started, FerretDB over SQLite, where Go is installed. Containers without an environment are
left out, and named. That server reads the whole collection for each query: MongoDB has 128 images and 1,000 small
records here, and no single reads.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import lmdb
import numpy as np
from harness import Timing, arguments, images_folder, in_turns, jpegs, machine, ratio, versions
from peers.plain_stores import Datasets

import penstock as ps
from penstock import transforms as T

HERE = Path(__file__).resolve().parent
BATCH = 64
COUNT = 1600
TINY = 20_000
SERVER_COUNT = 128
SERVER_TINY = 1000
CONTAINERS: dict[str, tuple[str, dict[str, object]]] = {
    "lmdb": ("set.lmdb", {}),
    "hdf5": ("set.h5", {}),
    "tar": ("set-tar/*.tar", {}),
    "recordio": ("set.rec", {}),
    "parquet": ("set.parquet", {}),
    "datasets": ("hf.parquet", {}),
    "dataset": ("hf.parquet", {}),
    "arrow": ("set-arrow", {}),
    "lance": ("set.lance", {}),
    "tfrecord": ("set.tfrecord", {}),
    "mds": ("set-mds", {}),
    "litdata": ("set-litdata", {}),
    "ffcv": ("set.beton", {}),
    "mongodb": ("", {}),
}
"""What is opened of each container, and with which options."""


class Script:
    """A plain script that reads an epoch on request."""

    def __init__(self, python: Path, name: str, folder: Path, files: Path, count: int) -> None:
        command = [str(python), str(HERE / "peers" / "plain_stores.py"), name, str(folder), str(files), str(count)]
        self.seconds: list[float] = []  # of the processor, for each epoch
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # open as long as the program runs
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.reply()

    def reply(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            sys.exit(f"{self.process.args} ended: {self.log.read()[-2000:]}")
        return line

    def read(self, how: str, seed: int) -> float:
        self.process.stdin.write(f"{how} {seed}\n")
        self.process.stdin.flush()
        records, _, seconds = self.reply().split()
        self.seconds.append(float(seconds))
        return int(records)

    def close_container(self) -> None:
        self.read("close", 0)
        self.seconds.pop()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Ours:
    """The same with penstock."""

    def __init__(self, name: str, folder: Path, count: int, *, blobs: bool = False) -> None:
        self.blobs = blobs
        path, self.options = CONTAINERS[name]
        self.url = f"{os.environ.get('MONGODB', '')}/bench/{folder.name}" if name == "mongodb" else str(folder / path)
        self.count, self.is_dataset = count, name == "dataset"
        self.store: ps.Store | None = None
        self.seconds: list[float] = []

    def open(self) -> ps.Store:
        if not self.is_dataset:
            return ps.open(self.url, **self.options)
        opened = Datasets()  # as the script opens it
        opened.open(Path(self.url))
        return ps.open(opened.dataset, **self.options)

    def read(self, how: str, seed: int) -> float:
        begun = time.process_time()
        if self.store is None:
            self.store = self.open()
        order = list(range(self.count))
        if how != "sequential":
            random.Random(seed).shuffle(order)
        step = 1 if how == "random" else BATCH
        records = 0
        for first in range(0, self.count, step):
            some = order[first : first + step]
            records += touch(self._read_some(some))  # no name keeps the images, as in the script
        self.seconds.append(time.process_time() - begun)
        return records

    def _read_some(self, some: list[int]) -> list[object]:
        if self.blobs:
            return self.store.blobs("image", some)
        return [record.fields["image"] for record in self.store.read(some)]

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
        self.store = None
        gc.collect()  # maps of files end with their objects

    close_container = close


def touch(images: Sequence[object]) -> int:
    """Number of some images; every page of each is read."""
    for image in images:
        int(np.frombuffer(image, np.uint8)[::4096].sum())
    return len(images)


def drop(folder: Path) -> None:
    """Drop all files below a folder from the page cache; a file that someone has mapped would stay there."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                if (cached := measure_cached(file.fileno())) > 0.02:
                    sys.exit(f"{cached:.0%} of {path} are still in the page cache")


def measure_cached(file: int) -> float:
    """The part of the pages of a file that are in the page cache."""
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as mapped:
        address = np.frombuffer(mapped, np.uint8)
        found = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        where = [ctypes.c_void_p(each.ctypes.data) for each in (address, found)]
        if ctypes.CDLL(None).mincore(where[0], ctypes.c_size_t(len(mapped)), where[1]):
            sys.exit("the system does not say what is in the page cache")
        del address  # a map that is viewed cannot be closed
    return float((found & 1).mean())


def tiny_files(folder: Path) -> Path:
    """A thousand files of 200 bytes that begin as JPEGs do."""
    folder.mkdir()
    for number in range(1000):
        (folder / f"{number:04}.jpg").write_bytes(b"\xff\xd8\xff" + random.Random(number).randbytes(197))
    return folder


def measure(
    name: str, script: Script, ours: Ours, folder: Path, rounds: int, modes: Sequence[tuple[str, bool]]
) -> dict[tuple[str, bool], dict[str, Timing]]:
    """The timings of both in each mode."""
    found = {}
    for how, cold in modes:
        if how == "random" and name in {"tar", "tfrecord", "mongodb"}:
            continue
        what = f"{name} {how}{', cold' if cold else ''}"
        candidates = {f"{what}: script": one_epoch(script, how), f"{what}: penstock": one_epoch(ours, how)}
        before = partial(close_and_drop, (script, ours), folder) if cold else lambda: None
        timings = in_turns(candidates, rounds=rounds, unit="records/s", before=before)
        found[how, cold] = dict(zip(("script", "penstock"), timings.values(), strict=True))
        for reader, side in ((script, "script"), (ours, "penstock")):
            rates = [ours.count / seconds for seconds in reader.seconds[-rounds:]]
            found[how, cold][f"{side}, processor"] = Timing(side, "records/s", rates)
    return found


def one_epoch(reader: Script | Ours, how: str) -> Callable[[], float]:
    """A function that reads an epoch, each time in another order."""
    seeds = itertools.count()
    return lambda: reader.read(how, next(seeds))


def close_and_drop(readers: Sequence[Script | Ours], folder: Path) -> None:
    """Drop the files below a folder from the page cache, after all have closed them: mapped pages stay there."""
    for reader in readers:
        reader.close_container()
    drop(folder)


def epoch_of_t1(store: ps.Store) -> Callable[[], float]:
    """A function that loads an epoch of training input from a container."""
    pipeline = [
        T.Decode(),
        T.RandomResizedCrop(224),
        T.HorizontalFlip(),
        T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
        T.ToLayout("CHW", "float32"),
    ]
    dataset = ps.StoreDataset(store, fields=("image", "label"), transform=T.Pipeline(pipeline), index=None)
    loader = ps.DataLoader(
        dataset, batch_size=BATCH, shuffle=True, num_workers=2, workers="threads", seed=0, drop_last=True
    )
    return lambda: sum(len(labels) for _, labels in loader)


MODES = [("random", False), ("epoch", False), ("sequential", False), ("epoch", True), ("sequential", True)]


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=5, tasks=tuple(CONTAINERS))
    images = images_folder(options.images)
    nbytes = sum(path.stat().st_size for path in jpegs(images)) / len(jpegs(images))
    print(f"{machine()}; {versions('penstock-data', 'lmdb', 'h5py', 'pyarrow', 'pylance', 'pymongo')}.")
    print(f"{COUNT} images of {nbytes / 1e3:,.0f} kB; ratios are penstock / script, median (lowest - highest).\n")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch, running_mongodb(options.tasks) as has_server:
        names = [name for name in options.tasks if name != "mongodb" or has_server]
        names = [name for name in names if find_python(name).exists()]
        if left_out := [name for name in options.tasks if name not in names]:
            print(f"Not measured, without their environments or servers: {', '.join(left_out)}.\n")
        root = Path(scratch)
        tiny = tiny_files(root / "tiny-files")
        print("| container | random | epoch | sequential | epoch, cold | sequential, cold | MB/s of the epoch |")
        print("|---|---|---|---|---|---|---|")
        rows, processor = [], []
        for name in names:
            row, spent = measure_images(name, root, images, nbytes, options.rounds)
            print(row, flush=True)
            processor.append(spent)
            rows.append(measure_small(name, root, tiny, options.rounds))
        print("\nThe same in processor time, with that of penstock in the epoch:\n")
        print("| container | random | epoch | sequential | epoch, cold | sequential, cold | microseconds per record |")
        print("|---|---|---|---|---|---|---|")
        print("\n".join(processor))
        print("\nMicroseconds per record, and ratios to the script:\n")
        print("| container | script | `read` | `blobs` | ratio of `read` | ratio of `blobs` |")
        print("|---|---|---|---|---|---|")
        print("\n".join(rows))
        print_others(root, tiny, options.rounds)
        print_t1(names, root, images, options.rounds)


def find_python(name: str) -> Path:
    """The interpreter with the library of a container; FFCV needs an environment of its own."""
    return Path(os.environ.get("RIVALS", "rivals")) / ("ffcv" if name == "ffcv" else "core") / "bin" / "python"


@contextmanager
def running_mongodb(names: Sequence[str]) -> Iterator[bool]:
    """Whether a server of MongoDB is there while the body runs: that of ``MONGODB``, or one that is started here."""
    if "mongodb" not in names or "MONGODB" in os.environ:
        yield "mongodb" in names
        return
    sys.path.insert(0, str(HERE.parent))
    import pytest

    from tests.servers.mongo_server import MongoServer, build_server

    try:
        build_server()
    except pytest.skip.Exception as error:
        print(f"{error}.\n")
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-mongo-") as folder, MongoServer(Path(folder)) as server:
        os.environ["MONGODB"] = f"mongodb://{server.host}"
        try:
            yield True
        finally:
            del os.environ["MONGODB"]


def measure_images(name: str, root: Path, images: Path, nbytes: float, rounds: int) -> tuple[str, str]:
    """The rows of a container of photographs, whose mean size is ``nbytes``: by time, and by processor time."""
    folder = root / name
    folder.mkdir()
    count = SERVER_COUNT if name == "mongodb" else COUNT
    script, ours = Script(find_python(name), name, folder, images, count), Ours(name, folder, count)
    with closing(script), closing(ours):
        found = measure(name, script, ours, folder, rounds, MODES)
    rows = []
    for by, value in (("", nbytes / 1e6), (", processor", 0)):
        pairs = [
            (found[mode][f"script{by}"], found[mode][f"penstock{by}"]) if mode in found else None for mode in MODES
        ]
        cells = [format_ratio(*pair) if pair else "-" for pair in pairs]
        rate = found["epoch", False][f"penstock{by}"].median
        rows.append(f"| {name} | {' | '.join(cells)} | {rate * value if value else 1e6 / rate:,.0f} |")
    return rows[0], rows[1]


def measure_small(name: str, root: Path, tiny: Path, rounds: int) -> str:
    """The row of a container of records of 200 bytes: the time of each."""
    folder = root / f"{name}-tiny"
    folder.mkdir()
    count = SERVER_TINY if name == "mongodb" else TINY
    script, ours = Script(find_python(name), name, folder, tiny, count), Ours(name, folder, count)
    alone = Ours(name, folder, count, blobs=True)
    candidates = {
        f"{name}, small: script": one_epoch(script, "epoch"),
        f"{name}, small: read": one_epoch(ours, "epoch"),
        f"{name}, small: blobs": one_epoch(alone, "epoch"),
    }
    with closing(script), closing(ours), closing(alone):
        timings = in_turns(candidates, rounds=rounds, unit="records/s")
    by_script, by_read, by_blobs = timings.values()
    micro = " | ".join(f"{1e6 / timing.median:.1f}" for timing in timings.values())
    return f"| {name} | {micro} | {format_ratio(by_script, by_read)} | {format_ratio(by_script, by_blobs)} |"


def read_batches(read: Callable[[np.ndarray], Sequence[object]], batches: Sequence[np.ndarray]) -> float:
    """Read batches; gives the number of records."""
    return sum(len(read(batch)) for batch in batches)


def print_others(root: Path, tiny: Path, rounds: int) -> None:
    """The time per record of kinds that have no script here."""
    ps.convert(tiny, root / "tiny.lmdb")
    places = {
        "lmdb": str(root / "tiny.lmdb"),
        "files": str(tiny),
        "lmdb-names": f"lmdb-names://{root / 'names.lmdb'}",
        "lmdb-pairs": f"lmdb-pairs://{root / 'pairs.lmdb'}",
    }
    print("\n| kind, without a script | `read`, microseconds | `blobs` |\n|---|---|---|")
    for kind, url in places.items():
        options: dict[str, object] = {}
        if kind in {"lmdb-names", "lmdb-pairs"}:
            entries = {path.name.encode(): path.read_bytes() for path in jpegs(tiny)}
            if kind == "lmdb-pairs":
                options = {"shape": (8, 8, 3), "channels": "RGB"}
                pixels = np.random.default_rng(0).integers(0, 256, (1000, 8, 8, 3), np.uint8)
                entries = {str(number).encode(): each.tobytes() for number, each in enumerate(pixels)}
                entries |= {key + b"_": key + b",," for key in entries}
            with lmdb.open(url.partition("://")[2], map_size=1 << 30) as env, env.begin(write=True) as transaction:
                for key, value in entries.items():
                    transaction.put(key, value)
        with ps.open(url, **options) as store:
            order = np.random.default_rng(1).permutation(len(store))
            batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)] * 10
            candidates = {
                f"{kind}: read": partial(read_batches, store.read, batches),
                f"{kind}: blobs": partial(read_batches, partial(store.blobs, "image"), batches),
            }
            timings = in_turns(candidates, rounds=rounds, unit="records/s")
        micro = " | ".join(f"{1e6 / timing.median:.1f}" for timing in timings.values())
        print(f"| {kind} | {micro} |", flush=True)


def print_t1(names: Sequence[str], root: Path, images: Path, rounds: int) -> None:
    """T1 from each container, relative to the pack."""
    ps.pack(images, root / "pack.lmdb", index="none")
    candidates = {"pack": epoch_of_t1(ps.open(root / "pack.lmdb"))}
    for name in names:
        candidates[name] = epoch_of_t1(Ours(name, root / name, COUNT).open())
    timings = in_turns(candidates, rounds=rounds, unit="images/s")
    print("\n| T1 from | images/s | against the pack |\n|---|---|---|")
    for name, timing in timings.items():
        middle, low, high = ratio(timing, timings["pack"])
        print(f"| {name} | {timing.median:,.0f} | {middle:.2f} ({low:.2f} - {high:.2f}) |")


def format_ratio(script: Timing, ours: Timing) -> str:
    """Penstock's rate over the script's."""
    middle, low, high = ratio(ours, script)
    return f"{middle:.2f} ({low:.2f} - {high:.2f})"


if __name__ == "__main__":
    main()
