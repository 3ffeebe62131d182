"""Events of samples: many are packed, and divided when they are read, as each one would be."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.doctor.watching.event_file import make_row
from penstock.doctor.watching.recording import BATCH, EVENT, SAMPLE
from penstock.doctor.watching.sample_events import divide_sample, pack_samples, unpack_samples

durations = st.lists(st.integers(0, 10**9), min_size=1, max_size=20)
weights = st.tuples(*[st.integers(0, 1000)] * 3).filter(any)


@given(durations, weights, st.booleans())
def test_packed_samples_are_as_single_ones(
    lengths: list[int], weight: tuple[int, int, int], measured: bool
) -> None:  # of hypothesis
    """Sample by sample the same events, whatever lies around them in the file."""
    clocks = np.cumsum([10**12, *lengths]).tolist()
    cpu = [clock // 2 for clock in clocks] if measured else []
    shares = tuple(part / sum(weight) for part in weight)
    indices = list(range(100, 100 + len(lengths)))
    batch = np.array([make_row(BATCH, 3, 7, 0, 1)], EVENT)
    packed = pack_samples(3, 7, indices, clocks, cpu, shares)

    found = unpack_samples(np.concatenate([batch, packed, batch, packed]))

    single = [
        row
        for at, index in enumerate(indices)
        for row in divide_sample(
            3, 7, (index, clocks[at], clocks[at + 1], cpu[at + 1] - cpu[at] if measured else -1, 1), shares
        )
    ]
    assert found.tolist() == [*batch.tolist() * 2, *single * 2]


def test_parts_fill_the_sample() -> None:
    """One after the other, without those that take no time; reading has what is left of the processor time."""
    rows = divide_sample(0, 1, (5, 1000, 2000, 600, 1), (0.5, 0.0, 0.5))

    assert rows == [
        make_row(SAMPLE, 0, 1, 1000, 2000, cpu=600, samples=1, index=5),
        make_row("read", 0, 1, 1000, 1500, cpu=100, samples=1, index=5),
        make_row("augment", 0, 1, 1500, 2000, cpu=500, samples=1, index=5),
    ]
