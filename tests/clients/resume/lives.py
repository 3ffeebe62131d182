"""Runs that are killed: ranks in processes of their own, which note what a training is given until they die.

A *life* is one start of a program on some ranks. What it notes is in a file at once, so that SIGKILL loses nothing of
it. A case compares the lives of a run that was killed with one life that was not::

    whole    b0 b1 b2 b3 b4 b5 b6 b7 b8 b9
    lives    b0 b1 b2 b3 x                       saved after b1, killed after b3
                   b2 b3 b4 b5 b6 x              saved after b4, killed after b6
                            b5 b6 b7 b8 b9
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import random
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from tests.clients.harness import frozen, seed, shown
from tests.servers.starting import hold_port

__all__ = [
    "Case",
    "Life",
    "Log",
    "assert_resumes",
    "check_steps",
    "live",
    "read",
    "run_case",
    "run_elastic",
    "steps_of",
]

TIMEOUT_S: Final = 140.0


@dataclass(frozen=True)
class Case:
    """How a run is started."""

    ranks: int = 1
    workers: int = 0
    drop_last: bool = False
    accumulation: int = 1
    epochs: int = 2
    samples: int = 50
    batch: int = 4

    def __str__(self) -> str:
        words = [f"{self.ranks}-ranks", f"{self.workers}-workers", f"accumulation-{self.accumulation}"]
        return "-".join([*words, *(["drop-last"] if self.drop_last else [])])


@dataclass(frozen=True)
class Life:
    """What one start of a program does: batches are counted over the whole run."""

    resume: int = 0
    """Batches before the checkpoint that it begins with; 0: it begins anew."""
    save: int = 0
    """Batches after which it saves; 0: never."""
    kill: int = 0
    """Batches after which each rank is killed; 0: it comes to its end."""


class Log:
    """What a rank notes, in a file."""

    def __init__(self, path: Path, case: Case, life: Life) -> None:
        self._ranks, self._file = case.ranks, path.open("ab", buffering=0)
        self.life, self.batches = life, life.resume

    def note(self, word: str, value: Any) -> None:
        """Keep a value as it is now."""
        self._file.write(pickle.dumps((word, frozen(value))))

    def batch(self, value: Any) -> None:
        """A batch that the training consumes now."""
        self.batches += 1
        self.note("batch", value)

    def loss(self, value: Any) -> None:
        """A loss. Not on three ranks: gradients are added in another order in the first step of a process."""
        if self._ranks < 3:
            self.note("loss", value)

    def end(self, model: Any) -> None:
        """The weights, if losses are noted, and the next numbers of the global generators."""
        self.note("weights", dict(model.state_dict()) if self._ranks < 3 else {})
        self.note("generators", [torch.rand(()), random.random(), np.random.random()])  # noqa: NPY002  # the global one

    def saves(self) -> bool:
        """Whether to save now."""
        return self.batches == self.life.save

    def may_die(self) -> None:
        """Be killed, if the time has come."""
        if self.batches == self.life.kill:
            os.kill(os.getpid(), signal.SIGKILL)


Program = Callable[[Log, Path, Case, Life], None]
Noted = list[tuple[str, Any]]


def live(program: Program, folder: Path, case: Case, life: Life) -> list[Noted]:
    """What each rank notes, from its start to its end or death.

    Raises
    ------
    AssertionError
        If a rank fails, or ends in another way than its life says.
    """
    if case.ranks > 1:
        importlib.import_module("torch._dynamo")  # by DistributedDataParallel: once here, instead of in every rank
    context = multiprocessing.get_context("fork")
    logs = [folder / f"{time.monotonic_ns()}-{rank}.log" for rank in range(case.ranks)]
    with hold_port() as held:
        port = held.getsockname()[1]
        ranks = [
            context.Process(target=_serve, args=(program, logs[rank], folder, case, life, rank, port))
            for rank in range(case.ranks)
        ]
        for rank in ranks:
            rank.start()
        _await(ranks)
    noted = [read(path) for path in logs]
    for number, rank in enumerate(ranks):
        failed = [value for word, value in noted[number] if word == "failed"]
        assert not failed, f"rank {number} of {case}, {life}:\n{failed[0]}"
        expected = -signal.SIGKILL if life.kill else 0
        assert rank.exitcode == expected, f"rank {number} of {case}, {life} ended with {rank.exitcode}"
    return noted


def _await(ranks: list[Any]) -> None:
    """Wait for all; when one is gone before its end, end the others, which may wait for it, as launchers do."""
    end = time.monotonic() + TIMEOUT_S
    while any(rank.is_alive() for rank in ranks):
        late = time.monotonic() > end
        if late or any(rank.exitcode for rank in ranks):
            for rank in ranks:
                rank.join(0 if late else 1.0)  # it dies at the same batch, if it gets there
                if rank.is_alive():
                    rank.kill()
        for rank in ranks:
            rank.join(0.05)
    assert time.monotonic() < end, f"ranks have neither ended nor failed after {TIMEOUT_S} s"


def _serve(program: Program, path: Path, folder: Path, case: Case, life: Life, rank: int, port: int) -> None:
    torch.set_num_threads(1)
    if case.ranks > 1:
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(case.ranks), LOCAL_WORLD_SIZE=str(case.ranks),
            NODE_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), ACCELERATE_USE_CPU="true",
        )  # fmt: skip
    log = Log(path, case, life)
    seed(17 + life.resume)  # a program that is started again is in another random state
    try:
        program(log, folder, case, life)
    except BaseException:  # noqa: BLE001  # it is shown by the parent
        log._file.write(pickle.dumps(("failed", traceback.format_exc())))
        os._exit(1)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def read(path: Path) -> Noted:
    """What a rank noted."""
    noted = []
    with path.open("rb") as file:
        while True:
            try:
                noted.append(pickle.load(file))
            except EOFError:
                return noted


def assert_resumes(whole: Noted, part: Noted, life: Life, batches: int) -> None:
    """What a life notes is what the whole run noted from there on, batch by batch and word by word."""
    assert sum(word == "batch" for word, _ in whole) == batches
    starts = [number for number, (word, _) in enumerate(whole) if word == "batch"]
    expected = whole[starts[life.resume] :] if life.resume < batches else whole[-2:]
    got = batches - life.resume if not life.kill else life.kill - life.resume
    assert sum(word == "batch" for word, _ in part) == got, "batches were lost or repeated"
    for number, (own, other) in enumerate(zip(part, expected, strict=False)):
        differ = f"{life}, note {number}:\n  got   {own[0]} {shown(own[1])}\n  whole {other[0]} {shown(other[1])}"
        assert own == other, differ
    if not life.kill:
        assert len(part) == len(expected)


def run_case(program: Program, folder: Path, case: Case, lives: list[Life], batches: int) -> None:
    """Run once without and once with kills, on the same number of ranks, and compare."""
    (folder / "whole").mkdir()
    (folder / "killed").mkdir()
    whole = live(program, folder / "whole", case, Life())
    for life in lives:
        parts = live(program, folder / "killed", case, life)
        for rank, part in enumerate(parts):
            assert_resumes(whole[rank], part, life, batches)


def run_elastic(program: Program, folder: Path, ranks: tuple[int, ...], case: Case, lives: list[Life]) -> None:
    """Run each life on its own number of ranks, with the same samples in a step of all ranks together.

    ``case.batch`` is divided among the ranks. The samples of each step are compared, to the bit, with those of a run
    that was not killed, on as many ranks as the first life. Losses differ: they are means over other batches.
    """
    (folder / "whole").mkdir()
    (folder / "killed").mkdir()
    on = [replace(case, ranks=number, batch=case.batch // number) for number in ranks]
    whole = steps_of(live(program, folder / "whole", on[0], Life()))
    check_steps(whole, case)
    for here, life in zip(on, lives, strict=True):
        steps = steps_of(live(program, folder / "killed", here, life))
        assert steps == whole[life.resume : life.kill or None], f"{here}, {life}"


def check_steps(whole: list[dict[int, bytes]], case: Case) -> None:
    """Each sample of an epoch is there once, but for those of a step that is not full."""
    first = [index for step in whole[: len(whole) // case.epochs] for index in step]
    assert len(first) == len(set(first)) == case.samples // case.batch * case.batch


def steps_of(noted: list[Noted]) -> list[dict[int, bytes]]:
    """The samples of each step of all ranks, by index."""
    steps: list[dict[int, bytes]] = []
    for rank in noted:
        batches = [value for word, value in rank if word == "batch"]
        steps.extend({} for _ in range(len(batches) - len(steps)))
        for step, (_, (drawn, _, indices)) in zip(steps, batches, strict=False):
            numbers = np.frombuffer(indices[3], np.int64).tolist()
            size = len(drawn[3]) // len(numbers)
            for place, index in enumerate(numbers):
                assert index not in step, f"sample {index} is twice in one step"
                step[index] = drawn[3][place * size : (place + 1) * size]
    return steps
