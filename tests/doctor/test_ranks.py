"""Several processes that train together: the straggler is named, and who waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.doctor.machine.usage import ProcessUsage
from penstock.doctor.watching.ranks import compare_ranks, measure_rate, merge_ranks, summarize_rank
from penstock.doctor.watching.recording import (
    BATCH,
    EVENT,
    SAMPLE,
    LoaderSettings,
    Recording,
    StepTimes,
    load_recording,
    save_recording,
)

ROOT = Path(__file__).resolve().parents[2]
MS = 1_000_000


def make_recording(
    wait_ms: float, step_ms: float, *, rank: int = 0, world_size: int = 3, events: Any = (), keys: Any = ()
) -> Recording:
    """A recording of 10 equal steps of 8 samples, and a replayed one."""
    count = 11
    times = {
        name: np.full(count, value, np.int64)
        for name, value in {
            "wait_ns": wait_ms * MS, "step_ns": step_ms * MS, "copy_ns": 0, "cpu_ns": 0, "samples": 8, "start_ns": 0,
            "ready": 0, "device_ns": -1,
        }.items()
    }  # fmt: skip
    replayed = np.arange(count) == count - 1
    times["wait_ns"][-1] = 0
    return Recording(
        LoaderSettings("torch", "processes", 2, 2, 8),
        StepTimes(replayed=replayed, **times),
        np.array(list(events), EVENT),
        keys=dict(keys),
        rank=rank,
        world_size=world_size,
    )


def test_a_rank_is_summarised() -> None:
    """Replayed steps do not count; the slow worker is named."""
    events = [
        *((BATCH, worker, 0, -1, 0, length * MS, -1, -1, 8) for worker, length in ((0, 10), (1, 11), (2, 40))),
    ]

    part = summarize_rank(make_recording(30, 10, events=events))

    assert part["waiting"] == pytest.approx(0.75)
    assert part["samples_per_s"] == pytest.approx(8 / 0.04)
    assert (part["wait_ms"], part["step_ms"], part["steps"]) == (30, 10, 10)
    assert part["slowest_worker"] == 2
    assert json.loads(json.dumps(part)) == part


def test_steps_at_the_beginning_are_left_out_of_a_rate() -> None:
    """A loader that finds its workers is slow at first; where no step is left, all count."""
    recording = make_recording(30, 10)  # ten steps that count, of eight samples and 40 ms
    recording.steps.wait_ns[:7] *= 10

    rates = [measure_rate(recording, skip_s) for skip_s in (0.0, 2.18, 9.0)]

    assert rates == pytest.approx([80 / (7 * 0.31 + 3 * 0.04), 8 / 0.04, rates[0]])


def test_the_straggler_is_named_and_who_waits_for_it() -> None:
    """The others' steps are longer by the time in which they wait for the rank that comes late."""
    parts = [
        summarize_rank(make_recording(2, 48, rank=0)),
        summarize_rank(make_recording(30, 20, rank=1)),
        summarize_rank(make_recording(5, 45, rank=2)),
    ]

    ranks = compare_ranks(parts[::-1])

    assert [row["rank"] for row in ranks.rows] == [0, 1, 2]
    assert [row["waited_for"] for row in ranks.rows] == [1, None, 1]
    assert [row["waited_ms"] for row in ranks.rows] == [28, 0, 25]
    assert ranks.sentences[0].startswith("Rank 1 holds up the others: it waits 30 ms for each batch")
    assert ranks.sentences[1] == "In each step the others wait for rank 1: rank 0 28 ms, rank 2 25 ms."


def test_equal_ranks_have_no_straggler() -> None:
    """A difference within the noise is none."""
    parts = [summarize_rank(make_recording(wait, 20, rank=rank)) for rank, wait in enumerate((5, 5.4, 4.9))]

    ranks = compare_ranks(parts)

    assert [row["waited_for"] for row in ranks.rows] == [None] * 3
    assert ranks.sentences == ["All ranks wait equally long for data: none holds up the others."]


def test_a_process_alone_has_no_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert merge_ranks(make_recording(1, 1, world_size=1)) is None
    assert list(tmp_path.iterdir()) == []


def test_rank_0_waits_for_the_others_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that died is named as one that was not heard of; files are removed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("MASTER_PORT", "12345")

    assert merge_ranks(make_recording(30, 10, rank=2)) is None
    ranks = merge_ranks(make_recording(1, 39, rank=0), patience_s=0.2)

    assert ranks is not None
    assert [row["rank"] for row in ranks.rows] == [0, 2]
    assert ranks.sentences[-1] == "Nothing was heard of rank 1 within 0.2 seconds: not compared."
    assert list(tmp_path.iterdir()) == []


