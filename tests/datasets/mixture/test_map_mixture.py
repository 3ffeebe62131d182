"""Mixtures of map-style datasets: shares, epochs of sources, resume, bad arguments."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from conftest import photographs
from penstock import transforms as T
from penstock.datasets.mixture import MapMixture
from penstock.errors import ArgumentError, StateError
from tests.asking import ASK, epochs


def numbers(name: int, size: int) -> ps.ArrayDataset:
    """A source whose samples say which they are: source * 10**7 + number."""
    return ps.ArrayDataset(name * 10**7 + np.arange(size))


def mix(*sizes: int, **kwargs: Any) -> MapMixture:
    """A mixture of sources of these sizes, "0", "1", ..."""
    mixture = ps.Mixture({str(i): numbers(i, size) for i, size in enumerate(sizes)}, **kwargs)
    assert isinstance(mixture, MapMixture)
    return mixture


def values(mixture: MapMixture, indices: Any) -> np.ndarray[Any, Any]:
    """What the samples say."""
    places, starts = mixture.locate(indices), mixture.order.starts
    sources = np.searchsorted(starts, places, side="right") - 1
    return sources * 10**7 + places - starts[sources]


def drawn(mixture: MapMixture, epochs: int = 1, **kwargs: Any) -> np.ndarray[Any, Any]:
    """All samples of some epochs, in order."""
    sampler = mixture.make_sampler(**{"seed": 3, **kwargs})
    return np.concatenate([values(mixture, sampler.order(0, len(sampler), epoch)) for epoch in range(epochs)])


def test_fifty_sources_have_their_shares_and_none_starves() -> None:
    """After 10**5 samples each share is kept to 2 samples, hence within 1 % of all, and every source occurs."""
    sizes = [int(1.28**i) + 1 for i in range(50)]  # 2 to 180,000
    for options in ({"weights": [1 + i % 7 for i in range(50)]}, {"temperature": 5}, {"temperature": math.inf}):
        mixture = mix(*sizes, until=100_000, **options)

        counts = np.bincount(drawn(mixture) // 10**7, minlength=50)

        shares = np.array(mixture.interleaving.stages[0].shares)
        assert np.abs(counts - shares * 100_000).max() < 2
        assert counts.min() >= 1


def test_temperatures_raise_small_sources() -> None:
    """The share of a source is in proportion to size ** (1 / temperature)."""
    shares = [mix(100, 10_000, temperature=t, until=1).interleaving.stages[0].shares for t in (1, 2, math.inf)]

    assert np.allclose(shares, [[1 / 101, 100 / 101], [1 / 11, 10 / 11], [0.5, 0.5]])
    assert mix(100, 10_000, until=1).interleaving.stages[0].shares == shares[0]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 300), st.booleans(), st.integers(0, 9))
def test_each_source_has_epochs_of_its_own(sizes: list[int], until: int, shuffle: bool, seed: int) -> None:
    """The draws of a source, over all epochs of the mixture, are whole permutations of it, one after the other."""
    mixture = mix(*sizes, weights=[1 + 3 * i for i in range(len(sizes))], until=until)

    found = drawn(mixture, epochs=3, shuffle=shuffle, seed=seed)

    for source, size in enumerate(sizes):
        own = found[found // 10**7 == source] % 10**7
        for begin in range(0, len(own), size):
            epoch = own[begin : begin + size]
            assert len(set(epoch.tolist())) == len(epoch)
            assert shuffle or epoch.tolist() == list(range(len(epoch)))


def test_epochs_of_a_source_have_different_orders() -> None:
    """A source that begins again has another order, and other sources too."""
    found = drawn(mix(500, 500, weights=[1, 1], until=2000))

    first, second, other = found[found < 10**7][:500], found[found < 10**7][500:1000], found[found >= 10**7][:500]

    assert sorted(first) == sorted(second) == sorted(other - 10**7)
    assert first.tolist() != second.tolist() != (other - 10**7).tolist()


def test_a_repeated_sample_has_another_index() -> None:
    """Random numbers belong to the index, so that a sample that comes again is augmented in another way."""
    sampler = mix(3, 1000, weights=[1, 1], until=1000).make_sampler(seed=0)

    indices = sampler.order(0, 1000)

    assert len(np.unique(indices)) == 1000


@pytest.mark.parametrize(("until", "lengths"), [("first", (200, 400)), ("all", (2000, 4000))])
def test_an_epoch_ends_when_a_source_is_used_up(until: Any, lengths: tuple[int, int]) -> None:
    """With "first", when one source is used up, with "all", when each was; the next epoch goes on there."""
    mixture = mix(100, 1000, weights={"1": 1, "0": 1}, until=until)

    found = drawn(mixture, epochs=2)

    assert (len(mixture), len(found)) == lengths
    assert mixture.until == until
    assert Counter(found[: lengths[0]] // 10**7) == {0: lengths[0] // 2, 1: lengths[0] // 2}
    large = found[found >= 10**7]
    assert len(set(large.tolist())) == min(1000, len(large))


@pytest.mark.parametrize("unit", ["samples", "epochs"])
def test_a_schedule_changes_the_shares(unit: Any) -> None:
    """Shares change where an entry begins, counted from the beginning of the job, in samples or in epochs."""
    at = (1024, 4096) if unit == "samples" else (1, 4)
    schedule = [(0, {"0": 1, "1": 0}), (at[0], {"0": 1, "1": 3}), (at[1], [0, 1])]
    mixture = mix(7, 300, weights=schedule, until=1024, schedule_unit=unit)

    sources = drawn(mixture, epochs=5) // 10**7

    assert sources[:1024].sum() == 0
    assert abs(sources[1024:4096].mean() - 0.75) < 0.001
    assert (sources[4096:] == 1).all()


def test_temperatures_may_have_a_schedule() -> None:
    """From equal shares to those of the sizes."""
    mixture = mix(100, 900, temperature=[(0, math.inf), (2000, 1)], until=4000)

    sources = drawn(mixture) // 10**7

    assert abs(sources[:1792].mean() - 0.5) < 0.01
    assert abs(sources[2048:].mean() - 0.9) < 0.01


def test_it_resumes_anywhere_on_any_number_of_ranks() -> None:
    """From 200 random places: what is left, dealt to another number of ranks, is the rest of the one order."""
    mixture, random = mix(5, 70, 900, weights=[1, 2, 3], until=3000), np.random.default_rng(1)
    whole = [mixture.make_sampler(seed=3).order(0, 3000, epoch) for epoch in range(3)]
    for _ in range(200):
        before, after = random.integers(1, 9, 2).tolist()
        epoch, steps = int(random.integers(3)), int(random.integers(1, 3000 // before - 1))
        old = mixture.make_sampler(seed=3, num_replicas=before, rank=int(random.integers(before)))
        old.set_epoch(epoch)
        walk = iter(old)
        for _ in range(steps):
            next(walk)
        state = json.loads(json.dumps(old.state_dict()))

        ranks = [mixture.make_sampler(seed=0, num_replicas=after, rank=rank) for rank in range(after)]
        for sampler in ranks:
            sampler.load_state_dict(state)
        left = [index for step in zip(*ranks, strict=True) for index in step]

        rest = whole[epoch][steps * before :].tolist()
        assert left[: len(rest)] == rest
        assert len(left) - len(rest) < after


@pytest.mark.parametrize("batch_size", [8, 37])
def test_a_loader_resumes_with_stats(batch_size: int) -> None:
    """A loader that is resumed gives the same batches, and its stats count what was delivered before."""
    mixture = mix(30, 200, weights=[1, 1], until=333)
    whole = ps.DataLoader(mixture, batch_size, shuffle=True, seed=5)
    batches = [batch.tolist() for _ in range(2) for (batch,) in whole]
    loader = ps.DataLoader(mixture, batch_size, shuffle=True, seed=5)
    seen = [batch.tolist() for (batch,) in loader]
    walk = iter(loader)
    seen += [next(walk)[0].tolist() for _ in range(3)]
    state = json.loads(json.dumps(loader.state_dict()))

    again = ps.DataLoader(mixture, batch_size, shuffle=True)
    again.load_state_dict(state)

    counts = Counter(value // 10**7 for batch in seen for value in batch)
    for known in (loader, again):
        stats = mixture.stats(known)
        assert {int(name): source.samples for name, source in stats.items()} == counts
        assert stats["0"].epochs == counts[0] // 30
    assert seen + [batch.tolist() for (batch,) in again] == batches
    assert mixture.stats(again)["0"].samples + mixture.stats(again)["1"].samples == 666


def test_ranks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's environment says the ranks; their last steps may be uneven."""
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    mixture = mix(10, 20, weights=[1, 1], until=18)

    sampler = mixture.make_sampler(seed=0, num_replicas=None, rank=None, drop_last="uneven")

    assert (sampler.num_replicas, sampler.rank, len(sampler)) == (4, 2, 4)


