"""The charts of the page of benchmarks, drawn from the tables in ``benches/results``.

A column of a table is drawn if its cells are ratios with their lowest and highest round, as ``benches/harness.py``
writes them. A table of candidates is drawn from zero, with the rival that is 1. A table in which each row is compared
with a program of its own is drawn from 1: to the right where penstock is faster, to the left where it is slower. Rows
in which penstock is slower than another program are also listed on their own, before all charts.
"""

from __future__ import annotations

import ast
import html
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

__all__ = ["TOPICS", "Bar", "Chart", "Loss", "find_losses", "make_page", "make_summary", "read_charts", "write_pages"]

TOPICS: Final = {
    "rivals": "Other loaders: DALI, FFCV, TorchCodec and others",
    "detection": "Detection",
    "train_input": "Input of a training and an evaluation",
    "torchvision_script": "A torchvision script with another import",
    "remote": "Object storage",
    "stores": "Containers",
    "decode": "Decoding JPEG",
    "public_table": "Decoders of the field's public table",
    "torchcodec_names": "TorchCodec's decoders by name",
    "formats": "Decoding other formats",
    "augment": "Augmentation",
    "patches": "Patches of large images",
    "ragged": "Boxes in batches",
    "pack": "Packing",
    "transport": "Transport between processes",
    "ray_workers": "Workers on other machines",
    "scaled_decoding": "Decoding at a fraction of the size",
    "odd_jpegs": "Unusual JPEGs",
    "orientation": "Photographs that are turned",
    "device_decode": "Decoding on a device",
}
"""Scripts whose results have charts, in the order of the pages, and what each page is called."""

RIVALS: Final = {"augment": "torchvision"}
"""What the rows of a script without candidates are compared with, where it is not a plain script."""

RATIO: Final = re.compile(r"^([\d,.]+) \(([\d,.]+) - ([\d,.]+)\)$")
AGAINST: Final = re.compile(r"^- (penstock.*): ([\d.]+) times (.+) \(([\d.]+) - ([\d.]+)\)$")


@dataclass(frozen=True)
class Bar:
    """One row: a ratio with its lowest and highest round."""

    name: str
    ratio: float
    low: float
    high: float
    is_ours: bool
    measured: str = ""
    """The rate and its spread, in the words of the table."""


@dataclass(frozen=True)
class Chart:
    """One column of ratios, and where its numbers come from."""

    script: str
    title: str
    bars: tuple[Bar, ...]
    machine: str
    date: str
    text: str
    """What the results say about versions, images and rounds."""
    file: str
    has_candidates: bool
    """Whether the rows are candidates of one comparison; otherwise each row is penstock against another program."""


@dataclass(frozen=True)
class Loss:
    """A comparison in which penstock is slower: its speed, as a share of the other program's."""

    script: str
    title: str
    name: str
    rival: str
    ratio: float
    low: float
    high: float
    machine: str


# ------------------------------------------------------------------------------------------------ reading


def read_charts(folder: Path) -> list[Chart]:
    """All charts of the results in a folder, in the order of the page."""
    charts = [chart for file in sorted(folder.glob("*.md")) for chart in read_file(file)]
    return sorted(charts, key=lambda chart: (*place(chart.script), chart.file))


def place(script: str) -> tuple[int, str]:
    """The sort key of a script."""
    return ([*TOPICS, script].index(script), script)


def read_file(file: Path) -> Iterator[Chart]:
    """The charts of one machine's results."""
    text = file.read_text()
    heading, *sections = re.split(r"^## (?=[a-z_]+$)", text, flags=re.MULTILINE)
    machine = heading.split("\n", 1)[0].removeprefix("# ").strip()
    date = find_date(heading)
    for section in sections:
        script, _, rest = section.partition("\n")
        for chart in read_section(script, rest):
            yield replace(chart, machine=machine, date=find_date(rest) or date, file=file.name)


def find_date(text: str) -> str:
    """The day that a text says it was measured."""
    found = re.search(r"Measured (\d{4}-\d\d-\d\d)", text)
    return found[1] if found else ""


def read_section(script: str, text: str) -> Iterator[Chart]:
    """The charts of one script."""
    titles: dict[int, str] = {}
    paragraph = setting = ""
    for block in re.split(r"\n\s*\n", text.strip()):
        if found := re.match(r"(#+) (.*)", block):
            titles = {level: title for level, title in titles.items() if level < len(found[1])} | {
                len(found[1]): found[2]
            }
            paragraph = block.partition("\n")[2]
        elif block.startswith("|"):
            label = paragraph.rstrip(":") if len(paragraph) < 48 and not paragraph.endswith(".") else ""
            title = ", ".join(dict.fromkeys(part for part in (*titles.values(), label) if part))
            yield from read_table(script, title, setting, block.splitlines())
            paragraph = ""
        else:
            paragraph = block.replace("\n", " ")
            setting = paragraph if "Python" in paragraph else setting


