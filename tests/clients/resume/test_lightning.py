"""Lightning's ``Trainer``: checkpoints at each place where it can save, by ranks that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

import penstock.torch as pt
from penstock.torch.resume import LightningResume
from tests.clients.harness import Net, Samples
from tests.clients.resume.lives import Case, Life, Log, Program, live, run_case
from tests.clients.resume.ranked import count, end, make_loader
from tests.clients.test_lightning import pytestmark  # noqa: F401  # the same warnings of Lightning's

EPOCHS = 2
BATCHES = 7


class Model(pl.LightningModule):
    """The net; notes what it was given."""

    def __init__(self, log: Any, *, estimates: bool = False) -> None:
        super().__init__()
        self.net, self.notes, self.estimates = Net(), log, estimates

    def training_step(self, batch: Any, _: int) -> Any:
        """A loss."""
        self.notes.batch(batch)
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        if self.trainer.world_size < 3:  # DDP adds up three ranks' gradients in another order from its second step on
            self.notes.note("loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        """Nothing."""

    def configure_optimizers(self) -> Any:
        """With what schedules with a warm-up ask for."""
        assert not self.estimates or self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Kill(pl.Callback):
    """Saves after so many batches, and is killed after so many."""

    def __init__(self, log: Log, folder: Path) -> None:
        self.notes, self.folder = log, folder

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """After each batch."""
        if self.notes.saves():
            trainer.save_checkpoint(self.folder / f"at-{self.notes.batches}.ckpt")
        self.notes.may_die()


def trainer(*callbacks: Any, **more: Any) -> Any:
    """One that writes nothing by itself."""
    return pl.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, max_epochs=EPOCHS,
        enable_model_summary=False, num_sanity_val_steps=0, callbacks=[LightningResume(), *callbacks], **more,
    )  # fmt: skip


def program(**more: Any) -> Program:
    """A fit whose loader's sampler is penstock's: made when the ranks are known."""

    def train(log: Log, folder: Path, case: Case, life: Life) -> None:

        class Module(pl.LightningDataModule):
            def train_dataloader(self) -> Any:
                return make_loader(case, **more)

        model = Model(log, estimates=True)
        strategy = {"strategy": "ddp", "devices": case.ranks} if case.ranks > 1 else {}
        fit = trainer(
            Kill(log, folder), accumulate_grad_batches=case.accumulation, use_distributed_sampler=False, **strategy
        )
        place = folder / f"at-{life.resume}.ckpt" if life.resume else None
        fit.fit(model, datamodule=Module(), ckpt_path=place, weights_only=False)
        if case.ranks < 3:
            end(log, model.net)

    return train


CASES = [
    Case(),
    Case(workers=2, drop_last=True, accumulation=2),
    Case(ranks=2, drop_last=True, accumulation=2),
    Case(ranks=2, workers=2),
    Case(ranks=3, accumulation=2),
    Case(ranks=3, workers=2, drop_last=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_twice(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the first epoch, and within the second: batches, losses, weights and random states are the same."""
    if case.ranks > 1:
        as_by_torchrun(monkeypatch)
    one = count(case)
    first, second = 2, one + 2  # both where no gradients wait: an epoch's last batch ends a step
    lives = [Life(0, first, first + 1), Life(first, second, second + 1), Life(second)]
    run_case(program(), tmp_path, case, lives, EPOCHS * one)


def as_by_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Lightning take the ranks as they are."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("GROUP_RANK", "0")


def test_another_number_of_ranks_after_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the last batch of an epoch on two ranks to the next epoch on three."""
    as_by_torchrun(monkeypatch)
    train, before, after = program(seed=7, seed_per_sample=True), Case(2), Case(3)
    last = count(before)
    whole = live(train, tmp_path, after, Life())
    live(train, tmp_path, before, Life(0, last, last))
    ended = live(train, tmp_path, after, Life(last))

    given = [[[value for word, value in noted if word == "batch"] for noted in ranks] for ranks in (whole, ended)]
    assert given[1] == [batches[count(after) :] for batches in given[0]]


class SaveAll(pl.Callback):
    """Saves at one kind of place, each time."""

    def __init__(self, folder: Path, place: str) -> None:
        self.folder, self.place, self.batches = folder, place, 0

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """After each batch."""
        self.batches += 1
        self._save(trainer, "batch")

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        """As ``ModelCheckpoint`` does."""
        self._save(trainer, "epoch")

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        """As ``ModelCheckpoint`` does where there is a validation."""
        self._save(trainer, "validation")

    def _save(self, trainer: Any, place: str) -> None:
        if place == self.place:
            trainer.save_checkpoint(self.folder / f"{self.batches}.ckpt")


class Noted:
    """A log in memory."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def batch(self, value: Any) -> None:
        """What the model is given."""
        self.batches.append(value[-1].tolist())

    def note(self, word: str, value: Any) -> None:
        """Nothing: Lightning saves no generator, from which dropout draws before there are loaders."""


class Endless(torch.utils.data.IterableDataset[Any]):
    """Streams samples whose numbers go on from epoch to epoch, and whose number is not known before its end."""

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Iterator[Any]:
        start = self.given // 26 * 26
        samples = Samples()
        while self.given < start + 26:
            self.given += 1
            yield (*samples[self.given % 2][:2], self.given - 1)

    def state_dict(self) -> dict[str, int]:
        """How many it has given."""
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on behind as many."""
        self.given = state["given"]


MAKERS: dict[str, Any] = {
    "map": lambda: pt.DataLoader(Samples(), 4, shuffle=True, seed=3),
    "stream": lambda: pt.DataLoader(Endless(), 4),
}


@pytest.mark.parametrize("place", ["batch", "epoch", "validation"])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("more", [{}, {"limit_train_batches": 5}, {"val_check_interval": 3}], ids=str)
def test_each_place_where_it_saves(place: str, kind: str, more: dict[str, Any], tmp_path: Path) -> None:
    """Each batch, each end of an epoch or of a validation; a stream's batch that is read ahead is not lost."""

    def run(*callbacks: Any, begin: Path | None = None) -> list[list[int]]:
        model = Model(Noted(), estimates=kind == "map")
        fit = trainer(*callbacks, **more)
        fit.fit(model, MAKERS[kind](), pt.DataLoader(Samples(5), 4), ckpt_path=begin, weights_only=False)
        batches: list[list[int]] = model.notes.batches
        return batches

    whole = run(SaveAll(tmp_path, place))
    places = {int(path.stem): path for path in tmp_path.iterdir()}
    if place == "batch":
        places = {number: places[number] for number in (1, 4, 5, 7, 9, len(whole) - 1) if number in places}
    left = {number: run(begin=path) for number, path in places.items()}

    assert left
    assert len({str(batch) for batch in whole}) == len(whole)
    for number, batches in left.items():
        assert (number, batches) == (number, whole[number:])


def test_a_checkpoint_without_the_callback(tmp_path: Path) -> None:
    """It is loaded as Lightning does; and one that has the callback's states trains without it."""
    model = Model(Noted())
    plain = trainer(SaveAll(tmp_path, "batch"), limit_val_batches=0)
    plain.callbacks = [each for each in plain.callbacks if not isinstance(each, LightningResume)]
    plain.fit(model, MAKERS["map"]())
    again = Model(Noted())
    trainer(limit_val_batches=0).fit(again, MAKERS["map"](), ckpt_path=tmp_path / "9.ckpt", weights_only=False)

    assert again.notes.batches == model.notes.batches[9:]