def test_stats_count_all_ranks_and_another_number_of_them() -> None:
    """The job has consumed what its ranks have together, before and after their number changes."""
    mixture = mix(30, 200, weights=[1, 3], until=400)

    def make(num_replicas: int, rank: int) -> ps.DataLoader:
        sampler = mixture.make_sampler(seed=1, num_replicas=num_replicas, rank=rank)
        return ps.DataLoader(mixture, 5, sampler=sampler, seed=1)

    old = make(4, 1)
    walk = iter(old)
    for _ in range(6):
        next(walk)
    new = make(3, 2)
    new.load_state_dict(old.state_dict())

    assert mixture.stats(old) == mixture.stats(new)
    assert sum(source.samples for source in mixture.stats(new).values()) == 120
    next(iter(new))
    assert sum(source.samples for source in mixture.stats(new).values()) == 135


def test_workers_fill_and_change_no_batch() -> None:
    """Threads fill the rows of a mixture whose sources fill; processes give the same batches."""
    mixture = mix(10, 100, 50, temperature=2, until=150)
    serial = [batch.tolist() for (batch,) in ps.DataLoader(mixture, 16, shuffle=True, seed=0)]
    threads = ps.DataLoader(mixture, 16, shuffle=True, seed=0, num_workers=2)
    processes = ps.DataLoader(mixture, 16, shuffle=True, seed=0, num_workers=2, workers="processes")

    assert threads.workers == "threads"
    assert [batch.tolist() for (batch,) in threads] == serial
    assert [batch.tolist() for (batch,) in processes] == serial
    assert sum(batch.size for (batch,) in ps.DataLoader(mixture, 16)) == 150


