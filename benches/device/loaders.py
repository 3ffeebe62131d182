"""Stage "loaders": images per second of whole loaders into tensors on the device, in turns, with other libraries.

For each task and number of processor cores, a process a candidate (``candidates.py``). Turns are whole passes over the
photographs, as many as take a second or so for the candidate; A B C A B C, with all candidates on the same cores: only
one works at a time. T1 with 4 cores comes first, since the goals are about it.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import torch

from benches.device.candidates import CANDIDATES, OURS, find_hindrance
from benches.device.program import Skipped, Stage, figure, run_stage
from benches.device.tasks import write_files

__all__ = ["Peer", "measure_candidates"]

ORDER: Final = (("T1", 4), ("T1", 1), ("T1", 16), ("T2", 4), ("T2", 1), ("T2", 16))
START_S: Final = 45.0
"""Longest start of a candidate."""

TURN_S: Final = 30.0
"""Longest turn."""

AIM_S: Final = 0.6
"""What a turn is to take."""


class Peer:
    """A candidate's process.

    Parameters
    ----------
    name, task, cores, batch
        What it measures.
    pack, files : Path
        The photographs.
    rehearse : bool
        Whether there is no device.
    log : int
        Where its messages go.
    """

    def __init__(
        self, name: str, task: str, cores: int, batch: int, pack: Path, files: Path, *, rehearse: bool
    ) -> None:
        given = (name, task, cores, batch, pack, files, rehearse)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benches.device.candidates", *map(str, given)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr.fileno(),
        )  # fmt: skip
        self._partial = b""
        self.skipped = ""

    def read(self, limit_s: float) -> str:
        """The next line; a sentence in :attr:`skipped`, and an empty line, if there is none in time."""
        assert self.process.stdout is not None, "it is piped"
        end = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._partial:
                if not selector.select(max(end - time.monotonic(), 0)):
                    self.close(f"no answer in {limit_s:.0f} s")
                    return ""
                read = os.read(self.process.stdout.fileno(), 1 << 16)
                if not read:
                    self.close(f"it ended with {self.process.wait()}; see the log")
                    return ""
                self._partial += read
        line, _, self._partial = self._partial.partition(b"\n")
        return line.decode()

    def run(self, passes: int, limit_s: float) -> dict[str, float] | None:
        """Run passes; None if it cannot."""
        assert self.process.stdin is not None, "it is piped"
        try:
            self.process.stdin.write(f"{passes}\n".encode())
            self.process.stdin.flush()
        except OSError:
            self.close("it has ended; see the log")
            return None
        line = self.read(limit_s)
        found: dict[str, Any] = json.loads(line) if line else {"skipped": self.skipped}
        if "skipped" in found:
            self.close(found["skipped"])
            return None
        return found

    def close(self, why: str = "") -> None:
        """End the process."""
        self.skipped = self.skipped or why
        self.process.kill()
        self.process.wait()


def run(stage: Stage) -> None:
    """Measure every task with every number of cores, as long as there is time."""
    if not stage.rehearse and not torch.cuda.is_available():
        raise Skipped("torch finds no CUDA device")
    pack, batch = stage.work / "photographs.lmdb", stage.choose(256, 4)
    order = ORDER if not stage.rehearse else (("T1", 1),)
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(pack, Path(folder), stage.choose(400, 8))
        for number, (task, cores) in enumerate(order):
            name = f"{task}, {cores} {'core' if cores == 1 else 'cores'}"
            if cores > len(os.sched_getaffinity(0)):
                stage.found[name] = {"skipped": f"this machine has fewer than {cores} processor cores"}
                continue
            # The first, about which the goals are, has twice the time of another.
            share_s = stage.left_s / (len(order) - number) * (1.8 if number == 0 and len(order) > 1 else 1)
            if share_s < 10 and not stage.rehearse:
                stage.found[name] = {"skipped": "the time of the stage was used up"}
                continue
            stage.found[name] = measure_candidates(stage, task, cores, batch, pack, files, share_s)
            stage.save()


def measure_candidates(
    stage: Stage, task: str, cores: int, batch: int, pack: Path, files: Path, share_s: float
) -> dict[str, Any]:
    """Images per second, and per second of the processor, of each candidate."""
    end = time.monotonic() + share_s
    hindrances = {name: find_hindrance(name, rehearse=stage.rehearse) for name in CANDIDATES}
    peers = {
        name: Peer(name, task, cores, batch, pack, files, rehearse=stage.rehearse)
        for name, hindrance in hindrances.items()
        if not hindrance
    }
    skipped = {name: {"skipped": hindrance} for name, hindrance in hindrances.items() if hindrance}
    try:
        return _take_turns(peers, end, rounds=stage.choose(7, 1), slower=stage.choose(1, 8)) | skipped
    finally:
        for peer in peers.values():
            peer.close()


def _take_turns(peers: dict[str, Peer], end: float, rounds: int, slower: int) -> dict[str, Any]:
    """Warm up, choose how many passes a turn has, and measure; ``slower`` is by how much all limits are longer."""
    ready = [name for name, peer in peers.items() if peer.read(START_S * slower)]
    passes: dict[str, int] = {}
    for name in ready:
        if peers[name].run(2, TURN_S * slower) and (second := peers[name].run(2, TURN_S * slower)):
            passes[name] = max(1, min(round(2 * AIM_S / slower / max(second["seconds"], 1e-3)), 500))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in passes}
    for turn in range(rounds):
        if turn >= 2 and time.monotonic() > end:
            break
        for name, runs in found.items():
            if (made := peers[name].run(passes[name], TURN_S * slower)) is not None:
                runs.append(made)
                print(f"round {turn + 1} {name}: {made['images'] / made['seconds']:.0f} images/s", flush=True)
    figures: dict[str, Any] = {name: {"skipped": peer.skipped} for name, peer in peers.items() if peer.skipped}
    for name, runs in found.items():
        if runs:
            figures[name] = {
                "rate": figure([made["images"] / made["seconds"] for made in runs], "images/s"),
                "per_processor_s": figure(
                    [made["images"] / max(made["processor_s"], 1e-9) for made in runs], "images/s"
                ),
            }
            if OURS in found and len(found[OURS]) == len(runs):
                figures[name]["ours_over_this"] = figure(_ratios(found[OURS], runs), "")
    return figures


def _ratios(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> list[float]:
    """Of each round, so that slow changes of the machine cancel out."""
    return [a["images"] / a["seconds"] / (b["images"] / b["seconds"]) for a, b in zip(ours, theirs, strict=True)]


if __name__ == "__main__":
    run_stage(run)
