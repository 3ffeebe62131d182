"""compare(): why the same script is slower on another machine, in words."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.doctor.machine.machine import describe_machine
from penstock.doctor.reports.comparing import compare

FAST: dict[str, Any] = {
    "verdict": {"stage": "decode", "text": ""},
    "waiting": 0.5,
    "samples_per_s": {"delivered": 400.0, "trainer": 800.0, "loader": 410.0},
    "stages": {
        "read": {"us_per_sample": 100.0, "share": 0.1}, "decode": {"us_per_sample": 600.0, "share": 0.6},
        "augment": {"us_per_sample": 200.0, "share": 0.2}, "collate": {"us_per_sample": 50.0, "share": 0.05},
        "transport": {"us_per_sample": 50.0, "share": 0.05}, "step": {"us_per_sample": 1250.0, "share": 0.0},
    },
    "settings": {"library": "torch", "num_workers": 3, "batch_size": 32},
    "command": ["train.py"],
    "device": {"name": "Fast GPU"},
    "machine": {
        "processor": {"model": "Fast CPU", "usable": 8, "online": 8, "governor": "performance"},
        "speed": {"python_loops_per_us": 20.0, "compressed_mb_per_s": 80.0, "memory_gb_per_s": 16.0},
        "control_group": {"quota_cores": None},
        "load": {"others_cores": 0.1, "stolen": 0.0},
        "watched": {
            "others_cores": 0.1, "stolen": 0.0, "periods": 100, "throttled_periods": 0, "swapped_in_bytes": 0,
            "refaulted_bytes": 0, "pressure": {"cpu.some": 0.0, "io.some": 0.0},
        },
        "memory": {"usable_bytes": 64_000_000_000},
        "disks": [{"kind": "disk", "is_rotational": False, "file_system": "ext4"}],
        "versions": {"python": "3.11.7", "pillow": "11.0"},
        "threads": {"environment": {}, "torch": 8},
    },
}  # fmt: skip


def change(run: dict[str, Any], path: str, value: Any) -> None:
    """Set one value of a result; names are separated by slashes."""
    *folders, name = path.split("/")
    for folder in folders:
        run = run[folder]
    run[name] = value


def make_slow(changes: dict[str, Any]) -> dict[str, Any]:
    """The same result at a quarter of the speed, with some values changed; stages by factors."""
    slow = copy.deepcopy(FAST)
    slow["samples_per_s"]["delivered"] = 100.0
    for path, value in changes.items():
        if path.startswith("stages/"):
            slow["stages"][path.removeprefix("stages/")]["us_per_sample"] *= value
        else:
            change(slow, path, value)
    return slow


CAUSES = [
    ({"machine/speed/python_loops_per_us": 10.0, "machine/speed/compressed_mb_per_s": 40.0},
     "A core of B is 2.0 times slower (B: Fast CPU, A: Fast CPU)."),
    ({"machine/processor/usable": 2, "machine/control_group/quota_cores": 1.5},
     "B may use 2 cores (quota 1.5), A 8 cores; the script with its workers is 4 processes."),
    ({"machine/processor/usable": 1}, "B may use 1 core of 8 (affinity), A 8 cores; the script with its workers is 4"),
    ({"machine/watched/throttled_periods": 60}, "The quota of B's control group held the script back in 60% of"),
    ({"machine/watched/others_cores": 6.0}, "Other programs keep 6.0 of B's 8 cores busy; on A 0.1."),
    ({"machine/watched": None, "machine/load/others_cores": 6.0},
     "Other programs keep 6.0 of B's 8 cores busy; on A 0.1."),
    ({"machine/watched/stolen": 0.3}, "The hypervisor of B gave 30% of its processor time to other machines."),
    ({"machine/speed/memory_gb_per_s": 4.0}, "B copies memory 4.0 times slower."),
    ({"machine/watched/swapped_in_bytes": 5_000_000}, "B read 5 MB from swap: its memory is too small."),
    ({"machine/watched/refaulted_bytes": 8_000_000_000, "machine/memory/usable_bytes": 4_000_000_000},
     "B read 8.0 GB again that its page cache had dropped (4.0 GB of memory): the files do not fit."),
    ({"machine/watched/pressure": {"io.some": 0.8}}, "On B programs waited for the disk 80% of the time."),
    ({"machine/watched/pressure": {"cpu.some": 0.8}}, "On B programs waited for a core 80% of the time, on A 0%."),
    ({"stages/read": 50, "machine/disks": [{"kind": "network", "file_system": "nfs4"}]},
     "The files are on a network file system (nfs4) on B, and on a solid disk (ext4) on A."),
    ({"stages/decode": 3.0}, "Decode costs 1,800 us a sample on B, and 600 on A (3.0 times)."),
    ({"samples_per_s/trainer": 100.0, "verdict/stage": "step", "device/name": "Old GPU"},
     "Without its loader, the trainer of B is 8.0 times slower (Old GPU, and Fast GPU)."),
    ({"device/throttled": {"heat": 0.5}}, "The device of B was slowed down because of heat 50% of the time."),
    ({"settings/num_workers": 1}, "The loaders differ: num_workers is 3 on A and 1 on B."),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), CAUSES)
@pytest.mark.parametrize("is_first", [False, True])
def test_the_cause_is_named_first(changes: dict[str, Any], expected: str, is_first: bool) -> None:
    """One difference at a time, in either order of the files."""
    slow = make_slow(changes)

    text = compare(slow, FAST, ("B", "A")) if is_first else compare(FAST, slow)

    lines = text.splitlines()
    assert lines[0].startswith("B is 4.0 times slower: A takes 400 samples/s, B 100")
    first = next(line for line in lines if line.startswith("1. "))
    assert expected in (first if "disks" not in str(changes) else text)
    assert ("2. " in text) == ("disks" in str(changes))


def test_what_the_core_explains_is_no_cause_of_its_own() -> None:
    """Each stage that computes is twice as slow on half as fast a core: the core is the one cause."""
    half = {"machine/speed/python_loops_per_us": 10.0, "machine/speed/compressed_mb_per_s": 40.0}

    text = compare(FAST, make_slow({**half, "stages/decode": 2.0, "stages/augment": 2.0, "stages/collate": 2.0}))

    assert "1. A core of B is 2.0 times slower" in text
    assert "2. " not in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("decode ")]
    assert row == ["decode", "600.0", "us", "1,200.0", "us", "2.00", "1.00"]


def test_what_is_left_of_a_stage_is_told_apart() -> None:
    """A stage is three times as slow, and the core half as fast."""
    half = {"machine/speed/python_loops_per_us": 10.0, "machine/speed/compressed_mb_per_s": 40.0}

    text = compare(FAST, make_slow({**half, "stages/decode": 3.0}))

    assert (
        "Decode costs 1,800 us a sample on B, and 600 on A (3.0 times), of which its core explains 2.0 times." in text
    )


def test_equal_speeds_are_called_equal() -> None:
    """Less than a tenth of difference; what differs of the machines is told nevertheless."""
    other = copy.deepcopy(FAST)
    other["samples_per_s"]["delivered"] = 380.0
    other["machine"]["versions"]["pillow"] = "12.0"
    other["machine"]["threads"]["environment"] = {"OMP_NUM_THREADS": "1"}
    other["machine"]["threads"]["torch"] = 1

    text = compare(FAST, other, ("office", "cluster"))

    assert text.startswith("Both are equally fast: office takes 400 samples/s, cluster 380.")
    assert "Nothing that was measured on both machines explains a difference." in text
    assert "- pillow: 12.0 on cluster, 11.0 on office" in text
    assert "- OMP_NUM_THREADS: 1 on cluster, not set on office" in text
    assert "- threads of torch: 1 on cluster, 8 on office" in text


def test_a_run_without_batches_is_said_to_be_one() -> None:
    """The script ended before it took one."""
    text = compare(FAST, {"samples_per_s": {"delivered": 0.0}})

    assert text.startswith("The speed of B is unknown")


def test_the_description_of_a_machine_has_the_names_that_are_compared() -> None:
    """Every field of `machine` that the comparison reads is one that describe_machine() gives, but `watched`."""
    machine = describe_machine(["/"])

    missing = [
        f"{group}/{name}"
        for group in ("processor", "speed", "control_group", "load", "memory")
        for name in FAST["machine"][group]
        if name not in machine[group]
    ]

    assert missing == []
    assert set(FAST["machine"]) - {"watched"} <= set(machine)
    assert set(FAST["machine"]["disks"][0]) <= set(machine["disks"][0])
    assert "environment" in machine["threads"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)

PATHS = [
    path
    for top, value in FAST.items()
    for path in ([f"{top}/{name}" for name in value] if isinstance(value, dict) else [top])
] + [
    f"machine/{group}/{name}"
    for group in ("processor", "speed", "watched", "threads")
    for name in FAST["machine"][group]
]


@given(changes=st.dictionaries(st.sampled_from(PATHS), VALUES, max_size=4))
def test_any_value_in_a_file_gives_text(changes: dict[str, Any]) -> None:
    """A file of another version, or one that somebody wrote: nothing raises."""
    other = copy.deepcopy(FAST)
    for path, value in sorted(changes.items(), key=lambda item: -item[0].count("/")):
        change(other, path, value)

    assert compare(FAST, other)
    assert compare(other, FAST)
    assert compare(json.loads(json.dumps(FAST)), FAST)
