"""Claim: a sharded pack is read as fast as a plain one, and a run over 10^9 records resumes in a second.

The same photographs are in a plain pack and in packs of 2 and 8 shards, and training input (T1: RandomResizedCrop 224,
flip, normalise, float32, batch 64) is built from each in this thread, shuffled as a whole, in turns. A second table has
`read` and `blobs` of records of 1 kB in batches of 64. At the end, a manifest of 100,000 names of one pack of 10,000
records is opened, and a loader resumed at sample 10^9 - 1000, each time in a process of its own that has imported
penstock.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions
from train_input import pipeline

import penstock as ps
from penstock.sample import Field, Schema
from penstock.stores.lmdb_pack.manifest import PackManifest, ShardColumns
from penstock.stores.lmdb_pack.writer import LmdbWriter

BATCH, RECORDS, SHARDS = 64, 10_000, 8
RESUME = """
import sys, time
import penstock as ps
started = time.perf_counter()
dataset = ps.StoreDataset(sys.argv[1], fields=("image", "label"))
opened = time.perf_counter()
loader = ps.DataLoader(dataset, 64, shuffle=True, seed=1, num_workers=0)
loader.load_state_dict({**loader.state_dict(), "batches": 10**9 // 64 - 15, "samples": (10**9 // 64 - 15) * 64})
next(iter(loader))
print(opened - started, time.perf_counter() - started)
"""


def read_images(path: Path, turn: list[int]) -> float:
    """Build an epoch of training input; the number of images."""
    dataset = ps.StoreDataset(path, fields=("image", "label"), transform=pipeline("train"))
    turn[0] += 1
    return sum(len(labels) for _, labels in ps.DataLoader(dataset, BATCH, shuffle=True, seed=turn[0], num_workers=0))


def read_records(store: ps.Store, method: str, count: int) -> float:
    """Read batches from the first ``count`` records; the number of records."""
    batches = np.random.default_rng(0).integers(0, count, (300, BATCH))
    for indices in batches:
        store.read(indices) if method == "read" else store.blobs("image", indices)
    return batches.size


def write_records(path: Path, shards: int) -> None:
    """Packs of records of 1 kB, joined by a manifest if there are several."""
    schema = Schema({"image": Field("image"), "label": Field("label")})
    parts = [path / f"{number}.lmdb" for number in range(shards)] if shards > 1 else [path]
    for number, part in enumerate(parts):
        writer = LmdbWriter(part, schema, "bench")
        keys = [f"{number}/{index}" for index in range(RECORDS * SHARDS // shards)]
        fields = {"image": [b"\xff\xd8\xff" + bytes(997)] * len(keys), "label": [1] * len(keys)}
        writer.append_batch(writer.prepare_batch(keys, fields))
        writer.finish()
    if shards > 1:
        ps.merge(parts, path, index="none")


def main() -> None:
    """Print the tables."""
    given = arguments(__doc__.splitlines()[0], rounds=7)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = jpegs(images_folder(given.images))
        rows = [{"image": path, "label": at % 1000} for at, path in enumerate(images)]
        nbytes = sum(path.stat().st_size for path in images)
        ps.pack(rows, folder / "plain.lmdb")
        found = {"plain": partial(read_images, folder / "plain.lmdb", [0])}
        for shards in (2, 8):
            ps.pack(rows, folder / f"{shards}.lmdb", shard_size=nbytes // shards + 1)
            found[f"{shards} shards"] = partial(read_images, folder / f"{shards}.lmdb", [0])
        print(f"{machine()}; {versions('penstock-data', 'numpy')}; {len(images)} photographs\n")
        print(table(in_turns(found, rounds=given.rounds, unit="images/s"), against="plain"))

        write_records(folder / "small.lmdb", 1)
        write_records(folder / "small", SHARDS)
        with ps.open(folder / "small.lmdb") as plain, ps.open(folder / "small") as sharded:
            for method in ("read", "blobs"):
                few = {f"{n} shards": partial(read_records, sharded, method, n * RECORDS) for n in (1, 2, 8)}
                runs = {"plain": partial(read_records, plain, method, RECORDS), **few}
                timings = in_turns(runs, rounds=given.rounds, unit="records/s")
                print(f"\n`{method}`\n\n{table(timings, against='plain')}")
                print("".join(f"\n{name}: {1e6 / timing.median:.2f} us a record" for name, timing in timings.items()))

        with ps.open(folder / "small" / "0.lmdb") as part:
            meta = part.meta  # type: ignore[attr-defined]  # of a pack
        columns = ShardColumns()
        for _ in range(100_000):
            columns.append("0.lmdb", meta.count, meta.content, meta.nbytes)
        PackManifest(meta.schema, columns).write(folder / "small" / "manifest.json")
        command = [sys.executable, "-c", RESUME, str(folder / "small")]
        runs = [subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True) for _ in range(given.rounds)]
        opened, first = (
            statistics.median(each) for each in zip(*(map(float, r.stdout.split()) for r in runs), strict=True)
        )
        print(
            f"\n10^9 records in 100,000 shards: opened after {opened:.2f} s, first batch of a resumed run after "
            f"{first:.2f} s"
        )


if __name__ == "__main__":
    main()
