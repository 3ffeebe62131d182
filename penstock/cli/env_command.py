"""The command ``env``, which prints what a report of a fault needs to know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.cli.app import app
from penstock.cli.arguments import JsonOption
from penstock.cli.printing import print_json, print_line
from penstock.wording import counted, format_bytes

__all__ = ["env"]


@app.command()
def env(*, as_json: JsonOption = False) -> None:
    """Print versions, processor, memory and limits as one block, to paste into a report of a fault.

    It has no paths, no names of users or hosts, and no values of variables. torch is not imported.
    """
    from penstock.doctor.machine.environment import describe_environment

    found = describe_environment()
    if as_json:
        print_json(found)
        return
    rows = [(name, text) for name, text in _list_rows(found) if text]
    widest = max(len(name) for name, _ in rows)
    for name, text in rows:
        print_line(f"{name:<{widest}}  {text}")


def _list_rows(found: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    versions, python, system = dict(found["versions"]), found["python"], found["system"]
    processor, memory = found["processor"], found["memory"]
    yield "penstock", str(versions.pop("penstock"))
    threads = "with a GIL" if python["has_gil"] else "free-threaded"
    method = f"starts processes by {python['start_method']}"
    yield "Python", f"{versions.pop('python')}, {python['implementation']}, {threads}, {method}"
    yield "system", ", ".join(str(system[name]) for name in ("name", "kernel", "libc") if system[name])
    features = processor["features"]
    native = " ".join(features) if isinstance(features, list) and features else "portable code"
    yield "processor", f"{processor['model'] or 'unknown'}, {processor['architecture']}"
    yield "native", native
    quota = processor["quota_cores"]
    limits = "no quota" if quota is None else f"a quota of {quota:g}"
    online, affinity = counted(_number(processor["online"]), "core"), _number(processor["affinity"])
    yield "cores", f"{online}, {affinity} for this process, {limits}"
    limit = memory["limit_bytes"]
    group = "no limit" if limit is None else f"a limit of {_size(limit)}"
    yield "memory", f"{_size(memory['total_bytes'])}, {_size(memory['available_bytes'])} available, {group}"
    yield "shm", f"{_size(memory['shm_bytes'])}, {_size(memory['shm_free_bytes'])} free"
    cuda = [f"torch is built for {system['cuda']}"] if system["cuda"] else []
    cuda += [f"driver {system['nvidia_driver']}"] if system["nvidia_driver"] else []
    yield "CUDA", ", ".join(cuda)
    for name, version in versions.items():
        yield name, str(version)
    absent = found["absent"]["packages"]
    yield "absent", ", ".join(absent) if isinstance(absent, list) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int) else "unknown"
