"""report_to(), progress() and metrics: a loader's speed for people and programs."""

from __future__ import annotations

import copy
import io
import pickle
import re
import sys
import types
from typing import Any

import pytest

import penstock as ps
from penstock.errors import ArgumentError, OptionalPackageError
from penstock.loader.counters import LoaderCounters, PeriodicReport
from penstock.loader.faults import LeftOutLog
from penstock.loader.metrics import ScalarWriter, format_prometheus, list_scalars, observe
from penstock.loader.stats import LoaderRates
from penstock.workers.base import TaskResult
from tests.loader.fakes import Samples, Stream


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """The time now."""
        return self.now


def test_a_report_comes_when_it_is_due() -> None:
    """Not before the period has passed; with what was delivered since the last one; once more at the end."""
    counters, clock = LoaderCounters(LeftOutLog("raise", None, None)), Clock()
    seen: list[LoaderRates] = []
    report = PeriodicReport(counters, seen.append, period_s=10.0, clock=clock)

    for second in (1, 9, 2, 5):
        clock.now += second
        counters.count(TaskResult(0, batch=[1], rows=4))
    report.close()
    report.close()
    counters.count(TaskResult(0, batch=[1], rows=4))

    assert [(rates.batches, rates.all_samples) for rates in seen] == [(2, 8), (2, 16)]


def test_a_report_without_new_batches_is_not_made() -> None:
    """At the end, too."""
    seen: list[LoaderRates] = []

    with ps.DataLoader(Samples()).report_to(seen.append, period_s=0):
        pass

    assert seen == []


def test_a_function_that_fails_is_called_no_more() -> None:
    """The epoch goes on, and a warning names the error."""
    calls: list[int] = []

    def fail(rates: LoaderRates) -> None:
        calls.append(rates.batches)
        raise OSError("disk full")

    loader = ps.DataLoader(Samples(20), 5)
    with pytest.warns(RuntimeWarning, match="OSError: disk full"), loader.report_to(fail, period_s=0):
        batches = list(loader)

    assert len(batches) == 4
    assert calls == [1]


@pytest.mark.parametrize(("callback", "period_s"), [(None, 1.0), (print, -1.0), (print, float("nan"))])
def test_wrong_arguments_are_refused(callback: Any, period_s: float) -> None:
    """At once, not at the first batch."""
    with pytest.raises(ArgumentError, match=r"callback|period_s"):
        ps.DataLoader(Samples()).report_to(callback, period_s=period_s)


