"""The protocol between ``rivals.py``, ``detection.py`` or ``remote.py`` and a peer: a line starts an epoch, the answer
counts images.

A peer runs in its own environment, without penstock. Therefore this module imports only the standard library, and a
peer only its own packages.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

BATCH = {"T1": 64, "T2": 64, "T3": 64, "T4": 32, "boxes": 32, "mosaic": 32}
WORKERS = 2
SHARD_NBYTES = 16 << 20
"""Of formats of shards: less than what is usual, so that a small set has some twenty."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def serve(
    make: Callable[[str, str, list[str]], Callable[[], Iterable[Any]]],
    targets: Callable[[str, str, list[str]], list[Any]] | None = None,
) -> None:
    """``peer.py TASK CANDIDATE FOLDER REPEATS``: prepare, then run an epoch for every line of standard input.

    ``make(task, candidate, files)`` returns a function that starts an epoch over ``files``. A batch is an array or a
    tensor, or the first item of a tuple, a list or a dict. ``targets(task, candidate, files)`` returns rows (x0, y0,
    x1, y1, class) for each file without anything random; the line ``targets N`` asks for those of the first N files.
    """
    task, candidate, folder, repeats = sys.argv[1:5]
    files = jpegs(folder)

    def begin() -> Callable[[str], str]:
        epoch = make(task, candidate, files * int(repeats))

        def reply_to(line: str) -> str:
            if line.startswith("targets"):
                rows = targets(task, candidate, files[: int(line.split()[1])])
                return json.dumps([[[float(number) for number in row] for row in each] for each in rows])
            images = 0
            for batch in epoch():
                while isinstance(batch, (tuple, list, dict)):
                    batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]  # noqa: PLW2901
                images += batch.shape[0]
            return str(images)

        return reply_to

    answer(begin)


def serve_s3(
    write: Callable[[list[str], str], None], make: Callable[[str, str], Callable[[], Iterable[tuple[Any, Any]]]]
) -> None:
    """``peer.py IMAGES REPEATS FOLDER URL CACHE``: write FOLDER, then run an epoch of URL for every line.

    ``write(files, folder)`` writes the peer's format of what :func:`read_jpeg` reads, if there is no folder yet.
    ``make(url, cache)``, called in the first epoch, returns a function that starts an epoch. A batch is (images,
    numbers). The answer to a line is a JSON object.
    """
    images, repeats, folder, url, cache = sys.argv[1:6]

    def begin() -> Callable[[str], str]:
        if not Path(folder).exists():
            write(jpegs(images) * int(repeats), folder)
        made: list[Callable[[], Iterable[tuple[Any, Any]]]] = []

        def reply_to(_: str) -> str:
            started, first_s, numbers = time.perf_counter(), 0.0, []
            made[:] = made or [make(url, cache)]
            for batch in made[0]():
                first_s = first_s or time.perf_counter() - started
                assert batch[0].shape[1:] == (3, 224, 224), "what all peers make"
                numbers += batch[1].tolist()
            seconds = time.perf_counter() - started
            return json.dumps({"first_batch_s": first_s, "seconds": seconds, "numbers": numbers})

        return reply_to

    answer(begin)


def read_jpeg(number: int, file: str) -> bytes:
    """A JPEG, and after its end its number, so that no format keeps one of several that are the same."""
    return Path(file).read_bytes() + number.to_bytes(8, "little")


def jpegs(folder: str) -> list[str]:
    """The JPEGs below a folder, sorted."""
    return sorted(str(path) for path in Path(folder).rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"})


def answer(begin: Callable[[], Callable[[str], str]]) -> None:
    """Say that the peer is ready, then answer each line of standard input by what ``begin`` returned."""
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to standard error
    reply_to = begin()
    print("ready", file=reply, flush=True)
    for line in sys.stdin:
        print(reply_to(line), file=reply, flush=True)
    os._exit(0)  # some peers hang in their exit handlers