def test_images_are_filled_and_augmented_anew_each_time(tmp_path: Path) -> None:
    """Rows of encoded images are what samples are, with random numbers of their own each time that they come again."""
    photographs(tmp_path, ("cat", "dog"), 3)
    augment = T.Pipeline([T.Decode(), T.RandomResizedCrop(32), T.ToLayout("CHW", "uint8")])
    sources = {name: ps.StoreDataset(tmp_path / name, fields=("image",), transform=augment) for name in ("cat", "dog")}
    mixture = ps.Mixture(sources, weights=[1, 3], until=24)
    options: dict[str, Any] = {"batch_size": 6, "shuffle": True, "seed": 2}

    filled = list(ps.DataLoader(mixture, num_workers=2, **options))
    collated = list(ps.DataLoader(mixture, collate_fn=list, **options))

    images = np.concatenate([batch for (batch,) in filled])
    assert len({image.tobytes() for image in images}) == len(images) == 24
    for (ours,), theirs in zip(filled, collated, strict=True):
        assert (ours == np.stack([image for (image,) in theirs])).all()


@pytest.mark.parametrize("ask", [*ASK.values(), "stats by source"])
def test_asking_changes_nothing(ask: Any) -> None:
    """State, length, text, pickle and statistics draw nothing."""
    mixture = mix(5, 40, weights=[1, 1], until=50)
    asked = mixture.stats if ask == "stats by source" else ask

    found = [epochs(ps.DataLoader(mixture, 8, shuffle=True, seed=1), lambda: 0, each) for each in (asked, None)]

    assert found[0] == found[1]


