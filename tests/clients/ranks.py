"""Two processes that train together, as ``torchrun --nproc-per-node 2`` starts them: gloo, on the CPU, forked."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.clients.harness import Recording, record
from tests.servers.starting import hold_port

__all__ = ["record_ranks"]

WORLD: Final = 2
TIMEOUT_S: Final = 140.0


def record_ranks(way: str, run: Callable[[Any, Recording], None], *libraries: str) -> list[Recording]:
    """The recordings of both ranks; see :func:`tests.clients.harness.record`.

    Raises
    ------
    AssertionError
        With a rank's traceback if it fails. The other one is killed then: it may wait for the first.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder, hold_port() as held:
        port = held.getsockname()[1]
        paths = [Path(folder, str(rank)) for rank in range(WORLD)]
        ranks = [
            context.Process(target=_serve, args=(path, rank, port, way, run, libraries))
            for rank, path in enumerate(paths)
        ]
        for rank in ranks:
            rank.start()
        try:
            _await(ranks, paths)
        finally:
            for rank in ranks:
                if rank.is_alive():
                    rank.kill()
                rank.join()
        results = [pickle.loads(path.read_bytes()) if path.exists() else "it died" for path in paths]
    recordings = [result for result in results if isinstance(result, Recording)]
    assert len(recordings) == WORLD, "\n".join(f"{way}, rank {rank}: {result}" for rank, result in enumerate(results))
    return recordings


def _await(ranks: list[Any], paths: list[Path]) -> None:
    """Wait for both, or for the first that fails."""
    end = time.monotonic() + TIMEOUT_S
    while alive := [number for number, rank in enumerate(ranks) if rank.is_alive()]:
        assert time.monotonic() < end, f"ranks {alive} have neither ended nor failed after {TIMEOUT_S} s"
        for rank, path in zip(ranks, paths, strict=True):
            failed = path.exists() and not isinstance(pickle.loads(path.read_bytes()), Recording)
            if failed or (not rank.is_alive() and rank.exitcode):
                return
        time.sleep(0.05)


def _serve(
    path: Path, rank: int, port: int, way: str, run: Callable[[Any, Recording], None], libraries: tuple[str, ...]
) -> None:
    """One rank: leaves its recording, or what it raised."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), ACCELERATE_USE_CPU="true",
    )  # fmt: skip
    result: Any
    try:
        result = record(way, run, *libraries)
    except BaseException:  # noqa: BLE001  # it is shown by the parent
        result = traceback.format_exc()
    partial = path.with_suffix(".partial")
    partial.write_bytes(pickle.dumps(result))
    partial.replace(path)
    import torch.distributed

    if isinstance(result, Recording) and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
