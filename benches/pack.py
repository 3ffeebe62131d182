"""Claim: packing with checks and checksums reaches at least the MB/s of a plain LMDB script without these.

The plain script uses one process and one transaction: it lists the folder, reads and puts each file, and commits with
a sync. penstock also checks each image's markers and size, hashes every record and every page, and stores labels,
keys and columns. Files are in the page cache. Both write to a new place below TMPDIR each time.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import lmdb
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions

import penstock as ps


def plain(folder: Path, target: Path) -> float:
    """Only list, read and put; return megabytes."""
    nbytes = 0
    with lmdb.open(str(target), map_size=1 << 36) as environment, environment.begin(write=True) as transaction:
        for path in jpegs(folder):
            content = path.read_bytes()
            transaction.put(str(path).encode(), content)
            nbytes += len(content)
    return nbytes / 1e6


def ours(folder: Path, target: Path) -> float:
    """``penstock.pack``; return megabytes."""
    return ps.pack(folder, target, index="none").nbytes / 1e6


def main() -> None:
    """Check, measure and print."""
    options = arguments(__doc__, rounds=9)
    folder = images_folder(options.images)
    paths = jpegs(folder)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        root = Path(scratch)
        ours(folder, root / "check.lmdb")
        report = ps.verify(root / "check.lmdb", folder)
        if not report.ok or report.compared != len(paths):
            raise SystemExit(f"what was packed is not the source: {report.problems[:3]}")

        places = itertools.count()

        def fresh(name: str) -> Path:
            return root / f"{next(places)}-{name}"

        timings = in_turns(
            {
                "plain lmdb script": lambda: plain(folder, fresh("plain.lmdb")),
                "penstock.pack": lambda: ours(folder, fresh("ours.lmdb")),
            },
            rounds=options.rounds,
            unit="MB/s",
        )
    print("### Packing, checks and checksums included\n")
    print(f"{len(paths)} files; {machine()}; {versions('penstock-data', 'lmdb', 'xxhash')}.\n")
    print(table(timings, against="plain lmdb script"))


if __name__ == "__main__":
    main()