def test_samplers_that_do_not_know_mixtures_draw_positions() -> None:
    """torch's samplers, and ours, draw from an epoch with the shares of the mixture; past its end is an IndexError."""
    mixture = mix(10, 1000, weights=[1, 1], until=100)
    listed = list(mixture)  # type: ignore[call-overload]  # by __getitem__

    assert len(listed) == len(mixture) == 100
    assert Counter(int(value) // 10**7 for (value,) in listed) == {0: 50, 1: 50}
    assert mixture[-1] == listed[99]
    batches = ps.DataLoader(mixture, 10, sampler=ps.DistributedSampler(mixture, 2, 1, seed=0))
    assert sum(int((batch < 10**7).sum()) for (batch,) in batches) > 0
    for index in (100, -101, mixture.order.stride - 1, mixture.order.stride + 1010):
        with pytest.raises(IndexError, match=rf"index {index} is out of range of 100 samples of the mixture"):
            mixture[index]
    with pytest.raises(TypeError, match="must be integers"):
        mixture["x"]
    with pytest.raises(ArgumentError, match="whose sampler is one of this mixture, got DistributedSampler"):
        mixture.stats(batches)


def test_a_proxy_draws_positions() -> None:
    """A dataset that passes attributes on to a mixture is no mixture: its loader makes the usual sampler."""

    class Proxy:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def __len__(self) -> int:
            return len(self.inner)

        def __getitem__(self, index: int) -> Any:
            return self.inner[index][0]

    loader = ps.DataLoader(Proxy(mix(10, 1000, weights=[1, 1], until=100)), 10, shuffle=True, seed=0)

    assert isinstance(loader.sampler, ps.RandomSampler)
    assert sum(int((batch < 10**7).sum()) for batch in loader) == 50


def test_samples_without_rows_come_one_by_one() -> None:
    """A list is a source, too; samples keep their order in a batch."""
    mixture = ps.Mixture({"a": ["a0", "a1"], "b": [f"b{i}" for i in range(4)]}, weights=[1, 2], until=6)

    batches = list(ps.DataLoader(mixture, 3, seed=0, collate_fn=list))

    assert sorted(sample for batch in batches for sample in batch) == ["a0", "a1", "b0", "b1", "b2", "b3"]
    assert pickle.loads(pickle.dumps(mixture))[0] == mixture[0]
    assert isinstance(mixture, ps.Mixture)
    assert repr(mixture) == "Mixture(a, b, weights=[1, 2], until=6)"


def test_states_of_other_mixtures_are_refused() -> None:
    """Other shares or sizes are another order."""
    state = mix(10, 20, weights=[1, 2]).make_sampler(seed=0).state_dict()

    for other in (mix(10, 20, weights=[1, 3], until=15), mix(20, 10, weights=[1, 2], until=15)):
        with pytest.raises(StateError, match="mixture"):
            other.make_sampler(seed=0).load_state_dict({**state, "sampler": {**state["sampler"], "num_samples": 15}})


def test_epochs_beyond_the_arithmetic_are_refused() -> None:
    """Positions are exact up to 2**50."""
    with pytest.raises(ArgumentError, match=r"epoch must be below \d+ for epochs of 1000 samples"):
        mix(10, until=1000).make_sampler(seed=0).order(0, 1, epoch=10**13)


_TWO = {"a": numbers(0, 10), "b": numbers(1, 20)}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"weights": {"a": 1}}, "weights must have one number for each source (a, b), got no b"),
        ({"weights": {"a": 1, "b": 1, "c": 1}}, "weights must have one number for each source (a, b), got unknown c"),
        ({"weights": [1]}, "weights must have one number for each of 2 sources, got 1"),
        ({"weights": 3}, "weights must be a mapping of names to numbers"),
        ({"weights": "ab"}, "weights must be a mapping of names to numbers"),
        ({"weights": [1, 0]}, "weights must be above 0, got [1, 0]: leave out sources"),
        ({"weights": [1, -1]}, "weights must be finite and not negative, got -1 for 'b'"),
        ({"weights": [math.nan, 1]}, "weights must be finite and not negative, got nan for 'a'"),
        ({"weights": [math.inf, 1]}, "weights must be finite and not negative, got inf for 'a'"),
        ({"weights": ["1", 1]}, "weights must be finite and not negative, got '1' for 'a'"),
        ({"weights": [1, 1e-20]}, "weights must give each source at least 1e-12 of all samples, got 1e-20 for 'b'"),
        ({"weights": [1, 1], "temperature": 2}, "give only one of them"),
        ({"temperature": 0}, "temperature must be a number above 0, got 0"),
        ({"temperature": math.nan}, "temperature must be a number above 0, got nan"),
        (
            {"temperature": 1e-6},
            "temperature must give each source at least 1e-12 of all samples, got 2.22507e-308 for 'a'",
        ),
        ({"until": np.ones(2)}, "until must be 'first', 'all' or a positive number of samples, got array"),
        ({"temperature": "hot"}, "temperature must be a number above 0, got 'hot'"),
        ({"weights": [(1, [1, 1])], "until": 9}, "the schedule of weights must begin at 0, got 1"),
        ({"weights": [(0, [1, 1]), (0, [1, 2])], "until": 9}, "must have increasing starts, got 0 after 0"),
        ({"weights": [(0, [1, 1]), (-3, [1, 2])], "until": 9}, "weights[1] must begin with a number of samples"),
        ({"weights": [(0, [1, 0]), (9, [1, 0])], "until": 9}, "got 0 in each for 'b'"),
        ({"weights": [(0, [0, 0]), (9, [1, 0])], "until": 9}, "weights[0] must be above 0 for at least one source"),
        ({"weights": [(0, [1, 1]), (9, {"a": 1})], "until": 9}, "weights[1] must have one number for each source"),
        ({"weights": [(0, [1, 1]), (9, [1, 2])]}, "until must be a number of samples where a schedule"),
        ({"until": "last"}, "until must be 'first', 'all' or a positive number of samples, got 'last'"),
        ({"until": 0}, "until must be 'first', 'all' or a positive number of samples, got 0"),
        ({"until": True}, "until must be 'first', 'all' or a positive number of samples, got True"),
        ({"schedule_unit": "steps"}, "schedule_unit must be samples or epochs, got 'steps'"),
        ({"sources": []}, "sources must be a mapping of names to datasets"),
        ({"sources": {}}, "sources must be a mapping of names to datasets"),
        ({"sources": {1: [1]}}, "sources must be a mapping of names to datasets"),
        ({"sources": {"a": [1], "b": []}}, "must have samples, got none in 'b'"),
        ({"sources": {"a": object()}}, "must be given where the length of a source is unknown"),
        ({"sources": {"a": object()}, "weights": [1]}, "must be streams or have a length, got none for 'a'"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(options: dict[str, Any], text: str) -> None:
    """One sentence names what was given and what to do, when the mixture is made."""
    with pytest.raises(ArgumentError, match=re.escape(text)):
        ps.Mixture(**{"sources": _TWO, **options})


def test_sources_with_different_fields_are_refused() -> None:
    """The sources and their fields are named before workers start."""
    pictures = ps.StackDataset(image=numbers(0, 9), label=numbers(0, 9))
    mixture = ps.Mixture({"a": pictures, "b": ps.StackDataset(image=numbers(1, 9))})

    with pytest.raises(ArgumentError, match=r"got \['image', 'label'\] for 'a' and \['image'\] for 'b'"):
        ps.DataLoader(mixture, 4, num_workers=2)
