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
from penstock.doctor.machine.system_counters import SystemCounters
from penstock.doctor.machine.usage import UsageSampler
from penstock.system.control_group import find_control_group
from penstock.system.system_files import SystemFiles
from tests.doctor.fake_system import make_system


def stat(
    pid: int, *, parent: int = 1, cpu: int = 0, began: int = 0, major: int = 0, minor: int = 0, threads: int = 1
) -> str:
    """A line of /proc/PID/stat; the name has a space, a bracket and a line break, as it may have."""
    fields = ["S", parent, 0, 0, 0, 0, 0, minor, 0, major, 0, cpu - cpu // 3, cpu // 3, 0, 0, 20, 0, threads, 0, began]
    return f"{pid} (a) b\n(x) {' '.join(map(str, fields))} 9 9 9\n"


def process(pid: int, **counters: int) -> dict[str, str]:
    """The files of a process; those of ``counters`` that are not of ``stat`` have files of their own."""
    folder = f"/proc/{pid}"
    files = {
        f"{folder}/io": f"rchar: {counters.pop('rchar', 0)}\nread_bytes: {counters.pop('read_bytes', 0)}\n",
        f"{folder}/task/{pid}/schedstat": f"1 {counters.pop('delay', 0)} 3\n",
        f"{folder}/smaps_rollup": f"Rss: 9 kB\nPss: {counters.pop('pss', 0)} kB\n",
        f"{folder}/task/{pid}/children": "",
    }
    files |= {f"{folder}/fd/{number}": "" for number in range(counters.pop("files", 0))}
    return {**files, f"{folder}/stat": stat(pid, **counters)}


TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def test_each_counter_is_what_was_added_while_watching(tmp_path: Path) -> None:
    """What a process had used before is left out; of threads, files and memory the most at one time is told."""
    before = process(10, cpu=100, major=1, minor=5, threads=2, rchar=1000, read_bytes=500, delay=70, files=3, pss=8)
    after = process(10, cpu=160, major=4, minor=50, threads=9, rchar=4000, read_bytes=700, delay=90, files=5, pss=6)
    sampler = UsageSampler(10, files=make_system(tmp_path, {"/proc/uptime": "500.0 1.0\n", **before}))
    sampler.sample()
    sampler.sample_memory()
    make_system(tmp_path, after)
    sampler.sample()
    sampler.sample_memory()

    (usage,) = sampler.result()

    assert usage.wall_ns > 0
    assert replace(usage, wall_ns=0) == replace(
        usage, role="main", pid=10, cpu_ns=60 * TICK_NS, wall_ns=0, threads=9, pss_bytes=8192, major_faults=3,
        minor_faults=45, read_bytes=200, read_calls_bytes=3000, descriptors=5, waiting_for_cpu_ns=20,
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
    contents |= process(11, began=500 * ticks + 5, cpu=40, minor=7)
    contents |= process(12, began=100 * ticks, cpu=40, minor=7)
    make_system(tmp_path, {**contents, "/proc/10/task/10/children": "11 12"})
    sampler.sample()

    used = {usage.pid: (usage.cpu_ns, usage.minor_faults) for usage in sampler.result()}

    assert used == {10: (0, 0), 11: (40 * TICK_NS, 7), 12: (0, 0)}


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
    make_system(tmp_path, process(10, rchar=900, threads=4, files=2))
    sampler.sample()
    for name in ("io", "task/10/schedstat", "smaps_rollup"):
        (tmp_path / "proc/10" / name).unlink()
    make_system(tmp_path, {"/proc/10/stat": stat(10, cpu=50, threads=1)})
    sampler.sample()

    (usage,) = sampler.result()

    assert (usage.read_calls_bytes, usage.threads, usage.descriptors, usage.cpu_ns) == (800, 4, 2, 50 * TICK_NS)
    assert usage.waiting_for_cpu_ns == 0


@pytest.mark.parametrize("content", ["", "10 (x", "10 (x) S a b", "10 (x) S" + " x" * 30, "\xff"])
def test_a_process_whose_file_says_nothing_is_none(tmp_path: Path, content: str) -> None:
    """It may end at any moment."""
    assert read_counters(make_system(tmp_path, {"/proc/10/stat": content}), 10) is None


def test_real_processes_are_watched() -> None:
    """The test's own process and a child that computes, on the machine of the test."""
    program = "import time\nx = bytearray(30 << 20)\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
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
    assert usage[child.pid].minor_faults > 30 * 256 / 16  # pages may be larger
    assert (usage[os.getpid()].role, usage[child.pid].role) == ("main", "other")
    assert usage[os.getpid()].threads >= 2
    assert usage[os.getpid()].descriptors > 2
    assert system["watched_cores"] > 0
    assert system["samples"] >= 1
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


def test_the_memory_of_processes_is_read_in_turns(tmp_path: Path) -> None:
    """One in each call; when watching ends, of all that live."""
    contents = {"/proc/uptime": "5.0\n", **process(10, pss=10), **process(11, pss=11), **process(12, pss=12)}
    contents["/proc/10/task/10/children"] = "11 12"
    sampler = UsageSampler(10, files=make_system(tmp_path, contents))
    sampler.sample()
    sampler.sample_memory()
    sampler.sample_memory()
    known = [usage.pss_bytes for usage in sampler.result()]
    sampler.stop()

    assert sorted(known) == [-1, 10 * 1024, 11 * 1024]
    assert [usage.pss_bytes // 1024 for usage in sampler.result()] == [10, 11, 12]


V2 = {
    "/sys/fs/cgroup/cgroup.controllers": "cpu\n",
    "/proc/10/cgroup": "0::/\n",
    "/sys/block/sda/size": "1",
    "/sys/block/dm-0/size": "1",
    "/proc/10/stat": stat(10),
}


def machine(times: str, *, throttled: int, read: int, cached: int, refaults: int) -> dict[str, str]:
    """Counters of a machine: ticks of /proc/stat, then what grew."""
    disk = f"8 0 {{}} 10 0 {read} 0 0 0 {read * 2} 0 0 {read} 0\n"
    return {
        "/proc/stat": f"cpu {times}\n",
        "/sys/fs/cgroup/cpu.stat": f"nr_periods 10\nnr_throttled {throttled}\nthrottled_usec {throttled * 1000}\n",
        "/proc/diskstats": "".join(disk.format(name) for name in ("sda", "sda1", "dm-0", "loop0")),
        "/proc/meminfo": f"Cached: {cached} kB\n",
        "/proc/vmstat": f"workingset_refault_file {refaults}\npswpin 0\n",
    }


def test_the_machine_is_compared_with_itself(tmp_path: Path) -> None:
    """Throttling, disks and page cache are differences; other programs are what is left of the cores."""
    first = machine("100 0 0 1000 0 0 0 0", throttled=1, read=1000, cached=50, refaults=5)
    second = machine("700 0 100 1500 200 0 0 100", throttled=4, read=3000, cached=80, refaults=9)
    files = make_system(tmp_path, {**V2, **first})
    group = find_control_group(files)
    before = SystemCounters.read(files, group)
    make_system(tmp_path, second)
    after = replace(SystemCounters.read(files, group), now_ns=before.now_ns + 4_000_000_000)

    found = after.since(before, watched_s=3.0)

    hertz = os.sysconf("SC_CLK_TCK")
    assert found["busy_cores"] == pytest.approx(700 / hertz / 4)
    assert found["others_cores"] == pytest.approx(700 / hertz / 4 - 0.75)
    assert found["stolen"] == round(100 / 1500, 4)
    assert found["waiting_for_disk"] == round(200 / 1500, 4)
    assert (found["periods"], found["throttled_periods"], found["throttled_s"]) == (0, 3, 0.003)
    assert found["disks"] == {"sda": {"read_bytes": 2000 * 512, "written_bytes": 4000 * 512, "busy": 0.5}}
    assert (found["page_cache_bytes"], found["page_cache_grown_bytes"]) == (80 * 1024, 30 * 1024)
    assert found["refaulted_bytes"] == 4 * os.sysconf("SC_PAGE_SIZE")


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    """None for what is unknown; nothing raises."""
    files = make_system(tmp_path, {"/proc/10/stat": stat(10)})
    sampler = UsageSampler(10, files=files)
    sampler.sample()
    sampler.sample()

    system = sampler.system()

    assert system["others_cores"] is system["stolen"] is None
    assert system["disks"] == {}


def test_nothing_is_known_before_the_first_sample() -> None:
    """A sampler that was not started has an empty answer."""
    sampler = UsageSampler()

    assert (sampler.result(), sampler.system()) == ([], {})


def test_a_costly_sample_lengthens_the_period() -> None:
    """Ten milliseconds of work at a part of 0.1 of a core: one call in a tenth of a second, whatever the period is."""
    calls: list[float] = []
    due: list[tuple[float, float]] = []
    called = threading.Event()

    def work() -> None:
        due.append((time.monotonic(), thread._due_s or 0.0))
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

    assert all(begun >= due_s for begun, due_s in due[1:5])
    assert all(due_s >= ended + 0.1 for ended, (_, due_s) in zip(calls[1:4], due[2:5], strict=True))
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

    assert {thread.name for thread in running} == {"penstock-usage", "penstock-memory"}
    assert paused == set()
    assert len(resumed) == 2
    assert sampler.result()[0].wall_ns > first.wall_ns
    system: Any = sampler.system()
    assert system["seconds"] > 0
