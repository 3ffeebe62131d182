"""UsageSampler: what a script's processes use, and what the machine did meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.doctor.machine.process_counters import read_counters, read_pss
from penstock.doctor.machine.sampling_thread import SamplingThread
from penstock.doctor.machine.usage import UsageSampler
from penstock.system.system_files import SystemFiles
from tests.doctor.fake_system import make_system


def stat(pid: int, *, parent: int = 1, cpu: int = 0, began: int = 0, threads: int = 1) -> str:
    """A line of /proc/PID/stat; the name has a space, a bracket and a line break, as it may have."""
    fields = ["S", parent, *[0] * 9, cpu - cpu // 3, cpu // 3, 0, 0, 20, 0, threads, 0, began]
    return f"{pid} (a) b\n(x) {' '.join(map(str, fields))} 9 9 9\n"


def process(pid: int, **counters: int) -> dict[str, str]:
    """The files of a process; those of ``counters`` that are not of ``stat`` have files of their own."""
    folder = f"/proc/{pid}"
    files = {
        f"{folder}/io": f"rchar: {counters.pop('rchar', 0)}\nread_bytes: {counters.pop('read_bytes', 0)}\n",
        f"{folder}/task/{pid}/schedstat": f"1 {counters.pop('delay', 0)} 3\n",
        f"{folder}/task/{pid}/children": "",
    }
    return {**files, f"{folder}/stat": stat(pid, **counters)}


TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def test_each_counter_is_what_was_added_while_watching(tmp_path: Path) -> None:
    """What a process had used before is left out; of threads the most at one time is told."""
    before = process(10, cpu=100, threads=2, rchar=1000, read_bytes=500, delay=70)
    after = process(10, cpu=160, threads=9, rchar=4000, read_bytes=700, delay=90)
    sampler = UsageSampler(10, files=make_system(tmp_path, {"/proc/uptime": "500.0 1.0\n", **before}))
    sampler.sample()
    make_system(tmp_path, after)
    sampler.sample()

    (usage,) = sampler.result()

    assert usage.wall_ns > 0
    assert replace(usage, wall_ns=0) == replace(
        usage, role="main", pid=10, cpu_ns=60 * TICK_NS, wall_ns=0, threads=9,
        read_calls_bytes=3000, waiting_for_cpu_ns=20,
    )  # fmt: skip


def test_child_processes_are_found(tmp_path: Path) -> None:
    """Those of all threads of the main process, which comes first, and their children."""
    contents = {"/proc/uptime": "500.0 1.0\n"}
    for pid in (10, 11, 12, 13, 14):
        contents |= process(pid)
    contents |= {
        "/proc/10/task/10/children": "11 12",
        "/proc/10/task/77/children": "13 ",
        "/proc/12/task/12/children": "14",
    }
    sampler = UsageSampler(10, files=make_system(tmp_path, contents))
    sampler.sample()

    roles = [(usage.role, usage.pid) for usage in sampler.result()]

    assert roles[0] == ("main", 10)
    assert sorted(roles[1:]) == [("other", pid) for pid in (11, 12, 13, 14)]


def test_a_process_that_began_later_counts_from_its_beginning(tmp_path: Path) -> None:
    """Also what it used before it was first seen; one that began before watching did not."""
    ticks = os.sysconf("SC_CLK_TCK")
    contents = {"/proc/uptime": "500.0 1.0\n", **process(10)}
    sampler = UsageSampler(10, files=make_system(tmp_path, contents))
    sampler.sample()
    contents |= process(11, began=500 * ticks + 5, cpu=40)
    contents |= process(12, began=100 * ticks, cpu=40)
    make_system(tmp_path, {**contents, "/proc/10/task/10/children": "11 12"})
    sampler.sample()

    used = {usage.pid: usage.cpu_ns for usage in sampler.result()}

    assert used == {10: 0, 11: 40 * TICK_NS, 12: 0}


def test_a_process_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    """Time of its beginning and number name a process; the one that ended keeps its counts."""
    ticks = os.sysconf("SC_CLK_TCK")
    contents = {"/proc/uptime": "500.0 1.0\n", **process(10), **process(11, began=501 * ticks, cpu=30)}
    contents["/proc/10/task/10/children"] = "11"
    sampler = UsageSampler(10, files=make_system(tmp_path, contents))
    sampler.sample()
    make_system(tmp_path, process(11, began=502 * ticks, cpu=5))
    sampler.sample()

    used = sorted(usage.cpu_ns for usage in sampler.result() if usage.pid == 11)

    assert used == [5 * TICK_NS, 30 * TICK_NS]


def test_what_cannot_be_read_any_more_keeps_its_value(tmp_path: Path) -> None:
    """A process that has ended, but is not waited for, has its last processor time, and no files of its own."""
    sampler = UsageSampler(
        10, files=make_system(tmp_path, {"/proc/uptime": "5.0\n", **process(10, rchar=100, threads=4)})
    )
    sampler.sample()
    make_system(tmp_path, process(10, rchar=900, threads=4))
    sampler.sample()
    for name in ("io", "task/10/schedstat"):
        (tmp_path / "proc/10" / name).unlink()
    make_system(tmp_path, {"/proc/10/stat": stat(10, cpu=50, threads=1)})
    sampler.sample()

    (usage,) = sampler.result()

    assert (usage.read_calls_bytes, usage.threads, usage.cpu_ns) == (800, 4, 50 * TICK_NS)
    assert usage.waiting_for_cpu_ns == 0


@pytest.mark.parametrize("content", ["", "10 (x", "10 (x) S a b", "10 (x) S" + " x" * 30, "\xff"])
def test_a_process_whose_file_says_nothing_is_none(tmp_path: Path, content: str) -> None:
    """It may end at any moment."""
    assert read_counters(make_system(tmp_path, {"/proc/10/stat": content}), 10) is None


def test_real_processes_are_watched() -> None:
    """The test's own process and a child that computes, on the machine of the test."""
    program = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with (
        UsageSampler(period_s=0.01) as sampler,
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        sampler.sample()
        child.communicate(b"\n")

    usage = {each.pid: each for each in sampler.result()}
    system: Any = sampler.system()

    assert 0.25e9 < usage[child.pid].cpu_ns <= usage[child.pid].wall_ns + 2 * TICK_NS
    assert (usage[os.getpid()].role, usage[child.pid].role) == ("main", "other")
    assert usage[os.getpid()].threads >= 2
    assert system["seconds"] > 0
    assert json.loads(json.dumps(system)) == system


def test_memory_is_that_of_the_process() -> None:
    """PSS of a process grows with what it touches; nothing else happens in this one meanwhile."""
    program = "print(flush=True)\ninput()\ntouched = b'x' * (64 << 20)\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        before = read_pss(SystemFiles(), child.pid)
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        after = read_pss(SystemFiles(), child.pid)
        child.communicate(b"\n")

    assert before > 0
    assert after - before > 32 << 20


def test_other_programs_have_what_the_watched_ones_do_not_explain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the processor time of the whole machine, without the time in which nothing ran."""
    now = [10**9]
    monkeypatch.setattr("time.perf_counter_ns", lambda: now[0])
    before = {"/proc/uptime": "500.0\n", "/proc/stat": "cpu 100 0 0 1000 0 0 0 0\n", **process(10, cpu=100)}
    after = {"/proc/stat": "cpu 700 0 100 1500 200 0 50 100\n", **process(10, cpu=400)}
    sampler = UsageSampler(10, files=make_system(tmp_path, before))
    sampler.sample()
    make_system(tmp_path, after)
    now[0] += 4 * 10**9
    sampler.sample()

    system = sampler.system()

    others_s = (750 - 300) / os.sysconf("SC_CLK_TCK")
    assert system == {"seconds": 4.0, "others_cores": pytest.approx(others_s / 4, abs=0.001)}


@pytest.mark.parametrize("content", ["", "cpu 1 2\n", "intr 1 2 3 4 5\n"])
def test_a_machine_without_counters_says_nothing_of_other_programs(tmp_path: Path, content: str) -> None:
    """Nothing raises."""
    sampler = UsageSampler(10, files=make_system(tmp_path, {"/proc/10/stat": stat(10), "/proc/stat": content}))
    sampler.sample()

    assert "others_cores" not in sampler.system()


def test_nothing_is_known_before_the_first_sample() -> None:
    """A sampler that was not started has an empty answer."""
    sampler = UsageSampler()

    assert (sampler.result(), sampler.system()) == ([], {})


def test_a_costly_sample_lengthens_the_period() -> None:
    """Ten milliseconds of work at a part of 0.1 of a core: one call in a tenth of a second, whatever the period is."""
    begun: list[float] = []
    calls: list[float] = []
    called = threading.Event()

    def work() -> None:
        begun.append(time.monotonic())
        end = time.thread_time_ns() + 10_000_000
        while time.thread_time_ns() < end:
            pass
        calls.append(time.monotonic())
        if len(calls) == 5:
            called.set()

    thread = SamplingThread(work, period_s=0.001, most_share=0.1)
    thread.start()
    assert called.wait(60), "the thread did not call 5 times"
    thread.stop()

    assert all(again - ended >= 0.09 for ended, again in zip(calls[1:4], begun[2:5], strict=True))
    assert thread.samples == len(calls) - 2
    assert thread.cpu_ns >= 10_000_000 * thread.samples


def test_stopping_twice_changes_nothing() -> None:
    """The last sample is taken once."""
    calls: list[int] = []
    thread = SamplingThread(lambda: calls.append(1), period_s=100).start()

    thread.stop()
    thread.stop()

    assert len(calls) == 2


def test_a_paused_sampler_has_no_thread_and_goes_on() -> None:
    """A process that forks should have no threads; what was counted before stays."""
    before = set(threading.enumerate())
    sampler = UsageSampler(period_s=100).start()
    running = set(threading.enumerate()) - before
    first = sampler.result()[0]
    sampler.pause()
    paused = set(threading.enumerate()) - before
    sampler.start()
    resumed = set(threading.enumerate()) - before
    sampler.stop()

    assert {thread.name for thread in running} == {"penstock-usage"}
    assert paused == set()
    assert len(resumed) == 1
    assert sampler.result()[0].wall_ns > first.wall_ns
    system: Any = sampler.system()
    assert system["seconds"] > 0