def test_ranks_of_one_run_find_one_another(tmp_path: Path) -> None:
    """Three processes with torchrun's variables: rank 0 has the parts of all."""
    code = textwrap.dedent(
        """
        import os, sys
        sys.path.insert(0, os.environ["ROOT"])
        from penstock.doctor.watching.ranks import merge_ranks
        from tests.doctor.test_ranks import make_recording
        rank = int(os.environ["RANK"])
        ranks = merge_ranks(make_recording(30 if rank == 2 else 1, 10 if rank == 2 else 39, rank=rank))
        print(None if ranks is None else (len(ranks.rows), ranks.rows[0]["waited_for"]))
        """
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_PORT": "29511", "TMPDIR": str(tmp_path),
                "ROOT": str(ROOT), "TORCHELASTIC_RUN_ID": "run/../1",
            },
        )
        for rank in range(3)
    ]  # fmt: skip

    outputs = [process.communicate(timeout=120)[0].strip() for process in started]

    assert outputs == ["(3, 2)", "None", "None"]
    assert list(tmp_path.iterdir()) == []


def test_a_recording_survives_its_file(tmp_path: Path) -> None:
    """All that a diagnosis reads."""
    events = [(SAMPLE, 1, 0, 421, 0, 90 * MS, -1, -1, 1)]
    recording = make_recording(30, 20, rank=1, events=events, keys={421: "a b.jpg"})
    recording.usage = [ProcessUsage("worker 0", 7, 1, 2)]
    recording.machine, recording.command, recording.ended = {"cores": 2}, ["train.py"], "steps"

    save_recording(recording, tmp_path / "rank-1.npz")
    found = load_recording(tmp_path / "rank-1.npz")

    assert np.array_equal(found.events, recording.events)
    assert summarize_rank(found) == summarize_rank(recording)
    for name in ("settings", "usage", "keys", "machine", "command", "ended", "rank", "world_size"):
        assert getattr(found, name) == getattr(recording, name)


def test_what_a_killed_run_has_left_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that was written before the first step is of another run."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("MASTER_PORT", "12345")
    assert merge_ranks(make_recording(30, 10, rank=1, world_size=2)) is None
    (left,) = tmp_path.glob("*/rank-1.json")
    os.utime(left, (1e9, 1e9))
    recording = make_recording(1, 39, rank=0, world_size=2)
    recording.steps.start_ns[:] = time.perf_counter_ns()

    ranks = merge_ranks(recording, patience_s=0.2)

    assert ranks is not None
    assert [row["rank"] for row in ranks.rows] == [0]


TRAINING = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Images(Dataset):
    def __init__(self): self.files = [f"images/{number}.jpg" for number in range(96)]
    def __len__(self): return 96
    def __getitem__(self, index):
        time.sleep(0.001)
        if index == 43:
            read_broken_disk()
        return torch.ones(4)

def read_broken_disk(): time.sleep(0.5)

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
meeting = None if "MASTER_PORT" in os.environ else "file://" + sys.argv[1]
dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
images = Images()
sampler = DistributedSampler(images, world_size, rank, shuffle=False)
loader = DataLoader(images, 4, sampler=sampler, num_workers=2)
for epoch in range(20):
    for batch in loader:
        time.sleep(0.002)
        dist.all_reduce(batch)
"""
"""Rank 1 has the odd indices, its worker 1 the batch of samples 40 to 47: it holds up both ranks once an epoch."""


def environment(**variables: str) -> dict[str, str]:
    """Without what a launcher around these tests has set."""
    own = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
    kept = {name: value for name, value in os.environ.items() if name not in own}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For temporary files of ranks: their workers make sockets in it, whose paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.timing  # each rank waits for the other, and the doctor says which one had the slow sample
@pytest.mark.parametrize("launcher", ["variables", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_the_straggler_of_a_training_is_named(launcher: str, tmp_path: Path, short_folder: Path) -> None:
    """An unmodified script, started by torchrun, and by a launcher that says no more than who is who."""
    (tmp_path / "train.py").write_text(TRAINING)
    doctor = ["-m", "penstock", "doctor", "--no-trials", "--steps", "48", "--json", "out.json", "train.py", "meeting"]
    doctor[-1] = str(tmp_path / "meeting")
    if launcher == "torchrun":
        run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        starts = [([sys.executable, *run, *doctor], environment(TMPDIR=str(short_folder)))]
    else:
        starts = [
            ([sys.executable, *doctor], environment(RANK=str(rank), WORLD_SIZE="2", TMPDIR=str(short_folder)))
            for rank in range(2)
        ]

    started = [
        subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True)
        for command, variables in starts
    ]
    texts = [process.communicate(timeout=240)[1] for process in started]

    assert [process.returncode for process in started] == [0] * len(started), texts
    result = json.loads((tmp_path / "out.json").read_text())
    assert [row["rank"] for row in result["ranks"]] == [0, 1]
    assert [row["waited_for"] for row in result["ranks"]] == [1, None]
    assert result["ranks"][0]["waited_ms"] > 0
    said = " ".join(result["notes"])
    assert "Rank 1 holds up the others" in said
    assert "In each step the others wait for rank 1: rank 0 " in said
    slowest = result["keys"][0]
    assert (slowest["rank"], slowest["worker"], slowest["key"]) == (1, 1, "images/43.jpg")
    assert sum("Rank 1 holds up" in text.replace("\n", " ") for text in texts) == 1
    assert [path.name for path in short_folder.iterdir() if path.name.startswith("penstock-doctor")] == []
