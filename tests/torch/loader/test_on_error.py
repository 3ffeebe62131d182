"""penstock.torch.DataLoader without samples that cannot be built, and with generators seeded by sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import penstock as ps  # noqa: E402  # it needs torch
import penstock.torch as pt  # noqa: E402  # as above
from penstock.errors import ArgumentError, SampleError  # noqa: E402  # as above
from tests.torch.streams import Drawn, Filled, frozen, part  # noqa: E402  # as above

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

KINDS: dict[str, dict[str, Any]] = {
    "serial": {},
    "threads": {"num_workers": 2, "workers": "threads"},
    "processes": {"num_workers": 2, "workers": "processes", "multiprocessing_context": "fork"},
}
ON = pytest.mark.parametrize("kind", KINDS)


class Some(Drawn):
    """Samples of which some cannot be built."""

    def __init__(self, n: int = 12, bad: Any = (3, 5, 10)) -> None:
        super().__init__(n)
        self.bad = frozenset(bad)

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise ValueError(f"bad {index}")
        return super().__getitem__(index)


class SomeRows(Filled):
    """The same, filled."""

    def __init__(self, n: int = 12, bad: Any = (3, 5, 10)) -> None:
        super().__init__(n)
        self.bad = frozenset(bad)

    def fill(self, indices: Any, out: Any, keys: Any, rows: Any = None) -> None:
        """As the interface has it."""
        for index in sorted(self.bad.intersection(indices.tolist())):
            raise ValueError(f"bad {index}")
        super().fill(indices, out, keys, rows)


class SomeOf(torch.utils.data.IterableDataset[Any]):  # type: ignore[name-defined,misc]  # a module found at run time
    """A stream of them, in parts."""

    def __init__(self, n: int = 12) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Any:
        start, step = part()
        return map(Some(self.n).__getitem__, range(start, self.n, step))


def first(batch: Any) -> list[int]:
    """Which samples a batch has."""
    found: list[int] = (batch["x"][:, 0] if isinstance(batch, dict) else batch[0]).tolist()
    return found


@ON
@pytest.mark.parametrize("dataset", [Some, SomeRows])
def test_skip_gives_shorter_batches_and_lists_what_is_missing(dataset: Any, kind: str) -> None:
    """Everything else comes as it was; the count of samples is of those delivered."""
    loader: Any = pt.DataLoader(dataset(), 4, on_error="skip", **KINDS[kind])

    assert [first(batch) for batch in loader] == [[0, 1, 2], [4, 6, 7], [8, 9, 11]]
    assert [(lost.batch, lost.index, lost.reason) for lost in loader.left_out] == [
        (0, 3, "bad 3"), (1, 5, "bad 5"), (2, 10, "bad 10")
    ]  # fmt: skip
    assert loader.stats().samples == 9


@ON
@pytest.mark.parametrize("dataset", [Some, SomeRows])
def test_replace_keeps_the_size_of_batches(dataset: Any, kind: str) -> None:
    """Another sample of the batch stands in, the same whoever works."""
    loader = pt.DataLoader(dataset(), 4, seed=2, on_error="replace", **KINDS[kind])
    serial = pt.DataLoader(dataset(), 4, seed=2, on_error="replace")

    found = [first(batch) for batch in loader]

    assert found == [first(batch) for batch in serial]
    assert [len(batch) for batch in found] == [4, 4, 4]
    assert not {3, 5, 10}.intersection(*found)


@ON
def test_a_stream_goes_on_behind_what_failed(kind: str) -> None:
    """What is left out is followed by what comes next; batches stay whole."""
    loader: Any = pt.DataLoader(SomeOf(), 2, on_error="skip", **KINDS[kind])

    found = [first(batch) for batch in loader]

    if kind == "processes":
        assert found == [[0, 2], [1, 7], [4, 6], [9, 11], [8]]
    else:
        assert found == [[0, 1], [2, 4], [6, 7], [8, 9], [11]]
    assert sorted(lost.reason for lost in loader.left_out) == ["bad 10", "bad 3", "bad 5"]


@ON
def test_a_batch_of_nothing_does_not_come(kind: str) -> None:
    """Neither in the epoch nor after a resume behind it, where nothing is listed twice."""
    arguments = {"batch_size": 3, "on_error": "skip", "snapshot_every_n_steps": 4, **KINDS[kind]}
    loader: Any = pt.DataLoader(Some(12, range(2, 6)), **arguments)
    walk = iter(loader)
    found = [first(next(walk)) for _ in range(2)]
    state = json.loads(json.dumps(loader.state_dict()))
    again: Any = pt.DataLoader(Some(12, range(2, 6)), **arguments)
    again.load_state_dict(state)

    assert found == [[0, 1], [6, 7, 8]]
    assert [first(batch) for batch in again] == [first(batch) for batch in walk] == [[9, 10, 11]]
    assert [lost.index for lost in loader.left_out] == [2, 3, 4, 5]
    assert again.left_out == []


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> int:
    """A process group of two ranks, of which this process is one."""
    distributed = torch.distributed
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "get_rank", lambda: 0)
    return 2


@pytest.mark.parametrize("module", [ps, pt])
def test_ranks_are_warned_of_unequal_numbers_of_steps(module: Any, ranks: int) -> None:
    """A batch that lost every sample does not come: "skip" warns under a process group, and names "replace"."""
    loader = module.DataLoader(Some(8, bad=(0, 1)), 2, on_error="skip")

    with pytest.warns(UserWarning, match=r"the 2 ranks may then take unequal.*\n?.*replace") as caught:
        assert len(list(loader)) == 3

    assert [warning.filename for warning in caught] == [__file__]
    for quiet in ("raise", "replace"):
        iter(module.DataLoader(Some(8, bad=()), 2, on_error=quiet))


@pytest.mark.parametrize(
    ("module", "make"),
    [
        (ps, ps.DistributedSampler),
        (pt, ps.DistributedSampler),
        (pt, pt.DistributedSampler),
        (pt, pt.StatefulDistributedSampler),
    ],
)
def test_replacing_keeps_the_number_of_steps_of_each_rank(module: Any, make: Any) -> None:
    """Where a rank's batch lost every sample, one of the dataset stands in."""
    dataset = Some(8, bad=(0, 2))
    counts = []
    for rank in range(2):
        sampler = make(dataset, 2, rank, shuffle=False)
        batches = list(module.DataLoader(dataset, 2, sampler=sampler, on_error="replace"))
        counts.append([len(first(batch)) for batch in batches])
        assert not {0, 2} & {number for batch in batches for number in first(batch)}

    assert counts == [[2, 2], [2, 2]]


