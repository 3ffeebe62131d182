"""Random programs with torch's loader and with penstock's: what can be seen of them is the same."""

from __future__ import annotations

import importlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from penstock.loader.tuning import LoaderTuner, Setting  # noqa: E402  # as below
from penstock.torch.loader import dataloader  # noqa: E402  # torch is there now
from tests.effort import IS_PART  # noqa: E402  # as above
from tests.parity.fuzzing.amendments import AMENDMENTS  # noqa: E402  # as above
from tests.parity.fuzzing.build import is_stream  # noqa: E402  # as above
from tests.parity.fuzzing.compare import check  # noqa: E402  # as above
from tests.parity.fuzzing.execute import execute  # noqa: E402  # as above
from tests.parity.fuzzing.generate import generate  # noqa: E402  # as above
from tests.parity.fuzzing.resume import check_resume, resumable  # noqa: E402  # as above
from tests.parity.fuzzing.rules import RULES  # noqa: E402  # as above
from tests.parity.fuzzing.shrink import shrink  # noqa: E402  # as above

samples: Any = importlib.import_module("penstock.workers.jobs.samples")  # its names are changed below

MENDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "fuzzing" / "mended.json").read_text())

# threads of torch's own queues, whose descriptors are closed under them when an iterator is dropped
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def surprises(numbers: range, *, workers: bool) -> list[Any]:
    """The differences of some programs that are neither meant nor listed as open."""
    found = []
    for number in numbers:
        result = check(generate(number, workers=workers))
        if result.difference is not None:
            found.append((number, result.difference))
    return found


@pytest.mark.parametrize("first", range(0, 100, 50))
def test_programs_do_as_with_torch(first: int) -> None:
    """Batches, errors, warnings, calls of datasets and samplers, and random states, event by event."""
    assert surprises(range(first, first + 50), workers=False) == []


def test_programs_with_workers_do_as_with_torch() -> None:
    """The same with worker processes."""
    assert surprises(range(6), workers=True) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(100, 600 if IS_PART else 3100, 500))
