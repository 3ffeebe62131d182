"""Why the same script is slower on another machine: two results of ``penstock doctor --json`` are compared.

::

    speed of both -> stage by stage, without what the core explains -> causes, the strongest first -> what else differs

Any field may be missing: a cause is named only where both results have its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["compare"]

_STAGES: Final = ("read", "decode", "augment", "collate", "transport", "copy", "step")
_BY_CORE: Final = frozenset({"decode", "augment", "collate"})
_BY_MEMORY: Final = frozenset({"transport", "copy"})
_SETTINGS: Final = (
    "library", "workers", "num_workers", "prefetch_factor", "batch_size", "pin_memory", "persistent_workers",
    "in_order", "start_method", "dataset", "length",
)  # fmt: skip
_EQUAL: Final = 1.1
"""Speeds whose ratio is smaller are called equal; smaller differences come and go with other load."""


def compare(a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str] = ("A", "B")) -> str:
    """Say in words why one run of a script is slower than another.

    Parameters
    ----------
    a, b : mapping
        Results of ``penstock doctor --json`` of the same script on two machines.
    names : tuple of str
        What to call them.

    Returns
    -------
    str
        Lines of text: the speeds, the causes with the strongest first, a table of stages, and what else differs.
    """
    speeds = [_number(run, "samples_per_s", "delivered") or 0.0 for run in (a, b)]
    fast, slow = (
        (_Run(names[0], a), _Run(names[1], b)) if speeds[0] >= speeds[1] else (_Run(names[1], b), _Run(names[0], a))
    )
    lines = [_compare_speeds(fast, slow)]
    causes = sorted(_find_causes(fast, slow), key=lambda cause: -cause.factor)
    if causes:
        lines += ["", *(f"{number}. {cause.text}" for number, cause in enumerate(causes, 1))]
    else:
        lines += ["", "Nothing that was measured on both machines explains a difference."]
    table = list(_list_stages(fast, slow))
    if table:
        heading = f"{'stage':<11}{fast.name[:12]:>14}{slow.name[:12]:>14}{'ratio':>9}{'without the machine':>22}"
        lines += ["", heading, *table]
    others = list(_list_differences(fast, slow))
    if others:
        lines += ["", "Also different:", *(f"- {text}" for text in others)]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Run:
    name: str
    result: Mapping[str, Any]

    def number(self, *path: str) -> float | None:
        return _number(self.result, *path)

    def text(self, *path: str) -> str:
        value = _find(self.result, *path)
        return "unknown" if value is None else str(value)

    @property
    def core_speed(self) -> float | None:
        """Of Python and of native code, as one number."""
        speeds = [self.number("machine", "speed", name) for name in ("python_loops_per_us", "compressed_mb_per_s")]
        known = [speed for speed in speeds if speed]
        return math.prod(known) ** (1 / len(known)) if known else None

    @property
    def others_cores(self) -> float | None:
        """Cores that other programs kept busy: while the script ran, if that is known."""
        watched = self.number("machine", "watched", "others_cores")
        return self.number("machine", "load", "others_cores") if watched is None else watched


@dataclass(frozen=True, slots=True)
class _Cause:
    factor: float  # how much slower it makes the script, as far as can be told: only for the order
    text: str


def _compare_speeds(fast: _Run, slow: _Run) -> str:
    high, low = (run.number("samples_per_s", "delivered") for run in (fast, slow))
    if not high or not low:
        return f"The speed of {slow.name if high else 'both'} is unknown: the script took no batch that was measured."
    speeds = f"{fast.name} takes {high:,.0f} samples/s, {slow.name} {low:,.0f}"
    if high / low < _EQUAL:
        return f"Both are equally fast: {speeds}."
    stage = slow.text("verdict", "stage")
    limit = {"step": "its trainer limits it", "none": "nothing limits it that could be changed"}.get(
        stage, f"{stage} limits it"
    )
    waiting = (
        f", which waits {slow.number('waiting') or 0.0:.0%} of the time" if slow.number("waiting") is not None else ""
    )
    return f"{slow.name} is {_times(high / low)} slower: {speeds}{waiting}; {limit}."


def _find_causes(fast: _Run, slow: _Run) -> Iterator[_Cause]:
    yield from _compare_settings(fast, slow)
    yield from _compare_processors(fast, slow)
    yield from _compare_load(fast, slow)
    yield from _compare_memory(fast, slow)
    yield from _compare_reading(fast, slow)
    yield from _compare_stages(fast, slow)
    yield from _compare_devices(fast, slow)


def _compare_settings(fast: _Run, slow: _Run) -> Iterator[_Cause]:
    for name in _SETTINGS:
        values = [_find(run.result, "settings", name) for run in (fast, slow)]
        if values[0] != values[1] and None not in values:
            text = f"The loaders differ: {name} is {values[0]} on {fast.name} and {values[1]} on {slow.name}."
            workers = _ratio(*(run.number("settings", "num_workers") for run in (fast, slow)))
            yield _Cause(max(1.5, min(4.0, workers)) if name == "num_workers" else 1.5, text)


def _compare_processors(fast: _Run, slow: _Run) -> Iterator[_Cause]:
    ratio = _ratio(fast.core_speed, slow.core_speed)
    if ratio >= _EQUAL:
        models = (
            f"{slow.text('machine', 'processor', 'model')}, {fast.name}: {fast.text('machine', 'processor', 'model')}"
        )
        yield _Cause(
            ratio, f"A core of {slow.name} is {_times(ratio)} slower ({slow.name}: {models}).{_governor(slow)}"
        )
    cores = [run.number("machine", "processor", "usable") for run in (fast, slow)]
    if cores[0] and cores[1] and cores[1] < cores[0]:
        needed = 1 + (slow.number("settings", "num_workers") or 0)
        part = f"{slow.name} may use {_cores(cores[1])}{_limits(slow)}, {fast.name} {_cores(cores[0])}{_limits(fast)}"
        if cores[1] < needed:
            processes = f"the script with its workers is {needed:.0f} processes"
            yield _Cause(min(cores[0], needed) / cores[1], f"{part}; {processes}.")
        elif cores[0] / cores[1] >= 2:
            yield _Cause(1.05, f"{part}.")
    throttled, periods = (slow.number("machine", "watched", name) for name in ("throttled_periods", "periods"))
    if throttled and periods and throttled / periods > 0.05:
        share = throttled / periods
        yield _Cause(
            1 + share, f"The quota of {slow.name}'s control group held the script back in {share:.0%} of the periods."
        )


def _governor(run: _Run) -> str:
    governor = _find(run.result, "machine", "processor", "governor")
    is_slow = isinstance(governor, str) and governor in {"powersave", "conservative"}
    return f" Its frequency governor is {governor}." if is_slow else ""


def _limits(run: _Run) -> str:
    quota, online = run.number("machine", "control_group", "quota_cores"), run.number("machine", "processor", "online")
    if quota is not None:
        return f" (quota {quota:g})"
    usable = run.number("machine", "processor", "usable")
    return f" of {online:.0f} (affinity)" if online and usable and usable < online else ""


def _compare_load(fast: _Run, slow: _Run) -> Iterator[_Cause]:
    others, before = slow.others_cores, fast.others_cores
    cores = slow.number("machine", "processor", "online")  # of all: others are not bound by the script's own limits
    if others is not None and cores and others - (before or 0.0) > 0.1 * cores:
        left = max(0.25, 1 - others / cores)
        elsewhere = f"on {fast.name} {before or 0.0:.1f}"
        yield _Cause(1 / left, f"Other programs keep {others:.1f} of {slow.name}'s {_cores(cores)} busy; {elsewhere}.")
    stolen = slow.number("machine", "watched", "stolen")
    stolen = slow.number("machine", "load", "stolen") if stolen is None else stolen
    if stolen is not None and stolen > 0.02:
        yield _Cause(
            1 + stolen, f"The hypervisor of {slow.name} gave {stolen:.0%} of its processor time to other machines."
        )
    pressure = [run.number("machine", "watched", "pressure", "cpu.some") for run in (fast, slow)]
    if None not in pressure and (pressure[1] or 0) > (pressure[0] or 0) + 0.2:
        elsewhere = f"on {fast.name} {pressure[0]:.0%}"
        yield _Cause(1.1, f"On {slow.name} programs waited for a core {pressure[1]:.0%} of the time, {elsewhere}.")


def _compare_memory(fast: _Run, slow: _Run) -> Iterator[_Cause]:
    ratio = _ratio(*(run.number("machine", "speed", "memory_gb_per_s") for run in (fast, slow)))
    if ratio >= 1.3:
        yield _Cause(1 + (ratio - 1) / 4, f"{slow.name} copies memory {_times(ratio)} slower.")
    swapped = slow.number("machine", "watched", "swapped_in_bytes")
    if swapped and swapped > 1 << 20:
        yield _Cause(2.0, f"{slow.name} read {_bytes(swapped)} from swap: its memory is too small.")
    refaulted = [run.number("machine", "watched", "refaulted_bytes") or 0 for run in (fast, slow)]
    if refaulted[1] > 1 << 24 and refaulted[1] > 2 * refaulted[0]:
        size = slow.number("machine", "memory", "usable_bytes")
        of = f" ({_bytes(size)} of memory)" if size else ""
        text = (
            f"{slow.name} read {_bytes(refaulted[1])} again that its page cache had dropped{of}: the files do not fit."
        )
        yield _Cause(1.5, text)


def _compare_reading(fast: _Run, slow: _Run) -> Iterator[_Cause]:
    ratio = _ratio(*(run.number("stages", "read", "us_per_sample") for run in (slow, fast)))
    share = slow.number("stages", "read", "share") or 0.0
    waits = [run.number("machine", "watched", "pressure", "io.some") for run in (fast, slow)]
    if None not in waits and (waits[1] or 0) > (waits[0] or 0) + 0.1:
        yield _Cause(1 + (waits[1] or 0), f"On {slow.name} programs waited for the disk {waits[1]:.0%} of the time.")
    disks = [_describe_disks(run) for run in (fast, slow)]
    if ratio >= 1.3 and share >= 0.05 and disks[0] != disks[1] and all(disks):
        yield _Cause(
            1 + (ratio - 1) * share, f"The files are on {disks[1]} on {slow.name}, and on {disks[0]} on {fast.name}."
        )


def _describe_disks(run: _Run) -> str:
    kinds = {"network": "a network file system", "fuse": "FUSE", "memory": "memory", "layers": "a container's layers"}
    found = []
    for disk in _list(run.result, "machine", "disks"):
        is_rotational = _find(disk, "is_rotational")
        text = "a rotating disk" if is_rotational is True else "a solid disk" if is_rotational is False else "a disk"
        found.append(f"{kinds.get(str(_find(disk, 'kind')), text)} ({_find(disk, 'file_system')})")
    return " and ".join(dict.fromkeys(found))


def _compare_stages(fast: _Run, slow: _Run) -> Iterator[_Cause]:
    for stage in _STAGES:
        high, low = (run.number("stages", stage, "us_per_sample") for run in (slow, fast))
        left = _without_machine(stage, fast, slow)
        share = slow.number("stages", stage, "share") or (1.0 if stage in {"copy", "step"} else 0.0)
        if not high or not low or left < 1.2 or share < 0.05 or high - low < 1:
            continue
        explained, by = high / low / left, "memory" if stage in _BY_MEMORY else "core"
        rest = f", of which its {by} explains {_times(explained)}" if explained > 1.05 else ""
        costs = f"{high:,.0f} us a sample on {slow.name}, and {low:,.0f} on {fast.name} ({_times(high / low)})"
        text = f"{_capital(stage)} costs {costs}{rest}."
        yield _Cause(1 + (left - 1) * share, text)


def _compare_devices(fast: _Run, slow: _Run) -> Iterator[_Cause]:
    ratio = _ratio(*(run.number("samples_per_s", "trainer") for run in (fast, slow)))
    devices = [_find(run.result, "device", "name") for run in (fast, slow)]
    if ratio >= _EQUAL:
        names = "" if devices[0] == devices[1] else f" ({devices[1] or 'no device'}, and {devices[0] or 'no device'})"
        limits = slow.text("verdict", "stage") == "step"
        text = f"Without its loader, the trainer of {slow.name} is {_times(ratio)} slower{names}."
        yield _Cause(ratio if limits else 1.02, text)
    for cause in ("heat", "power"):
        share = slow.number("device", "throttled", cause)
        if share and share > 0.1:
            yield _Cause(1.1, f"The device of {slow.name} was slowed down because of {cause} {share:.0%} of the time.")


def _list_stages(fast: _Run, slow: _Run) -> Iterator[str]:
    for stage in _STAGES:
        low, high = (run.number("stages", stage, "us_per_sample") for run in (fast, slow))
        if low and high:
            left = _without_machine(stage, fast, slow)
            yield f"{stage:<11}{low:>11,.1f} us{high:>11,.1f} us{high / low:>9.2f}{left:>22.2f}"


def _without_machine(stage: str, fast: _Run, slow: _Run) -> float:
    """How much slower a stage is, without what the speed of the core (or memory) explains."""
    ratio = _ratio(*(run.number("stages", stage, "us_per_sample") for run in (slow, fast)))
    if stage in _BY_CORE:
        return ratio / _ratio(fast.core_speed, slow.core_speed)
    if stage in _BY_MEMORY:
        return ratio / _ratio(*(run.number("machine", "speed", "memory_gb_per_s") for run in (fast, slow)))
    return ratio


def _list_differences(fast: _Run, slow: _Run) -> Iterator[str]:
    """Versions and settings of threads, which may matter or not."""
    for group, path in (("versions", ("machine", "versions")), ("threads", ("machine", "threads", "environment"))):
        values = [_mapping(run.result, *path) for run in (fast, slow)]
        for name in sorted({*values[0], *values[1]}):
            each = [value.get(name, "not set" if group == "threads" else "not installed") for value in values]
            if each[0] != each[1]:
                yield f"{name}: {each[1]} on {slow.name}, {each[0]} on {fast.name}"
    for module in ("torch", "cv2"):
        counts = [run.number("machine", "threads", module) for run in (fast, slow)]
        if None not in counts and counts[0] != counts[1]:
            yield f"threads of {module}: {counts[1]:.0f} on {slow.name}, {counts[0]:.0f} on {fast.name}"
    commands = [" ".join(map(str, _list(run.result, "command"))) for run in (fast, slow)]
    if commands[0] != commands[1]:
        yield f"the command: {commands[1]} on {slow.name}, {commands[0]} on {fast.name}"


def _find(result: object, *path: str) -> Any:
    for name in path:
        if not isinstance(result, Mapping):
            return None
        result = result.get(name)
    return result


def _number(result: Mapping[str, Any], *path: str) -> float | None:
    """A number of a result; None if it is something else, or below zero, which "not measured" is written as."""
    value = _find(result, *path)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < 1e300 else None


def _mapping(result: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    found = _find(result, *path)
    return found if isinstance(found, Mapping) else {}


def _list(result: Mapping[str, Any], *path: str) -> list[Any]:
    found = _find(result, *path)
    return found if isinstance(found, list) else []


def _ratio(a: float | None, b: float | None) -> float:
    """``a / b``; 1 if one of them is unknown or zero."""
    return a / b if a and b else 1.0


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times"


def _cores(count: float) -> str:
    return "1 core" if count == 1 else f"{count:g} cores"


def _bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
