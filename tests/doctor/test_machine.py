"""describe_machine(): what a machine gives, read from files of which any may be missing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.doctor.machine.disks import describe_disk, find_mount
from penstock.doctor.machine.machine import describe_machine
from penstock.system.control_group import count_usable_cores, find_control_group
from penstock.system.system_files import SystemFiles
from tests.doctor.fake_system import make_system

CPUINFO = """\
processor\t: 0
model name\t: Fast CPU @ 3 GHz
cpu MHz\t\t: 2900.000
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu avx2 hypervisor

processor\t: 1
model name\t: Fast CPU @ 3 GHz
cpu MHz\t\t: 3100.000
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu avx2 hypervisor
"""

MOUNTS = """\
22 27 0:21 / /proc rw - proc proc rw
27 1 8:2 / / rw,relatime - ext4 /dev/sda2 rw
28 27 0:40 / /data/with\\040space rw shared:5 - nfs4 user:secret@server:/export rw,vers=4
29 27 0:41 / /buckets rw - fuse.s3fs s3fs rw
30 27 0:42 / /archive rw - btrfs /dev/sdb1 rw
31 27 0:43 / /dev/shm rw - tmpfs tmpfs rw,size=64k
32 27 0:44 / /layers rw - overlay overlay rw,lowerdir=/a
33 27 0:45 / /archive/fast rw - tmpfs tmpfs rw
34 27 0:46 / /mnt/encrypted rw - fuse.gocryptfs /home/x rw
35 27 254:0 / /cloud rw - xfs /dev/vda rw
a line that is none
"""

WHOLE = {
    "/proc/cpuinfo": CPUINFO,
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3600000\n",
    "/proc/stat": "cpu  100 0 100 700 50 0 0 100 0 0\ncpu0 1 2 3 4\n",
    "/proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 600 kB\nCached: 300 kB\nBuffers: 10 kB\nShmem: 40 kB\n"
    "SwapTotal: 100 kB\nSwapFree: 25 kB\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "/proc/self/mountinfo": MOUNTS,
    "/sys/devices/pci/sda/queue/rotational": "1\n",
    "/sys/devices/pci/sda/queue/read_ahead_kb": "128\n",
    "/sys/devices/pci/sda/sda2/partition": "2\n",
    "/sys/dev/block/8:2": "-> /sys/devices/pci/sda/sda2",
    "/sys/block/sda": "-> /sys/devices/pci/sda",
    "/sys/devices/pci/sdb/queue/rotational": "0\n",
    "/sys/devices/pci/sdb/sdb1/partition": "1\n",
    "/sys/class/block/sdb1": "-> /sys/devices/pci/sdb/sdb1",
    "/sys/block/sdb": "-> /sys/devices/pci/sdb",
    "/sys/class/bdi/0:40/read_ahead_kb": "15360\n",
    "/sys/devices/virtio/vda/queue/rotational": "1\n",
    "/sys/dev/block/254:0": "-> /sys/devices/virtio/vda",
    "/sys/block/vda": "-> /sys/devices/virtio/vda",
    "/dev/shm/file": "x",
}


def test_this_machine_is_described_in_plain_values() -> None:
    """On the machine of the test: everything can be written as JSON, and agrees with what Python says."""
    machine = describe_machine([Path("/")])

    assert json.loads(json.dumps(machine)) == machine
    assert machine["processor"]["affinity"] == sorted(os.sched_getaffinity(0))
    assert 1 <= machine["processor"]["usable"] <= len(os.sched_getaffinity(0))
    assert machine["disks"][0]["path"] == "/"
    assert machine["disks"][0]["size_bytes"] > 0
    assert machine["memory"]["total_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_another_machine_is_described_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value comes from its file, in bytes, cores and parts of one."""
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("os.getloadavg", lambda: (3.5, 2.0, 1.0))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5, 0, 1, 2})
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("HOME_THREADS", "3")

    machine = describe_machine(files=make_system(tmp_path, WHOLE))

    assert machine["processor"] | {"architecture": "any"} == {
        "model": "Fast CPU @ 3 GHz", "architecture": "any", "online": 8, "affinity": [0, 1, 2, 5], "usable": 4,
    }  # fmt: skip
    assert machine["memory"] == {"total_bytes": 1_024_000, "usable_bytes": 1_024_000, "available_bytes": 614_400}
    assert machine["load"] == {"average_1_min": 3.5}
    assert machine["threads"]["environment"]["OMP_NUM_THREADS"] == "3"
    assert "HOME_THREADS" not in machine["threads"]["environment"]


def test_a_machine_without_such_files_is_described_too(tmp_path: Path) -> None:
    """What cannot be known is None, and nothing raises."""
    machine = describe_machine(["/nowhere"], files=make_system(tmp_path, {}))

    assert machine["processor"]["model"] is None
    assert machine["memory"]["usable_bytes"] is None
    assert machine["control_group"]["version"] == 0
    assert machine["disks"][0]["file_system"] is None
    json.dumps(machine)


@pytest.mark.parametrize("path", sorted(path for path in WHOLE if not WHOLE[path].startswith("->")))
@pytest.mark.parametrize("content", ["", "\x00\xff ::: - , -1 [", "max\nname\n: 1\n\n"])
def test_no_content_of_a_file_raises(tmp_path: Path, path: str, content: str) -> None:
    """Each file in turn is empty or holds something else."""
    system = make_system(tmp_path, {**WHOLE, path: content})

    machine = describe_machine(["/data", "/archive", "/cloud"], files=system)

    assert len(machine["disks"]) == 3


