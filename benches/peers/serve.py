"""The protocol between ``rivals.py`` and a peer: one line starts an epoch, the answer is its number of images.

A peer runs in its own environment, without penstock. Therefore this module imports only the standard library, and a
peer only its own packages.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

BATCH = {"T1": 64, "T2": 64, "T3": 64, "T4": 32}
WORKERS = 2
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def serve(make: Callable[[str, str, list[str]], Callable[[], Iterable[Any]]]) -> None:
    """``peer.py TASK CANDIDATE FOLDER REPEATS``: prepare, then run an epoch for every line of standard input.

    ``make(task, candidate, files)`` returns a function that starts an epoch over ``files``. A batch is an array or a
    tensor, or the first item of a tuple, a list or a dict.
    """
    task, candidate, folder, repeats = sys.argv[1:5]
    files = sorted(str(path) for path in Path(folder).rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"})
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to standard error
    epoch = make(task, candidate, files * int(repeats))
    reply.write("ready\n")
    reply.flush()
    for _ in sys.stdin:
        images = 0
        for batch in epoch():
            while isinstance(batch, (tuple, list, dict)):
                batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]  # noqa: PLW2901
            images += batch.shape[0]
        reply.write(f"{images}\n")
        reply.flush()
    os._exit(0)  # some peers hang in their exit handlers
