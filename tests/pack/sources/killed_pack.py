"""A program that packs a table, a dataset or a generator, and kills itself: ``KIND FOLDER DESTINATION KILL_AT``.

It commits often, sends itself SIGKILL once ``KILL_AT`` records are done, and prints how many records were resumed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

import penstock as ps
from penstock.pack.pipeline.run import PackProgress
from penstock.stores.lmdb.environment_writer import CommitLimits
from penstock.stores.pack.writer import LmdbWriter

COUNT: Final = 60


def make_sample(number: int) -> dict[str, Any]:
    """A picture, a label and a vector."""
    pixels = np.random.default_rng(number).integers(0, 256, (6, 5, 3), np.uint8)
    return {"image": Image.fromarray(pixels), "label": number % 3, "vector": np.full(4, number, np.float32)}


class Pictures:
    """A map-style dataset."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        return make_sample(index)


def generate() -> Iterator[dict[str, Any]]:
    """The same samples, one after another."""
    yield from map(make_sample, range(COUNT))


def write_table(folder: Path) -> Path:
    """A table of pictures, beside them, if it is not there."""
    table = folder / "table.csv"
    if not table.exists():
        lines = ["path,label,note"]
        for number in range(COUNT):
            make_sample(number)["image"].save(folder / f"{number}.png")
            lines.append(f"{number}.png,{number % 3},note {number}")
        table.write_text("\n".join(lines))
    return table


def main() -> None:
    """Pack, or die."""
    kind, folder, destination, kill_at = sys.argv[1:5]
    LmdbWriter.__init__ = partial_method(LmdbWriter.__init__, limits=CommitLimits(records=3))  # type: ignore[method-assign]  # commits often

    def kill(at: PackProgress) -> None:
        if at.done >= int(kill_at):
            os.kill(os.getpid(), signal.SIGKILL)

    pack = partial(ps.pack, dst=destination, progress=kill)
    if kind == "table":
        report = pack(write_table(Path(folder)))
    elif kind == "dataset":
        report = pack(Pictures())
    else:
        report = pack(generate(), source_id="pictures 1")
    sys.stdout.write(f"{report.resumed}\n")


def partial_method(function: Any, **given: Any) -> Any:
    """A method with some arguments given."""
    return lambda self, *arguments, **others: function(self, *arguments, **{**others, **given})


if __name__ == "__main__":
    main()
