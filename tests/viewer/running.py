"""Programs that iterate a loader with ``view=True`` until they are told to end: for tests of the live page."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["start_training", "until"]

_PATIENCE_S: Final = 90.0

_PROGRAM: Final = """
import sys, threading, time
import penstock as ps
from penstock import transforms as T

store = ps.open(sys.argv[1])
dataset = ps.StoreDataset(store, fields=("image", "label"), transform=[T.Decode(), T.Resize(32), T.CenterCrop(32)])
loader = ps.DataLoader(
    dataset, 4, shuffle=True, num_workers=2, workers=sys.argv[2], on_error="skip", view=True, persistent_workers=True
)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
first = True
while not ended.is_set():
    for batch in loader:
        if first:
            print("begun", flush=True)
            first = False
        ended.wait(0.02)  # the step of a model
        if ended.is_set():
            break
"""


def start_training(photos: Path, folder: Path, workers: str = "threads", rank: int = 0) -> subprocess.Popen[str]:
    """A process that has delivered its first batch, and ends when its ``stdin`` is closed; one of two ranks."""
    environment = {**os.environ, "PENSTOCK_VIEW_DIR": str(folder), "RANK": str(rank), "WORLD_SIZE": "2"}
    command = [sys.executable, "-c", _PROGRAM, str(photos), workers]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None, "a pipe"
    assert process.stdout.readline() == "begun\n"
    return process


def until(holds: Callable[[], object]) -> None:
    """Ask until something holds that another process does; it fails after a time in which it would."""
    deadline = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.1)
