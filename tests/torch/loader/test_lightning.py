"""Lightning checks loaders, makes them again with another sampler and keeps their state: ours as well as torch's."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_lightning")

import pytorch_lightning as pl  # noqa: E402  # it is there now
from pytorch_lightning.trainer.connectors.data_connector import _get_distributed_sampler  # noqa: E402  # as above
from pytorch_lightning.utilities.data import _update_dataloader  # noqa: E402  # as above

import penstock as ps  # noqa: E402  # as above
import penstock.torch as pt  # noqa: E402  # as above
from tests.effort import mark_slow  # noqa: E402  # as above

pytestmark = [
    # Lightning's own, about the torch it runs on: none of these comes from a loader.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    # Its advice on speed, for the few workers that a test starts.
    pytest.mark.filterwarnings("ignore:The '[a-z]*_dataloader' does not have many workers:UserWarning"),
]


class Numbers(pt.Dataset[Any]):
    """Each index as a tensor, with some noise from torch's generator of whoever makes it, if it is wanted."""

    def __init__(self, *, noise: bool = True) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index)]), torch.rand(()) if self.noise else 0.0


class Model(pl.LightningModule):
    """One weight; remembers what it was trained on."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__()
        self.weight, self.loader = torch.nn.Linear(1, 1), loader
        self.seen: list[Any] = []

    def training_step(self, batch: Any, _: int) -> Any:
        """A loss."""
        self.seen.append((batch[0].flatten().tolist(), batch[1].tolist()))
        return self.weight(batch[0]).mean()

    def train_dataloader(self) -> Any:
        """The loader that it brings along."""
        return self.loader()

    def configure_optimizers(self) -> Any:
        """Some optimizer."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class Save(pl.Callback):
    """Saves a checkpoint after so many batches."""

    def __init__(self, path: Path, after: int) -> None:
        self.path, self.after = path, after

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """After each batch."""
        if trainer.global_step == self.after:
            trainer.save_checkpoint(self.path)


def trainer(**more: Any) -> Any:
    """One that writes nothing."""
    more = {"max_epochs": 2, **more}
    return pl.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **more,
    )  # fmt: skip


def first(batch: list[Any]) -> Any:
    """A collation of our own."""
    return torch.utils.data.default_collate(batch)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_model_sees_what_torchs_loader_shows_it(num_workers: int) -> None:
    """Two epochs of a Trainer: the same order and the same random samples; the loader stays the one it was given."""
    theirs, ours = (
        kind(Numbers(), 4, shuffle=True, num_workers=num_workers)
        for kind in (torch.utils.data.DataLoader, pt.DataLoader)
    )
    expected, model, run = Model(), Model(), trainer()
    torch.manual_seed(3)
    trainer().fit(expected, theirs)

    torch.manual_seed(3)
    run.fit(model, ours)

    assert run.train_dataloader is ours
    assert len(model.seen) == 12
    assert model.seen == expected.seen


@pytest.mark.parametrize("limit", [6, 2])
def test_workers_persist_over_epochs_as_torchs_do(limit: int) -> None:
    """Lightning holds the last epoch's iterator and never asks for its end: orders and random samples are torch's."""
    theirs, ours = (
        kind(Numbers(), 4, shuffle=True, num_workers=2, persistent_workers=True)
        for kind in (torch.utils.data.DataLoader, pt.DataLoader)
    )
    expected, model = Model(), Model()
    torch.manual_seed(3)
    trainer(max_epochs=3, limit_train_batches=limit).fit(expected, theirs)

    torch.manual_seed(3)
    trainer(max_epochs=3, limit_train_batches=limit).fit(model, ours)

    assert len(model.seen) == 3 * limit
    assert model.seen == expected.seen
    ours.close()


EXTRA: dict[str, Any] = {
    "workers": "threads",
    "seed": 5,
    "stall_timeout": 7.0,
    "chunk_size": 3,
    "memory_fraction": 0.25,
    "snapshot_every_n_steps": 4,
    "seed_per_sample": False,
    "overlap_epochs": False,
    "view": False,
    "on_error": "raise",
    "max_errors": None,
    "error_log": None,
    "decode": "auto",
    "channels_last": True,
}