@pytest.mark.parametrize("again", [copy.copy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_reports_to_nobody(again: Any) -> None:
    """Reports belong to one loader; a loader with one can be pickled."""
    seen: list[LoaderRates] = []
    loader = ps.DataLoader(Samples(20), 5)
    with loader.report_to(seen.append, period_s=0):
        list(again(loader))

    assert seen == []


def test_a_file_gets_lines() -> None:
    """With a period of zero one for each batch: no control characters, at most 80 columns but for long numbers."""
    stream = io.StringIO()
    loader = ps.DataLoader(Samples(20), 5)
    first = list(loader)

    batches = list(loader.progress(stream=stream, period_s=0))

    lines = stream.getvalue().splitlines()
    assert len(batches) == len(first) == 4
    assert len(lines) == 4
    assert re.fullmatch(
        r"1 of 4 batches, 5 samples, [\d,]+ samples/s, waiting \d+%(, [a-z]+ \d+%( [a-z]+ \d+%)*)?", lines[0]
    )
    assert lines[-1].startswith("4 of 4 batches, 20 samples, ")
    assert all(len(line) <= 120 and line.isprintable() for line in lines)


def test_a_short_epoch_writes_one_line_to_a_file() -> None:
    """A log is not filled: the period is ten seconds, and the end has a line of its own."""
    stream = io.StringIO()

    list(ps.DataLoader(Samples(20), 5).progress(stream=stream))

    assert len(stream.getvalue().splitlines()) == 1


def test_a_stream_without_length_shows_what_came() -> None:
    """There is no total then; and `break` ends the display."""
    stream = io.StringIO()
    loader = ps.DataLoader(Stream(20), 5)
    for _ in loader.progress(stream=stream, period_s=0):
        break

    assert stream.getvalue().startswith("1 batches, 5 samples")
    assert loader._counters._observers == []


def test_a_terminal_gets_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a context manager around any loop; the line is cut to the width, and stays at the end."""
    monkeypatch.setenv("TERM", "xterm")  # an editor's terminal cannot go back in a line

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    loader = ps.DataLoader(Samples(20), 5)
    with loader.progress(stream=stream, period_s=0):
        batches = list(loader)

    text = stream.getvalue()
    assert len(batches) == 4
    assert "\x1b[2K" in text
    visible = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "\n").split("\n")
    assert any(line.startswith("4 of 4 batches") for line in visible)
    assert all(len(line) <= 80 for line in visible)


def test_a_notebook_replaces_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython's display is used where a kernel runs, and it is shown once, then updated."""
    shown: list[tuple[str, str]] = []

    class Handle:
        def update(self, content: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(("update", content["text/plain"]))

    def display(content: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        shown.append(("display", content["text/plain"]))
        return Handle()

    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    vars(ipython)["get_ipython"] = lambda: types.SimpleNamespace(kernel=object())
    vars(module)["display"] = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)

    list(ps.DataLoader(Samples(20), 5).progress(period_s=0))

    assert [how for how, _ in shown] == ["display", "update", "update", "update"]
    assert shown[-1][1].startswith("4 of 4 batches, 20 samples")


def test_scalars_are_written_one_by_one_or_together() -> None:
    """TensorBoard's method gets tag, value and step; a log function gets all of a step at once."""
    single: list[tuple[str, float, int]] = []
    together: list[tuple[dict[str, float], int]] = []
    loader = ps.DataLoader(Samples(20), 5, num_workers=1, workers="threads")
    writer = ScalarWriter(lambda tag, value, step: single.append((tag, value, step)))
    logger = ScalarWriter(log=lambda numbers, *, step: together.append((numbers, step)), prefix="x.", step=lambda: 77)

    with loader.report_to(writer, period_s=0), loader.report_to(logger, period_s=0):
        list(loader)

    names = {tag for tag, _, _ in single}
    assert {"loader/samples_per_s", "loader/waiting", "loader/us_per_sample/read", "loader/busy/0"} <= names
    assert {step for _, _, step in single} == {1, 2, 3, 4}
    assert [step for _, step in together] == [77] * 4
    assert {name.removeprefix("x.") for name in together[0][0]} == {name.removeprefix("loader/") for name in names}


@pytest.mark.parametrize("given", [{}, {"add_scalar": print, "log": print}])
def test_a_writer_needs_one_function(given: dict[str, Any]) -> None:
    """Neither and both are refused."""
    with pytest.raises(ArgumentError, match="give one of"):
        ScalarWriter(**given)


def test_prometheus_reads_each_line() -> None:
    """The text format: help and type before the samples of each name, labels quoted, numbers plain."""
    loader = ps.DataLoader(Samples(20), 5, num_workers=1, workers="threads")
    list(loader)

    text = format_prometheus(loader.stats(), {"loader": 'a"b\\c\n'})

    assert text.endswith("\n")
    names: list[str] = []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind == ("counter" if name.endswith("_total") else "gauge")
            names.append(name)
        elif not line.startswith("# HELP "):
            found = re.fullmatch(r"([a-z_]+)\{(.*)\} ([0-9.e+-]+)", line)
            assert found is not None, line
            assert found[1] == names[-1]
            assert 'loader="a\\"b\\\\c\\n"' in found[2]
            float(found[3])
    assert "penstock_samples_total" in names
    assert re.search(r"penstock_samples_total\{.*\} 20$", text, re.MULTILINE)
    assert re.search(r'stage_seconds_total\{.*stage="read",worker="0"\}', text)


def test_prometheus_needs_no_labels() -> None:
    """Then there are no braces."""
    text = format_prometheus(ps.DataLoader(Samples()).stats())

    assert "\npenstock_batches_total 0\n" in text


def test_open_telemetry_reads_when_it_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each instrument's callback gives the loader's numbers at that time."""
    module = types.ModuleType("opentelemetry.metrics")
    vars(module)["Observation"] = lambda value, attributes=None: (value, attributes)
    monkeypatch.setitem(sys.modules, "opentelemetry", types.ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", module)
    instruments: dict[str, Any] = {}

    class Meter:
        def create_observable_counter(self, name: str, *, callbacks: Any, **more: str) -> None:
            instruments[name] = callbacks[0]

        create_observable_gauge = create_observable_counter

    loader = ps.DataLoader(Samples(20), 5)
    observe(Meter(), loader)
    before = instruments["penstock.samples"](None)
    list(loader)

    assert before == [(0, None)]
    assert instruments["penstock.samples"](None) == [(20, None)]
    assert instruments["penstock.ready_batches"](None) == [(0, None)]
    stages = {labels["stage"]: seconds for seconds, labels in instruments["penstock.stage_seconds"](None)}
    assert stages["read"] > 0


def test_open_telemetry_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it an error says what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(OptionalPackageError, match="opentelemetry"):
        observe(object(), ps.DataLoader(Samples()))


def test_names_of_scalars_are_the_same_for_every_loader() -> None:
    """Also before the first batch."""
    stats = ps.DataLoader(Samples()).stats()

    names = list_scalars(stats.since(stats))

    assert {"samples_per_s", "nbytes_per_s", "waiting", "ready", "under_way", "us_per_sample/decode"} <= set(names)