def read_table(script: str, title: str, text: str, lines: Sequence[str]) -> Iterator[Chart]:
    """A chart for each column of ratios."""
    header, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    columns = [i for i in range(1, len(header)) if any(RATIO.match(row[i]) for row in rows if i < len(row))]
    if header[0] not in {"", "candidate", "container", "op", "epoch"} and header[0] not in title:
        title = ", ".join(part for part in (title, header[0]) if part)
    has_candidates = "candidate" in header and not any("penstock against" in name for name in header)
    names = [", ".join(row[: header.index("candidate") + 1]) if "candidate" in header else row[0] for row in rows]
    some_are_ours = any(name.startswith("penstock") for name in names)
    is_time = any(re.search(r"\d (s|GB)$", cell) for row in rows for cell in row)
    for column in columns:
        label = re.sub(r" \(lowest - highest\)", "", header[column]).replace("`", "")
        bars = []
        for name, row in zip(names, rows, strict=True):
            found = RATIO.match(row[column])
            if not found or (not has_candidates and name.endswith("penstock")):
                continue
            middle, low, high = (float(number.replace(",", "")) for number in found.groups())
            if is_time:  # of times and sizes, less is better
                middle, low, high = 1 / middle, 1 / high, 1 / low
            ours = not has_candidates or not some_are_ours or name.startswith("penstock")
            bars.append(Bar(name, middle, low, high, ours, describe_rate(header, row)))
        whole = ", ".join(part for part in (title, label if len(columns) > 1 else "") if part)
        yield Chart(script, whole or script, tuple(bars), "", "", text, "", has_candidates)


def describe_rate(header: Sequence[str], row: Sequence[str]) -> str:
    """The rate of a row with its unit and spread; empty where the table has none."""
    if "spread" not in header:
        return ""
    spread = header.index("spread")
    unit = re.sub(r"^(median|native,) ?", "", header[spread - 1])
    return f"{row[spread - 1]} {unit}, {row[spread]}"


def find_losses(folder: Path) -> list[Loss]:
    """Every comparison with another program in which penstock is slower, the largest loss first."""
    found: list[Loss] = []
    for chart in read_charts(folder):
        where = (chart.script, chart.title)
        reference = next((bar for bar in chart.bars if bar.ratio == bar.low == bar.high == 1), None)
        for bar in chart.bars:
            if not chart.has_candidates and bar.ratio < 1 and "T1 from" not in chart.title:
                rival = RIVALS.get(chart.script, "a plain script")
                found.append(Loss(*where, bar.name, rival, bar.ratio, bar.low, bar.high, chart.machine))
            elif chart.has_candidates and reference and bar.is_ours and not reference.is_ours and bar.ratio < 1:
                found.append(Loss(*where, bar.name, reference.name, bar.ratio, bar.low, bar.high, chart.machine))
    for file in sorted(folder.glob("*.md")):
        text = file.read_text()
        machine = text.split("\n", 1)[0].removeprefix("# ").strip()
        for script, section in re.findall(r"^## ([a-z_]+)$(.*?)(?=^## [a-z_]+$|\Z)", text, re.MULTILINE | re.DOTALL):
            for line in section.splitlines():
                if (against := AGAINST.match(line)) and float(against[2]) < 1:
                    numbers = [float(against[i]) for i in (2, 4, 5)]
                    found.append(Loss(script, "", against[1], against[3], *numbers, machine))
    return sorted(found, key=lambda loss: loss.ratio)


# ------------------------------------------------------------------------------------------------ drawing


