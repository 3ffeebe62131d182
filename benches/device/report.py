"""The tables of a session in Markdown, made of ``session.json`` alone: ``python -m benches.device report FILE``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["make_report", "write_report"]

Section = Callable[[dict[str, Any]], Iterator[str]]


def write_report(record: dict[str, Any], path: Path) -> None:
    """Write the tables to a file."""
    path.write_text(make_report(record))


def make_report(record: dict[str, Any]) -> str:
    """The tables: goals, stages, then each stage's figures."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: dict[str, Any]) -> Iterator[str]:
    figures = {name: stage.get("figures", {}) for name, stage in record["stages"].items()}
    device = figures.get("versions", {}).get("device", {})
    yield f"# {device.get('name', 'Rehearsal without a device' if record['rehearsed'] else 'No device')}"
    yield ""
    yield f"Measured {record['started'][:10]} by `benches/device_session.sh`."
    if record["rehearsed"]:
        yield "\n**A rehearsal: the kernels ran on the processor, with few images. No figure is one of a device.**"
    yield from _complete(_versions, figures.get("versions", {}))
    yield from ("", "## Goals", "", "| goal | wanted | found | reached |", "|---|---|---|---|")
    for goal in record["goals"]:
        reached = {True: "yes", False: "**no**", None: "-"}[goal["reached"]]
        yield f"| {goal['name']} | {goal['wanted']} | {goal['found']} | {reached} |"
    yield from ("", "## Stages", "", "| stage | state | seconds | |", "|---|---|---|---|")
    for name, stage in record["stages"].items():
        yield f"| {name} | {stage['state']} | {stage.get('seconds', '')} | {stage.get('reason', '')} |"
    for name, section in SECTIONS.items():
        yield from _complete(section, figures.get(name, {}))


def _complete(section: Section, found: dict[str, Any]) -> list[str]:
    """The lines of a section; a sentence in place of one whose stage was ended before it had all figures."""
    try:
        return list(section(found))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return ["", f"The figures of a stage are not complete: {type(error).__name__}: {error}."]


def _versions(found: dict[str, Any]) -> Iterator[str]:
    for name, part in found.items():
        yield f"\n{name}: " + ", ".join(f"{key} {value}" for key, value in part.items()) + "."


def _pixels(found: dict[str, Any]) -> Iterator[str]:
    parts = {name: part for name, part in found.items() if isinstance(part, dict)}
    if parts:
        yield from ("", "## Pixels", "", "| part | images | values that differ | with a status | left to workers |")
        yield "|---|---|---|---|---|"
    for name, part in parts.items():
        yield f"| {name} | {part['images']} | {part['different']} | {part['damaged']} | {part['refused']} |"
    for part in parts.values():
        yield from (f"\n- {example}" for example in part["examples"])


def _kernels(found: dict[str, Any]) -> Iterator[str]:
    tasks = {name: part for name, part in found.items() if isinstance(part, dict) and "kernels_us" in part}
    if not tasks:
        return
    yield from ("", f"## Kernels, batches of {found['batch_size']}", "")
    yield from (f"Copies {name}: {_number(each)} GB/s.\n" for name, each in found["bandwidth"].items())
    occupancy = found.get("occupancy", {})
    for task, part in tasks.items():
        yield from ("", f"{task}:", "", "| kernel | us | quartiles | occupancy | registers | local bytes |")
        yield "|---|---|---|---|---|---|"
        for name, each in (part["kernels_us"] | {"all kernels": part["all_kernels"]}).items():
            of = occupancy.get(name, {})
            yield (
                f"| {name} | {_number(each)} | {_quartiles(each)} | {of.get('occupancy', '')} "
                f"| {of.get('registers', '')} | {of.get('local_nbytes', '')} |"
            )
        yield (
            f"\n{part['bytes_copied_per_image']:,} bytes copied an image, {part['encoded_bytes_per_image']:,} encoded; "
            f"{_number(part['images_per_second_of_kernels'])} images/s by the kernels alone."
        )


def _loaders(found: dict[str, Any]) -> Iterator[str]:
    if found:
        yield from ("", "## Loaders, into tensors on the device")
    for name, part in found.items():
        if "skipped" in part:
            yield f"\n{name}: skipped, {part['skipped']}."
            continue
        yield from (
            "",
            f"{name}:",
            "",
            "| candidate | images/s | quartiles | images/s of a core's time | ours / this |",
        )
        yield "|---|---|---|---|---|"
        for candidate, each in part.items():
            if "skipped" in each:
                yield f"| {candidate} | skipped: {_one_line(each['skipped'])} | | | |"
                continue
            ratio = each.get("ours_over_this")
            compared = f"{ratio['median']:.2f} ({_quartiles(ratio)})" if ratio else ""
            yield (
                f"| {candidate} | {_number(each['rate'])} | {_quartiles(each['rate'])} "
                f"| {_number(each['per_processor_s'])} | {compared} |"
            )


def _training(found: dict[str, Any]) -> Iterator[str]:
    feeds = {name: part for name, part in found.items() if isinstance(part, dict) and "rate" in part}
    if not feeds:
        return
    copies = ", ".join(f"{name} {each} ms" for name, each in found["copy_ms"].items())
    yield from ("", f"## ResNet-50 in bfloat16, batches of {found['batch_size']}, {found['cores']} processor cores", "")
    yield f"{found['steps_of_a_turn']} steps a turn. The copy of a batch alone: {copies}."
    yield from ("", "| batches | images/s | waits | quartiles | in next() | copy hidden |", "|---|---|---|---|---|---|")
    for name, each in feeds.items():
        hidden = f"{each['hidden']['median']:.0%}" if "hidden" in each else ""
        waits = each["waits"]
        spread = f"{waits['low_quartile']:.1%} - {waits['high_quartile']:.1%}"
        yield (
            f"| {name} | {_number(each['rate'])} | {waits['median']:.1%} | {spread} "
            f"| {each['next_takes']['median']:.1%} | {hidden} |"
        )


def _tests(found: dict[str, Any]) -> Iterator[str]:
    if found:
        yield from ("", "## Tests", "")
        yield f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped."
        yield from (f"\n- `{failure}`" for failure in found["failures"])


def _sanitizer(found: dict[str, Any]) -> Iterator[str]:
    for tool, each in found.items():
        yield f"\n{tool}: ended {each['ended']}, {each['errors']} errors. {' '.join(each['summary'])}"


SECTIONS: Final[dict[str, Section]] = {
    "pixels": _pixels,
    "kernels": _kernels,
    "loaders": _loaders,
    "training": _training,
    "tests": _tests,
    "sanitizer": _sanitizer,
}


def _number(each: dict[str, Any]) -> str:
    median = each["median"]
    return f"{median:,.0f}" if median >= 100 else f"{median:.3g}"


def _quartiles(each: dict[str, Any]) -> str:
    low, high = each["low_quartile"], each["high_quartile"]
    return f"{low:,.0f} - {high:,.0f}" if low >= 100 else f"{low:.3g} - {high:.3g}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:160].replace("|", "/")