def test_a_loader_made_again_keeps_what_it_was_given() -> None:
    """`overfit_batches` exchanges the sampler: every other argument, torch's and penstock's, is the same object."""
    arguments: dict[str, Any] = {
        "batch_size": 4, "num_workers": 1, "collate_fn": first, "drop_last": True, "prefetch_factor": 3, "timeout": 9,
        "persistent_workers": True, **EXTRA,
    }  # fmt: skip
    loader, model = pt.StatefulDataLoader(Numbers(), shuffle=True, **arguments), Model()

    run = trainer(overfit_batches=2)
    with pytest.warns(UserWarning, match="turning off the train dataloader shuffling"):
        run.fit(model, loader)
    again = run.train_dataloader

    assert again is not loader
    assert type(again) is pt.StatefulDataLoader
    assert again.dataset is loader.dataset
    assert again.generator is loader.generator
    assert {name: getattr(again, name) for name in arguments} == arguments
    assert [numbers for numbers, _ in model.seen] == 2 * [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_every_argument_of_ours_is_an_attribute() -> None:
    """Lightning finds arguments by the names of attributes: there is none that it would lose."""
    added = {*inspect.signature(pt.DataLoader).parameters} - {
        *inspect.signature(torch.utils.data.DataLoader).parameters
    }

    assert added == EXTRA.keys()
    assert added <= vars(pt.DataLoader(Numbers())).keys()


def test_a_loader_from_a_hook_is_made_again_likewise() -> None:
    """What `train_dataloader` of a model returns is recorded while it is made, and made again from that record."""
    make = functools.partial(pt.DataLoader, Numbers(), 4, shuffle=True, num_workers=1, collate_fn=first, **EXTRA)
    model = Model(make)

    run = trainer(overfit_batches=2)
    with pytest.warns(UserWarning, match="turning off the train dataloader shuffling"):
        run.fit(model)
    again = run.train_dataloader

    assert type(again) is pt.DataLoader
    assert again.batch_size == 4
    assert again.collate_fn is first
    assert {name: getattr(again, name) for name in EXTRA} == EXTRA
    assert [numbers for numbers, _ in model.seen] == 2 * [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(("filling", "shuffle"), [(False, True), (True, False)])
def test_ranks_share_out_the_samples(*, shuffle: bool, filling: bool) -> None:
    """With the distributed sampler that Lightning puts in, each of two ranks gets its part, as with torch's loader."""
    dataset = ps.ArrayDataset(torch.arange(22).numpy()) if filling else Numbers()
    parts: dict[Any, list[Any]] = {}
    for kind in (torch.utils.data.DataLoader, pt.DataLoader):
        for rank in (0, 1):
            loader = kind(dataset, 4, shuffle=shuffle, num_workers=1)
            sampler = _get_distributed_sampler(loader, shuffle=shuffle, overfit_batches=0, num_replicas=2, rank=rank)
            again = _update_dataloader(loader, sampler)
            assert type(again) is kind
            for epoch in (0, 1):
                sampler.set_epoch(epoch)
                parts.setdefault(kind, []).append([x for batch in again for x in batch[0].flatten().tolist()])

    assert parts[pt.DataLoader] == parts[torch.utils.data.DataLoader]
    assert sorted(parts[pt.DataLoader][0] + parts[pt.DataLoader][2]) == list(range(22))
    assert (parts[pt.DataLoader][0] != parts[pt.DataLoader][1]) == shuffle


@pytest.mark.parametrize(
    ("after", "before", "later"),
    mark_slow(
        ((after, *pair) for after in (2, 8) for pair in ((0, 0), (2, 2), (2, 0), (0, 1))),
        [(2, 0, 0), (2, 2, 2), (2, 0, 1), (8, 0, 0), (8, 2, 0)],
    ),
)
def test_a_checkpoint_in_mid_epoch_goes_on_with_the_next_batch(
    after: int, before: int, later: int, tmp_path: Path
) -> None:
    """Lightning keeps the loader's state in its checkpoints: another run goes on with the very next sample and, if
    workers are of the same kind, with the same random numbers.
    """
    noise = before == later
    torch.manual_seed(0)
    whole, rest = Model(), Model()
    trainer(callbacks=[Save(tmp_path / "run.ckpt", after)]).fit(
        whole, pt.DataLoader(Numbers(noise=noise), 4, shuffle=True, num_workers=before)
    )
    torch.manual_seed(99)

    trainer().fit(
        rest,
        pt.DataLoader(Numbers(noise=noise), 4, shuffle=True, num_workers=later),
        ckpt_path=tmp_path / "run.ckpt",
        weights_only=True,
    )

    assert len(rest.seen) == 12 - after
    assert rest.seen == whole.seen[after:]
