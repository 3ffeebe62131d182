"""The protocol between ``rivals.py`` or ``detection.py`` and a peer: a line starts an epoch, the answer counts images.

A peer runs in its own environment, without penstock. Therefore this module imports only the standard library, and a
peer only its own packages.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

BATCH = {"T1": 64, "T2": 64, "T3": 64, "T4": 32, "boxes": 32, "mosaic": 32}
WORKERS = 2
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
    files = sorted(str(path) for path in Path(folder).rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"})
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to standard error
    epoch = make(task, candidate, files * int(repeats))
    reply.write("ready\n")
    reply.flush()
    for line in sys.stdin:
        if line.startswith("targets"):
            rows = targets(task, candidate, files[: int(line.split()[1])])
            reply.write(json.dumps([[[float(number) for number in row] for row in each] for each in rows]) + "\n")
            reply.flush()
            continue
        images = 0
        for batch in epoch():
            while isinstance(batch, (tuple, list, dict)):
                batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]  # noqa: PLW2901
            images += batch.shape[0]
        reply.write(f"{images}\n")
        reply.flush()
    os._exit(0)  # some peers hang in their exit handlers
