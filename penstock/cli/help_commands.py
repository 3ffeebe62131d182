"""The command ``explain`` prints the page of an error, and ``env`` what a report of a fault needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from penstock.cli.app import app
from penstock.cli.arguments import JsonOption
from penstock.cli.printing import print_json, print_line
from penstock.wording import counted, format_bytes

__all__ = ["env", "explain"]


@app.command()
def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="What the last line of an error or a finding names, such as `corrupt-record`, or the class of an "
            "error, such as `CorruptRecordError`. Without it, all pages are listed.",
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Explain an error, a finding of the doctor or what limits a training: what it means, and how to mend it.

    Nothing is read from the network.
    """
    from penstock.explain import find_page, list_pages, read_page

    if name is None:
        groups = list_pages()
        if as_json:
            print_json(groups)
            return
        widest = max(len(each) for pages in groups.values() for each in pages)
        for group, pages in groups.items():
            print_line(group)
            for each, about in pages.items():
                print_line(f"  {each:<{widest}}  {about}")
        return
    page = find_page(name)
    text = read_page(page)
    if as_json:
        print_json({"name": page, "text": text})
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text, code_theme="ansi_dark"))
    else:
        print(text, end="")


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
