"""The report as text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.doctor.judge.diagnosis import Verdict
from penstock.doctor.judge.text_report import (
    describe_ending,
    format_gain,
    format_measured,
    format_report,
)
from penstock.doctor.trials.turns import Measured
from penstock.wording import format_time_us
from tests.doctor.diagnoses import HOSTILE, make_diagnosis, make_healthy, make_recording


def test_the_verdict_comes_first() -> None:
    """The first sentence names the stage; speeds, stages, advice, samples, findings and notes follow in this order."""
    text = format_report(make_diagnosis())

    assert str(make_diagnosis()) == text
    assert text.startswith("Decoding limits the training")
    order = [
        "412 samples/s",
        "58% of the time",
        "stage ",
        "decode *",
        "What to change",
        "Slowest",
        "Found in",
        "throttled",
    ]
    places = [text.index(each) for each in order]
    assert places == sorted(places)


def test_lines_fit_a_terminal_of_80_columns() -> None:
    """No line is longer than 80 characters, also with long keys."""
    diagnosis = make_diagnosis(keys=["photos/" + "deep/" * 60 + "a.jpg"])

    lines = format_report(diagnosis).splitlines()

    assert max(map(len, lines)) <= 80
    assert any("a.jpg" in line for line in lines)


def test_advice_shows_measurement_and_code() -> None:
    """Each row has the change, what was measured with its spread, and the line of code; a fact has no number."""
    text = format_report(make_diagnosis())

    assert "1. num_workers=8\n     measured +98% (+91% to +104%, 5 runs)" in text
    assert "     DataLoader(..., num_workers=8)" in text
    assert "3. pack the dataset\n     Files are read one by one." in text


def test_what_the_absence_of_stages_brings_is_a_table() -> None:
    """The costliest first, with how it is known; one that was not left out has no gain."""
    text = format_report(make_diagnosis())

    rows = [line.split() for line in text[text.index("without") :].splitlines()[1:4]]
    assert [row[:2] for row in rows] == [["decode", "+150%"], ["augment", "+15%"], ["read", "-"]]
    assert "5.2 times (4.9 times to 5.6 times, 3 runs)" in text
    assert "4% of it, as observed" in text
    assert "what reading and decoding leave" in text


def test_nothing_to_gain_takes_three_statements() -> None:
    """A healthy script gets the verdict, its speeds and the page of the verdict, and no tables."""
    text = format_report(make_healthy(), width=400)

    first, second, page = [line for line in text.splitlines() if line]
    assert first.startswith("There is nothing to gain")
    assert second == "Samples/s: delivered 1,020, trainer 1,024, loader alone 2,200. Waiting: 0.4%."
    assert page == "More: penstock explain limit-none"


def test_a_finding_is_shown_although_nothing_can_be_gained() -> None:
    """Three statements are all only where there is nothing else to say."""
    healthy = make_healthy()
    healthy.findings = make_diagnosis().findings

    assert "global-randomness" in format_report(healthy)


def test_hostile_keys_do_not_reach_the_terminal() -> None:
    """Text from a dataset is escaped: no control character, no line of its own."""
    diagnosis = make_diagnosis(keys=HOSTILE, notes=HOSTILE)
    diagnosis.verdict = replace(diagnosis.verdict, text=f"Slow: {HOSTILE[2]}")

    text = format_report(diagnosis)

    assert all(line.isprintable() for line in text.split("\n"))
    assert "\\x1b[31m" in text


def test_a_recording_without_steps_is_reported() -> None:
    """Where nothing was seen there are no tables, and no division by zero."""
    recording = make_recording(batches=8)
    steps = recording.steps
    empty = {name: getattr(steps, name)[:0] for name in steps.__dataclass_fields__}
    recording.steps = replace(steps, **empty)
    recording.events = recording.events[:0]
    verdict = Verdict("none", "The script took no batch from a loader.", 0.0, 0.0, 0.0)

    text = format_report(make_diagnosis(recording, verdict=verdict, stages=[], advice=[], samples=[], findings=[]))

    assert text.startswith("The script took no batch")


def test_ranks_are_a_table() -> None:
    """Each rank is a row, with the rank that it waits for."""
    ranks = [{"rank": 0, "samples_per_s": 400.0, "waiting": 0.1, "waited_for": 1}, {"rank": 1, "waiting": None}]

    text = format_report(make_diagnosis(ranks=ranks))

    assert "     0         400      10%  1" in text
    assert "     1           ?        ?  -" in text


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [
        ("error: ValueError: no", "The script crashed: ValueError: no"),
        ("exit 3", "The script ended with exit code 3."),
        ("interrupted", "It was interrupted."),
        ("", ""),
    ],
)
def test_the_end_of_the_script_is_a_sentence(ended: str, sentence: str) -> None:
    """How the script ended is said in words."""
    recording = make_recording(batches=8)
    recording.ended = ended

    assert describe_ending(recording) == sentence


def test_numbers_keep_three_digits() -> None:
    """Times change their unit and not their precision; gains are percents up to three times."""
    times = [0.0, 0.5, 9.99, 999.0, 999.6, 12_345.0, 1e6, 7.2e7]

    assert [format_time_us(each) for each in times] == [
        "0 us", "0.5 us", "9.99 us", "999 us", "1 ms", "12.3 ms", "1 s", "72 s",
    ]  # fmt: skip
    assert [format_gain(each) for each in (1.0, 2.94, 2.96)] == ["+0%", "+194%", "3.0 times"]
    assert format_measured(Measured(1.1, 1.1, 1.1, 1)) == "+10% (once)"
    assert format_measured(None) == "not tried"


def test_the_speed_of_steps_leaves_the_warm_up_out() -> None:
    """The time of one step is the mean of steps after the warm-up."""
    recording = make_recording()
    recording.steps.step_ns[: recording.warm_up] = np.int64(10**12)

    assert "One step takes              4 ms (copies to the device 300 us, device busy 62%)" in format_report(
        make_diagnosis(recording)
    )
