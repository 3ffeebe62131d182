"""StatefulDistributedSampler: torch's order, torchdata's state, and a position that is never lost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import penstock as ps

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402  # it is there now

import penstock.torch as pt  # noqa: E402  # as above

NUMBERS: Any = range(23)


def sampler(rank: int = 0, **kwargs: Any) -> pt.StatefulDistributedSampler[int]:
    """A rank of three."""
    return pt.StatefulDistributedSampler(NUMBERS, 3, rank, **kwargs)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_order_is_torchs(shuffle: bool, drop_last: bool) -> None:
    """Of every rank in every epoch."""
    for rank, epoch in itertools.product(range(3), range(2)):
        ours = sampler(rank, shuffle=shuffle, seed=7, drop_last=drop_last)
        theirs = data.DistributedSampler[int](NUMBERS, 3, rank, shuffle, 7, drop_last)
        ours.set_epoch(epoch)
        theirs.set_epoch(epoch)

        assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)


@pytest.mark.parametrize("position", range(9))
def test_a_state_goes_on_at_every_position(position: int) -> None:
    """The state has torchdata's layout; what was given and what comes after it is the epoch."""
    one, two = sampler(seed=7), sampler(seed=7)
    walk = iter(one)
    given = [next(walk) for _ in range(position)]
    state = one.state_dict()
    two.load_state_dict(state)

    assert state == {"yielded": position}
    assert given + list(two) == list(sampler(seed=7))
    assert list(two) == list(sampler(seed=7))


def test_attributes_are_torchdatas() -> None:
    """`yielded` counts, `next_yielded` waits to be taken, and may be taken by an iterator that is under way."""
    ours = sampler()
    fresh = ours.yielded, ours.next_yielded
    walk = iter(ours)
    next(walk)
    ours.load_state_dict({"yielded": 5})
    loaded = ours.yielded, ours.next_yielded
    index = next(walk)

    assert (fresh, loaded) == ((0, None), (1, 5))
    assert (ours.yielded, ours.next_yielded) == (6, None)
    assert index == list(sampler())[5]


def test_a_loaded_state_is_given_back() -> None:
    """Saving again before anything was drawn loses nothing; torchdata forgets the position here."""
    ours = sampler()
    ours.load_state_dict({"yielded": 4})
    iter(ours)

    assert ours.state_dict() == {"yielded": 4}


def test_another_epoch_begins_at_its_start() -> None:
    """A state that is taken between set_epoch and the first index is not at the last epoch's end, as torchdata's is."""
    ours = sampler()
    list(ours)
    at_end = ours.state_dict()
    ours.set_epoch(0)
    still = ours.state_dict()
    ours.set_epoch(1)

    assert at_end == still == {"yielded": len(ours)}
    assert ours.state_dict() == {"yielded": 0}


def test_set_epoch_does_not_undo_a_resume() -> None:
    """Training loops call set_epoch at the top of each epoch, also of the one that is resumed."""
    ours, straight = sampler(), sampler()
    for each in (ours, straight):
        each.set_epoch(3)
    ours.load_state_dict({"yielded": 4})
    ours.set_epoch(3)
    resumed = list(ours)
    ours = sampler()
    ours.load_state_dict({"yielded": 4})
    ours.set_epoch(3)

    assert resumed == list(ours) == list(straight)[4:]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({}, "Invalid state_dict"),
        ([3], "Invalid state_dict"),
        ({"yielded": -1}, "negative yielded value -1"),
        ({"yielded": "3"}, "no int: '3'"),
        ({"yielded": True}, "no int: True"),
        ({"yielded": 9}, "value 9: an epoch of this rank has 8"),
    ],
)
def test_what_is_no_state_of_this_sampler_is_refused(state: Any, text: str) -> None:
    """With torchdata's ValueError, which is a StateError too; the position stays."""
    ours = sampler()

    with pytest.raises(ValueError, match=text) as caught:
        ours.load_state_dict(state)

    assert isinstance(caught.value, ps.StateError)
    assert ours.state_dict() == {"yielded": 0}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torchs_loader_resumes_it(num_workers: int) -> None:
    """Also without batches, where torch's loader asks for an iterator twice in an epoch with workers."""
    for batch_size in (2, None):
        ours = sampler(seed=7)
        ours.load_state_dict({"yielded": 3})
        loader: Any = data.DataLoader(NUMBERS, batch_size, sampler=ours, num_workers=num_workers)
        seen = [int(index) for batch in loader for index in torch.as_tensor(batch).reshape(-1)]

        assert seen == list(sampler(seed=7))[3:]


def test_without_ranks_they_come_from_the_process_group() -> None:
    """And without one, the error is torch's."""
    with pytest.raises(ValueError, match="process group"):
        pt.StatefulDistributedSampler(NUMBERS)