def write_pages(results: Path, folder: Path) -> None:
    """Write the page of each script that was measured, and that of all losses."""
    folder.mkdir(exist_ok=True)
    charts = read_charts(results)
    pages = {script: make_page(results, script) for script in dict.fromkeys(chart.script for chart in charts)}
    pages["slower"] = make_losses(results)
    for file in folder.glob("*.md"):
        if file.stem not in pages:
            file.unlink()
    for name, text in pages.items():
        file = folder / f"{name}.md"
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def make_summary(folder: Path) -> str:
    """The table with which the page of benchmarks begins, as Markdown: a row for each script."""
    lines = ["", "| what | against | penstock's speed | measured on |", "|---|---|---|---|"]
    charts = read_charts(folder)
    for script in dict.fromkeys(chart.script for chart in charts):
        for chart in charts:
            reference = next((bar for bar in chart.bars if bar.ratio == bar.low == bar.high == 1), None)
            if chart.script != script or (chart.has_candidates and (reference is None or reference.is_ours)):
                continue
            ratios = [bar.ratio for bar in chart.bars if bar.is_ours]
            rival = reference.name if chart.has_candidates and reference else RIVALS.get(script, "a plain script")
            speed = f"{min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else f"{ratios[0]:.2f}"
            topic = f"[{TOPICS.get(script, script)}](benchmarks/{script}.md)"
            lines.append(f"| {topic}: {chart.title} | {rival} | {speed} | {short_machine(chart.machine)} |")
            break
    count = len(find_losses(folder))
    return "\n".join([*lines, "", f"[Where penstock is slower](benchmarks/slower.md): {count} rows.", ""])


def make_losses(folder: Path) -> str:
    """The page of comparisons in which penstock is slower, as Markdown."""
    lines = [
        "# Where penstock is slower",
        "",
        "The largest loss first; the ratio is penstock's speed divided by the other's.",
        "",
    ]
    lines += ["| what | against | its speed | machine |", "|---|---|---|---|"]
    for loss in find_losses(folder):
        name = ": ".join(part for part in (loss.title, loss.name) if part)
        page = f"[{loss.script}]({loss.script}.md)" if loss.script in TOPICS else loss.script
        lines.append(f"| {page}, {name} | {loss.rival} | {show_ratio(loss)} | {short_machine(loss.machine)} |")
    return "\n".join([*lines, ""])


def make_page(folder: Path, script: str) -> str:
    """The page of one script, as Markdown with HTML: what it claims, and all its charts."""
    lines = [f"# {TOPICS.get(script, script)}", "", describe_script(folder.parent / f"{script}.py"), ""]
    for chart in read_charts(folder):
        if chart.script == script:
            lines += [f"## {chart.title}, {short_machine(chart.machine)}", "", draw(chart), ""]
            source = f"[{script}.py](../../benches/{script}.py), [table](../../benches/results/{chart.file})"
            where = "" if chart.machine in chart.text else f"{chart.machine}. "
            lines += [f"Measured {chart.date}. {where}{chart.text} {source}", ""]
    return "\n".join(lines)


def describe_script(path: Path) -> str:
    """The first paragraph of a script's docstring."""
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].replace("\n", " ")
    return text.replace("``", "`")


def short_machine(machine: str) -> str:
    """The name of a machine's processor, in two words."""
    return "Intel Xeon" if "Xeon" in machine else " ".join(machine.split(",", 1)[0].split()[:2])


def show_ratio(bar: Bar | Loss) -> str:
    """A ratio with its lowest and highest round."""
    return f"{bar.ratio:.2f} ({bar.low:.2f} to {bar.high:.2f})"


def draw(chart: Chart) -> str:
    """The chart as one block of HTML, without empty lines."""
    label = "A bar for each row, as long as its ratio, and a line from its lowest to its highest round."
    parts = [f'<div class="chart" role="group" aria-label="{label}">']
    top = max(bar.high for bar in chart.bars)
    # Rows against a rival each: a logarithmic axis whose middle is 1, where both are as fast.
    reach = max(max(abs(math.log(max(x, 1e-3))) for x in (bar.low, bar.high)) for bar in chart.bars) or 1

    def at(value: float) -> float:
        return value / top * 100 if chart.has_candidates else 50 + math.log(max(value, 1e-3)) / reach * 50

    one = at(1)
    for bar in chart.bars:
        start, stop = (0.0, at(bar.ratio)) if chart.has_candidates else sorted((one, at(bar.ratio)))
        kind = "ours" if bar.is_ours else "other"
        if not chart.has_candidates and bar.ratio < 1:
            kind = "slower"
        spread, length = at(bar.high) - at(bar.low), max(stop - start, 0.3)
        parts += [
            f'<div class="chart-row {kind}"><span class="chart-name">{html.escape(bar.name)}</span>',
            f'<span class="chart-track"><span class="chart-one" style="left:{one:.1f}%"></span>',
            f'<span class="chart-bar" style="left:{start:.1f}%;width:{length:.1f}%"></span>',
            f'<span class="chart-spread" style="left:{at(bar.low):.1f}%;width:{spread:.1f}%"></span></span>',
            f'<span class="chart-value">{bar.ratio:.2f} <small>({bar.low:.2f} to {bar.high:.2f})',
            f"{html.escape(bar.measured)}</small></span></div>",
        ]
    return "\n".join([*parts, "</div>"])