@ON
def test_too_many_losses_are_an_error_also_after_a_resume(kind: str) -> None:
    """The budget is the epoch's, whoever goes on with it."""
    arguments = {"batch_size": 4, "on_error": "skip", "max_errors": 2, **KINDS[kind]}
    loader: Any = pt.DataLoader(Some(), **arguments)
    walk = iter(loader)
    for _ in range(2):
        next(walk)
    again: Any = pt.DataLoader(Some(), **arguments)
    again.load_state_dict(loader.state_dict())

    for rest in (walk, iter(again)):
        with pytest.raises(SampleError, match="more than max_errors=2 allows"):
            next(rest)


@ON
def test_the_log_has_a_line_for_each(kind: str, tmp_path: Path) -> None:
    """JSON, with what it was, where, and why."""
    log = tmp_path / "left-out.jsonl"
    for _ in pt.DataLoader(Some(), 4, on_error="replace", error_log=log, **KINDS[kind]):
        pass

    lines = [json.loads(line) for line in log.read_text().splitlines()]

    assert [(line["index"], line["batch"], line["type"], line["reason"]) for line in lines] == [
        (3, 0, "ValueError", "bad 3"), (5, 1, "ValueError", "bad 5"), (10, 2, "ValueError", "bad 10")
    ]  # fmt: skip


def test_what_means_nothing_is_refused() -> None:
    """At once, by name."""
    for arguments in ({"on_error": "ignore"}, {"max_errors": 3}, {"error_log": "x"}):
        with pytest.raises(ArgumentError, match=next(iter(arguments))):
            pt.DataLoader(Some(), **arguments)


def augmented(batch: Any) -> Any:
    """A collation that draws too."""
    return torch.utils.data.default_collate(batch), torch.rand(()), Drawn(1)[0]


SEEDED: dict[str, Any] = {"batch_size": 4, "shuffle": True, "collate_fn": augmented, "seed_per_sample": True}
ANYONE: list[dict[str, Any]] = [
    {},
    *({"num_workers": n, "workers": "threads"} for n in (1, 2, 5)),
    *({"num_workers": n, "workers": "processes", "multiprocessing_context": "fork"} for n in (1, 2, 5)),
]


def test_seeded_by_sample_everybody_draws_the_same() -> None:
    """Samples and collations, in both epochs, for workers 0, 1, 2, 5 and each kind; nobody else's generators move."""
    found = []
    for workers in ANYONE:
        torch.manual_seed(11)
        arguments = {**SEEDED, **workers}
        loader = pt.DataLoader(Drawn(), **arguments)
        found.append([[frozen(batch) for batch in loader] for _ in range(2)])

    assert all(each == found[0] for each in found)
    assert found[0][0] != found[0][1]


@pytest.mark.slow
def test_seeded_by_sample_a_resumed_epoch_draws_the_same() -> None:
    """From any worker to any other."""
    rest = []
    for workers, others in zip(ANYONE, [*ANYONE[1:], ANYONE[0]], strict=True):
        torch.manual_seed(11)
        loader = pt.DataLoader(Drawn(), **SEEDED, **workers)
        walk = iter(loader)
        next(walk)
        again = pt.DataLoader(Drawn(), **SEEDED, **others)
        again.load_state_dict(loader.state_dict())
        rest += [[frozen(batch) for batch in walk], [frozen(batch) for batch in again]]

    assert all(each == rest[0] for each in rest)