def test_many_programs_do_as_with_torch(first: int) -> None:
    """The same, for minutes; `make fuzz-torch` goes on for as long as is wanted."""
    assert surprises(range(first, first + 500), workers=False) == []
    assert surprises(range(first // 10, first // 10 + 30), workers=True) == []


def take(program: dict[str, Any], workers: int | str) -> list[Any]:
    """What the consumer gets of a program's loader with other workers: batches, and the types of errors."""
    loader = {**program["loader"], "seed_per_sample": True, "num_workers": workers}
    events = execute({**program, "loader": loader}, "own")
    return [event[1:-1] if event[0] == "batch" else event[1:3] for event in events if event[0] in {"batch", "raised"}]


def depends_on_changes(numbers: range, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], int]:
    """Programs that give the same with any fixed number of workers, but not with changing ones; how many were tried."""
    draw, found, tried = random.Random(numbers.start), list[int](), 0

    def record(self: LoaderTuner, rows: int, waited_ns: int) -> bool:
        del rows, waited_ns
        if draw.random() < 0.3:
            return False
        self.setting = Setting(draw.randint(1, 4), draw.randint(1, 3))
        return True

    monkeypatch.setattr(LoaderTuner, "record", record)
    for number in numbers:
        program = generate(number, workers=True)
        loader = program.get("loader", {})
        if not loader.get("num_workers") or not loader.get("in_order", True) or is_stream(program.get("dataset", {})):
            continue
        want = take(program, 1)
        if all(take(program, workers) == want for workers in (2, 3, 5)):
            tried += 1
            found += [] if take(program, "auto") == want else [number]
    return found, tried


def test_programs_do_not_depend_on_changing_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """``num_workers="auto"``, which changes at random moments."""
    found, tried = depends_on_changes(range(8), monkeypatch)
    assert found == []
    assert tried > 2


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_programs_do_not_depend_on_changing_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, for minutes."""
    found, tried = depends_on_changes(range(8, 100 if IS_PART else 300), monkeypatch)
    assert found == []
    assert tried > 30


def differing_resumes(numbers: range, *, workers: bool) -> list[Any]:
    """Programs that go on in another way once their state was loaded by a fresh loader."""
    return [(n, told) for n in numbers if (told := check_resume(resumable(n, workers=workers))) is not None]


def test_programs_are_resumed() -> None:
    """A state taken in mid-epoch, as JSON, and loaded by a fresh loader, gives the rest and the next epoch."""
    assert differing_resumes(range(40), workers=False) == []
    assert differing_resumes(range(3), workers=True) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, 500 if IS_PART else 3000, 500))
def test_many_programs_are_resumed(first: int) -> None:
    """The same, for minutes."""
    assert differing_resumes(range(40 + first, 540 + first), workers=False) == []
    assert differing_resumes(range(3 + first // 25, 23 + first // 25), workers=True) == []


# what passes for the same


@pytest.mark.parametrize("entry", MENDED, ids=lambda entry: entry["name"])
def test_what_was_different_once_is_the_same(entry: dict[str, Any]) -> None:
    """Programs of which this was found, and mended."""
    assert check({"seed": 1, **entry["program"]}).difference is None


@pytest.mark.parametrize("known", [*RULES, *AMENDMENTS], ids=lambda known: known.name)
def test_differences_that_are_meant_are_told(known: Any) -> None:
    """Users read of each in the documentation."""
    page = Path(__file__).resolve().parents[2] / "docs" / "from-torch.md"

    assert known.told in " ".join(page.read_text().split())


# what would be found


def plain(**more: Any) -> dict[str, Any]:
    """A program in which nothing odd happens."""
    drawing = {"kind": "map", "n": 7, "draws": ["random", "numpy", "torch"]}
    return {
        "seed": 3,
        "dataset": drawing,
        "loader": {"batch_size": 3, "shuffle": True},
        "ops": [{"do": "epoch"}],
        **more,
    }


def draws_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random number more at iter()."""
    begin = dataloader.DataLoader._get_iterator

    def begin_and_draw(self: Any) -> Any:
        torch.rand(())
        return begin(self)

    monkeypatch.setattr(dataloader.DataLoader, "_get_iterator", begin_and_draw)


def asks_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples of a batch are asked for from its end."""
    fetch = samples.fetch

    def backwards(dataset: Any, indices: Any, keys: Any, *rest: Any, **more: Any) -> Any:
        return fetch(dataset, indices[::-1], keys[::-1], *rest, **more)[::-1]

    monkeypatch.setattr(samples, "fetch", backwards)


def asks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset is asked for a sample that is not used, and random states are put back."""
    fetch = samples.fetch

    def twice(dataset: Any, indices: Any, *rest: Any, **more: Any) -> Any:
        before = random.getstate(), torch.get_rng_state()
        dataset[indices[0]]
        random.setstate(before[0])
        torch.set_rng_state(before[1])
        return fetch(dataset, indices, *rest, **more)

    monkeypatch.setattr(samples, "fetch", twice)


def overwrites(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is changed once the next one has come."""
    collated = samples.collate_samples
    last: list[Any] = []

    def collate(*arguments: Any) -> Any:
        batch = collated(*arguments)
        for tensor in last:
            tensor.zero_()
        last[:] = [batch[1]]
        return batch

    monkeypatch.setattr(samples, "collate_samples", collate)


def forgets_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values are right, the dtype is not."""
    collated = samples.collate_samples
    monkeypatch.setattr(samples, "collate_samples", lambda *arguments: [part.float() for part in collated(*arguments)])


@pytest.mark.parametrize("plant", [draws_more, asks_backwards, asks_twice, overwrites, forgets_dtype])
def test_a_difference_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these would be a defect, and is a surprise."""
    assert check(plain()).difference is None
    plant(monkeypatch)

    assert check(plain()).difference is not None


def test_a_program_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has nothing to do with the difference goes."""
    draws_more(monkeypatch)
    wrapped = {"kind": "concat", "parts": [plain()["dataset"], {"kind": "list", "n": 4}]}
    ops = [{"do": "draw"}, {"do": "len"}, {"do": "epoch"}, {"do": "forget"}]

    small = shrink(plain(dataset=wrapped, ops=ops), lambda program: check(program).difference is not None)

    assert len(json.dumps(small)) < 60


def test_programs_are_the_same_every_day() -> None:
    """A number stands for one program, which is JSON."""
    assert generate(5) == generate(5) == json.loads(json.dumps(generate(5)))
    assert len({json.dumps(generate(number)["dataset"]) for number in range(50)}) > 45
