"""What is Linux's own is behind `penstock.system`: without it, all but worker processes works."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import WorkerError
from penstock.system import control_group, core_numbers, memory_file, open_descriptor_of, require_worker_processes
from penstock.system.control_group import count_usable_cores

# Another system, as far as Python sees it: what only Linux has is removed, and no file of its kernel can be opened.
ANOTHER_SYSTEM = """
import fcntl, os, select, sys
import lmdb, numpy as np, PIL.Image

def refuse(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/", "/dev/shm/")):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])

sys.addaudithook(refuse)
for module, names in {
    os: ["MFD_CLOEXEC", "O_PATH", "O_TMPFILE", "copy_file_range", "eventfd", "fdatasync", "memfd_create", "pidfd_open",
         "posix_fadvise", "posix_fallocate", "sched_getaffinity", "sched_setaffinity", "splice"],
    fcntl: ["F_ADD_SEALS", "F_SETSIG", "F_OFD_SETLK"],
    select: ["epoll"],
}.items():
    for name in names:
        vars(module).pop(name, None)
sys.platform = "darwin"
"""

USE = """
import penstock as ps
from penstock import transforms as T

ps.pack("photos", "photos.lmdb")
ops = T.Pipeline([T.Decode(), T.RandomResizedCrop(32), T.ToLayout("CHW", "float32")])
dataset = ps.StoreDataset(ps.open("photos.lmdb"), fields=("image", "label"), transform=ops)
serial, threads = (
    list(ps.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=n, workers=w, seed=0))
    for n, w in ((0, "serial"), (2, "threads"))
)
assert len(serial) == 2
for one, other in zip(serial, threads, strict=True):
    assert np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])
assert len(ps.ArrayDataset.from_store("photos", size=16)) == 8
for workers, items in (("processes", dataset), ("auto", [1, 2, 3])):
    try:
        next(iter(ps.DataLoader(items, num_workers=1, workers=workers)))
    except ps.WorkerError as error:
        print(error)
"""


def test_another_system_loads_without_workers_and_with_threads(tmp_path: Path) -> None:
    """Without what only Linux has, packing and loading give the same; worker processes are refused in one sentence."""
    draw = np.random.default_rng(0)
    for number in range(8):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(path)

    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_SYSTEM + USE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    refused = "worker processes need Linux, and this is darwin; use workers='threads', or num_workers=0"
    assert done.stdout.splitlines() == [refused] * 2


def test_worker_processes_are_refused_on_other_systems_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux nothing is refused."""
    require_worker_processes()
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(WorkerError, match="need Linux"):
        require_worker_processes()


def test_cores_are_all_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without affinity, a process may use every core; with it, those it may run on."""
    assert core_numbers() == sorted(os.sched_getaffinity(0))

    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    assert core_numbers() == [0, 1, 2]
    assert count_usable_cores() <= 3


def test_memory_without_memory_files_has_no_name_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary file is deleted before the descriptor is returned, and has its size."""
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    fd = memory_file("memory", 5000)

    try:
        assert os.fstat(fd).st_size == 5000
        assert os.pread(fd, 5000, 0) == bytes(5000)
        assert list(tmp_path.iterdir()) == []
    finally:
        os.close(fd)


def test_a_descriptor_of_a_process_is_opened_again() -> None:
    """It is the same file, by a descriptor of its own."""
    fd = memory_file("memory", 10)
    again = open_descriptor_of(os.getpid(), fd)

    try:
        assert again != fd
        assert os.path.samestat(os.fstat(again), os.fstat(fd))
    finally:
        os.close(again)
        os.close(fd)


def test_a_quota_of_the_control_group_limits_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing and the warning about workers count what the process may keep busy, not all that it may run on."""
    monkeypatch.setattr(control_group, "_find_own_quota", lambda: 1.0)
    assert count_usable_cores() == 1

    with pytest.warns(UserWarning, match="suggested max number of worker in current system is 1"):
        ps.DataLoader([1, 2], num_workers=2)