def test_the_smallest_limit_up_to_the_mount_counts(tmp_path: Path) -> None:
    """Version 2: a group's quota and memory may be limited by any group above it."""
    files = make_system(
        tmp_path,
        {
            "/sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "/proc/self/cgroup": "0::/user/job/step\n",
            "/sys/fs/cgroup/user/cpu.max": "150000 100000\n",
            "/sys/fs/cgroup/user/cpu.stat": "usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2000\n",
            "/sys/fs/cgroup/user/job/cpu.max": "max 100000\n",
            "/sys/fs/cgroup/user/job/step/cpu.max": "400000 100000\n",
            "/sys/fs/cgroup/user/job/step/memory.max": "max\n",
            "/sys/fs/cgroup/user/job/step/memory.current": "5000\n",
            "/sys/fs/cgroup/user/job/memory.high": "8000\n",
            "/sys/fs/cgroup/user/memory.max": "9000\n",
        },
    )

    group = find_control_group(files)

    assert group.describe() == {
        "version": 2, "quota_cores": 1.5, "memory_limit_bytes": 8000, "memory_used_bytes": 5000,
        "periods": 10, "throttled_periods": 4, "throttled_ns": 2_000_000,
    }  # fmt: skip


def test_a_container_of_version_1_sees_its_part_of_the_hierarchy(tmp_path: Path) -> None:
    """The mount's root is left out of the group's path, and a limit of almost all of 64 bits is none."""
    files = make_system(
        tmp_path,
        {
            "/proc/self/cgroup": "5:cpu,cpuacct:/docker/abc/job\n6:memory:/docker/abc\n0::/\n",
            "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "-1\n",
            "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 3\nnr_throttled 2\nthrottled_time 77\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes": "123\n",
            "/sys/fs/cgroup/cpu": "-> /sys/fs/cgroup/cpu,cpuacct",
        },
    )

    found = find_control_group(files).describe()

    assert (found["version"], found["quota_cores"], found["throttled_ns"]) == (1, 2.5, 77)
    assert (found["memory_limit_bytes"], found["memory_used_bytes"]) == (None, 123)


@pytest.mark.parametrize("path", ["/of/another/name/space", "/../../job"])
def test_a_path_of_another_name_space_means_the_mount(tmp_path: Path, path: str) -> None:
    """A container sees its group at the mount's root, whatever the path says."""
    system = {
        "/sys/fs/cgroup/cgroup.controllers": "cpu\n", "/proc/self/cgroup": f"0::{path}\n",
        "/sys/fs/cgroup/cpu.max": "50000 100000",
    }  # fmt: skip

    group = find_control_group(make_system(tmp_path, system))

    assert group.folders["cpu"] == ["/sys/fs/cgroup"]
    assert group.quota_cores() == 0.5


def test_the_disk_of_a_path_is_found(tmp_path: Path) -> None:
    """By the longest mount point: partitions belong to disks, network and FUSE have none, virtual disks do not say."""
    files = make_system(tmp_path, WHOLE)

    def find(path: str) -> tuple[Any, ...]:
        disk = describe_disk(files, path)
        return disk["mount"], disk["kind"], disk["device"], disk["is_rotational"]

    assert find("/usr/photos") == ("/", "disk", "sda", True)
    assert find("/data/with space/x") == ("/data/with space", "network", None, None)
    assert find("/buckets") == ("/buckets", "network", None, None)
    assert find("/archive/slow") == ("/archive", "disk", "sdb", False)
    assert find("/archive/fast/y") == ("/archive/fast", "memory", None, None)
    assert find("/archive/faster") == ("/archive", "disk", "sdb", False)
    assert find("/layers/z") == ("/layers", "layers", None, None)
    assert find("/mnt/encrypted/z") == ("/mnt/encrypted", "fuse", None, None)
    assert find("/cloud/z") == ("/cloud", "disk", "vda", None)


def test_no_password_of_a_server_is_shown(tmp_path: Path) -> None:
    """The source of a network file system may hold one."""
    line = "28 27 0:40 / /data rw - cifs //user:secret@server/share rw\n"
    files = make_system(tmp_path, {"/proc/self/mountinfo": line})

    disk = describe_disk(files, "/data/x")

    assert disk["source"] == "//server/share"


def test_a_newer_mount_hides_an_older_one(tmp_path: Path) -> None:
    """Of two mounts at one point the last counts."""
    lines = "1 0 8:1 / /d rw - ext4 /dev/a rw\n2 0 8:2 / /d rw - xfs /dev/b rw\n"
    files = make_system(tmp_path, {"/proc/self/mountinfo": lines})

    found = find_mount(files, "/d/x")

    assert found is not None
    assert found.file_system == "xfs"
    assert find_mount(files, "/dx") is None


@pytest.mark.parametrize(
    ("affinity", "quota", "usable"), [(8, "max", 8), (8, "200", 2), (8, "210", 3), (2, "1600", 2), (4, "30", 1)]
)
def test_usable_cores_are_those_of_affinity_and_quota(
    tmp_path: Path, affinity: int, quota: str, usable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota is rounded up, and at least one core is usable."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(affinity)))
    system = {"/sys/fs/cgroup/cgroup.controllers": "cpu\n", "/sys/fs/cgroup/cpu.max": f"{quota} 100\n"}

    assert count_usable_cores(make_system(tmp_path, system)) == usable


def test_files_are_read_whole_and_absent_ones_are_none(tmp_path: Path) -> None:
    """Longer than one read call; a folder, a missing file and a name with a zero byte are None."""
    long = "name 5 kB\n" * 5000
    files = make_system(tmp_path, {"/proc/long": long})

    assert files.read("/proc/long") == long.strip()
    assert files.read("/proc") is files.read("/proc/none") is files.read("/proc/\0") is None
    assert files.read_pairs("/proc/long") == {"name": 5120}
    assert SystemFiles().read("/proc/self/stat") is not None
