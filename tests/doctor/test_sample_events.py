"""Events of samples: their parts are added when they are read."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.doctor.watching.event_file import EventRow, make_row
from penstock.doctor.watching.recording import BATCH, EVENT, SAMPLE, WORK_STAGES
from penstock.doctor.watching.sample_events import SampleTime, Shares, fill_cpu, pack_samples, unpack_samples

durations = st.lists(st.integers(0, 10**9), min_size=1, max_size=20)
weights = st.tuples(*[st.integers(0, 1000)] * 3).filter(any)


def divide(sample: SampleTime, shares: Shares) -> list[EventRow]:
    """A sample and its parts, one after the other: what has no time is left out."""
    index, start, end, cpu, count = sample
    rows = [make_row(SAMPLE, 3, 7, start, end, cpu=cpu, samples=count, index=index)]
    shares = tuple(round(1e9 * share) / 1e9 for share in shares)
    computing = (end - start) - round(shares[0] * (end - start))
    used, at, share = min(cpu, computing), start, 0.0
    for stage, own in zip(WORK_STAGES[:3], shares, strict=True):
        share += own
        until = start + round(share * (end - start))
        part = cpu - used if stage == "read" else round(used * ((until - at) / max(computing, 1)))
        if until > at:
            rows.append(make_row(stage, 3, 7, at, until, cpu=part if cpu >= 0 else -1, samples=count, index=index))
        at = until
    return rows


@given(durations, weights, st.booleans())
def test_samples_are_divided_when_they_are_read(
    lengths: list[int], weight: tuple[int, int, int], measured: bool
) -> None:  # of hypothesis
    """Each as if it were alone, whatever lies around them in the file; some have shares of their own."""
    clocks = np.cumsum([10**12, *lengths]).tolist()
    samples = [
        (100 + at, clocks[at], clocks[at + 1], length // 2 if measured else -1, 1) for at, length in enumerate(lengths)
    ]
    shares, other = tuple(part / sum(weight) for part in weight), (0.25, 0.0, 0.75)
    batch = make_row(BATCH, 3, 7, 0, 1)
    packed = pack_samples(3, 7, samples, shares, {1: other})

    found = unpack_samples(np.array([batch, *packed, batch, *packed], EVENT))

    single = [row for at, sample in enumerate(samples) for row in divide(sample, other if at == 1 else shares)]
    assert found.tolist() == [batch] * 2 + single * 2


def test_parts_fill_the_sample() -> None:
    """One after the other, without those that take no time; reading has what is left of the processor time."""
    packed = pack_samples(0, 1, [(5, 1000, 2000, 600, 1)], (0.5, 0.0, 0.5), {})

    assert unpack_samples(np.array(packed, EVENT)).tolist() == [
        make_row(SAMPLE, 0, 1, 1000, 2000, cpu=600, samples=1, index=5),
        make_row("read", 0, 1, 1000, 1500, cpu=100, samples=1, index=5),
        make_row("augment", 0, 1, 1500, 2000, cpu=500, samples=1, index=5),
    ]


def test_batches_that_are_passed_over_compute_as_much_as_others() -> None:
    """Of the same worker; what is known stays."""
    rows = [
        (BATCH, 0, 0, -1, 0, 100, 50, 64, 4),
        (BATCH, 0, 1, -1, 100, 300, -1, -1, 4),
        (BATCH, 0, 2, -1, 300, 700, 7, -1, 4),
        (BATCH, 1, 3, -1, 0, 100, 100, 64, 4),
        (BATCH, 1, 4, -1, 100, 150, -1, -1, 4),
        (BATCH, 2, 5, -1, 0, 100, -1, -1, 4),
    ]

    events = fill_cpu(np.array(rows, EVENT))

    assert events["cpu"].tolist() == [50, 100, 7, 100, 50, -1]
