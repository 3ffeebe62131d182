"""States through faults: what torchdata's loader gets wrong (found in torch 2.15), and A24, A25."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock as ps
import penstock.torch
from penstock.errors import StateError
from tests.effort import mark_slow
from tests.faults.conftest import Load
from tests.faults.harness import Indices, kill_once, run_script

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores, on purpose


class Drawing(Indices):
    """Each sample has a number of its worker's generator, as user code draws it."""

    def __getitem__(self, index: int) -> Any:
        return np.array([index, np.random.random()])  # noqa: NPY002  # as user code does


def tail(loader: Any, walk: Any = None) -> list[Any]:
    """The rest of this epoch, and the next one."""
    batches = [batch.tolist() for batch in (iter(loader) if walk is None else walk)]
    return batches + [batch.tolist() for batch in loader]


def tail_of(loader: Any, state: Any) -> list[Any]:
    """What a loader gives from a state on."""
    loader.load_state_dict(state)
    return tail(loader)


@pytest.mark.parametrize("after", mark_slow((0, 1, 4, 7, 8), (1, 8)))
def test_found_a_resumed_run_draws_as_if_it_had_not_stopped(after: int) -> None:
    """Found in torchdata: the workers' randomness and the shuffled order go on, in this epoch and the next."""

    def make() -> Any:
        torch.manual_seed(3)
        return penstock.torch.StatefulDataLoader(Drawing(32), 4, shuffle=True, num_workers=2)

    loader = make()
    walk = iter(loader)
    for _ in range(after):
        next(walk)
    state = loader.state_dict()
    torch_state = torch.get_rng_state()
    straight = tail(loader, walk)
    resumed = make()
    resumed.load_state_dict(state)
    torch.set_rng_state(torch_state)

    assert tail(resumed) == straight
    assert len(straight) == 8 - after + 8


@pytest.mark.parametrize(("before", "then"), [(0, 2), (2, 0), (2, 3), (1, 5)])
def test_found_another_number_of_workers_gives_the_same_rest(load: Load, before: int, then: int) -> None:
    """Found in torchdata, which refuses by an assertion; A24: resumed twice, too."""

    def make(num_workers: int) -> Any:
        torch.manual_seed(3)
        kind = type(load(Indices(32)))
        options: dict[str, Any] = {"workers": "processes"} if num_workers else {}
        return kind(Indices(32), 4, shuffle=True, num_workers=num_workers, **options)

    loader = make(before)
    walk = iter(loader)
    seen = [next(walk).tolist() for _ in range(3)]
    twice = make(then)
    twice.load_state_dict(loader.state_dict())
    walk_twice = iter(twice)
    seen_again = [next(walk_twice).tolist() for _ in range(2)]
    last = make(before)
    last.load_state_dict(twice.state_dict())

    assert seen_again + [batch.tolist() for batch in iter(last)] == [batch.tolist() for batch in walk]
    assert len(seen) == 3


def test_found_a_state_of_another_dataset_is_refused(load: Load) -> None:
    """Found in torchdata, which goes on with it; A25: the error says what differs, before a sample is built."""
    loader = load(Indices(32))
    next(iter(loader))
    other = load(Indices(31))

    with pytest.raises(StateError, match=r"3[12]"):
        tail_of(other, loader.state_dict())


@pytest.mark.parametrize("broken", [{}, {"version": 99}, None, [], "state"])
def test_a25_what_is_no_state_is_refused(broken: Any) -> None:
    """Fault A25: cut off, of another version, or nothing at all: an error that is the loader's own."""
    loader = ps.DataLoader(Indices(32), 4)

    with pytest.raises(StateError):
        loader.load_state_dict(broken)


@pytest.mark.parametrize("given", [None, [], "state.json", 3, b"state"])
@pytest.mark.parametrize("module", ["penstock", "torch"])
def test_a25_what_is_no_mapping_is_refused_when_it_is_given(given: Any, module: str) -> None:
    """Fault A25: by both loaders at once, with what was given and what a state is; the loader's place stays."""
    loader = (ps if module == "penstock" else pytest.importorskip("penstock.torch")).DataLoader(Indices(32), 4)
    walk = iter(loader)
    next(walk)
    before = loader.state_dict()

    with pytest.raises(StateError, match=rf"state_dict\(\).*got {type(given).__name__}"):
        loader.load_state_dict(given)

    assert loader.state_dict() == before
    assert next(walk).tolist() == [4, 5, 6, 7]


def test_a24_a_state_taken_after_a_worker_died_is_as_good(tmp_path: Path) -> None:
    """Fault A24: deaths and replays are no part of it."""

    class Dies(Indices):
        def __getitem__(self, index: int) -> Any:
            if index == 9:
                kill_once(tmp_path / "died", signal.SIGKILL)
            return super().__getitem__(index)

    loader = ps.DataLoader(Dies(64), 4, shuffle=True, seed=1, num_workers=2, workers="processes")
    walk = iter(loader)
    seen = [next(walk).tolist() for _ in range(12)]
    resumed = ps.DataLoader(Indices(64), 4, shuffle=True, seed=1)
    resumed.load_state_dict(loader.state_dict())
    rest = [batch.tolist() for batch in iter(resumed)]
    walk.close()

    assert sorted(x for batch in seen + rest for x in batch) == list(range(64))


def test_a24_a_run_killed_at_any_batch_goes_on_where_its_state_says(tmp_path: Path) -> None:
    """Fault A24: killed between saving and the next batch, again and again, a run sees every sample once an epoch."""
    body = """
STATE, SEEN = sys.argv[0] + ".state", sys.argv[0] + ".seen"
if __name__ == "__main__":
    loader = ps.DataLoader(Indices(48), 4, shuffle=True, seed=2, num_workers=2, workers="processes")
    if os.path.exists(STATE):
        loader.load_state_dict(json.load(open(STATE)))
    for _, batch in zip(range(5), loader):
        with open(SEEN, "a") as file:
            file.write(json.dumps(batch[:, 0].tolist()) + "\\n")
        with open(STATE, "w") as file:
            json.dump(loader.state_dict(), file)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    codes = [run_script(tmp_path, body).returncode for _ in range(3)]
    seen = [x for line in (tmp_path / "script.py.seen").read_text().splitlines() for x in json.loads(line)]

    assert codes == [-signal.SIGKILL] * 3
    assert sorted(seen) == list(range(48))
