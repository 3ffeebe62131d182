"""torchtitan: a dataloader of its protocol, ``BaseDataLoader``, in a checkpoint as its checkpointer writes it.

That is one of ``torch.distributed.checkpoint`` with the loader under ``dataloader``. Where torchtitan is not installed,
its protocol is as it is written down below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.stateful import Stateful

import penstock as ps
import penstock.torch as pt
from penstock.torch.resume import JobLoader
from tests.clients.harness import Samples
from tests.clients.resume.lives import Case, Life, Log, live, run_case
from tests.clients.resume.ranked import count, join, order_of_job

try:
    from torchtitan.components.dataloader import BaseDataLoader
except ImportError:

    class Configurable:
        """Whose configuration builds it: ``config.build(**arguments)`` is ``owner(config, **arguments)``."""

        @dataclass(kw_only=True, slots=True)
        class Config:
            """Of no arguments."""

            owner: ClassVar[Any] = None

            def build(self, **arguments: Any) -> Any:
                """The object."""
                return self.owner(config=self, **arguments)

        def __init_subclass__(cls, **more: Any) -> None:
            super().__init_subclass__(**more)
            if "Config" in vars(cls):
                cls.Config.owner = cls

    class BaseDataLoader(Stateful, ABC, Configurable):  # type: ignore[no-redef]  # as the docstring says
        """State methods, and an iterator of inputs and labels."""

        @dataclass(kw_only=True, slots=True)
        class Config(Configurable.Config):
            """What every configuration of a dataloader has."""

            dataset: str = ""
            dataset_path: str | None = None

        @abstractmethod
        def __iter__(self) -> Iterator[Any]: ...


class PackedLoader(JobLoader, BaseDataLoader):  # type: ignore[misc]  # of type Any to mypy
    """What a user writes: the class of ``Trainer.Config.dataloader``."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):  # type: ignore[misc]  # as above
        """Of this loader."""

        samples: int = 50
        num_workers: int = 0
        drop_last: bool = False

    def __init__(self, config: Any, *, dp_world_size: int, dp_rank: int, local_batch_size: int, **_: Any) -> None:
        samples = Samples(config.samples)
        sampler = ps.DistributedSampler(samples, dp_world_size, dp_rank, seed=7, drop_last=config.drop_last)
        super().__init__(
            pt.DataLoader(
                samples, local_batch_size, sampler=sampler, num_workers=config.num_workers, seed=7,
                seed_per_sample=True, drop_last=config.drop_last,
            )
        )  # fmt: skip


def train(log: Log, folder: Path, case: Case, life: Life) -> None:
    """torchtitan's order of calls: the loader is built, then loaded, then iterated without an end."""
    join(case)
    config = PackedLoader.Config(samples=case.samples, num_workers=case.workers, drop_last=case.drop_last)
    loader = config.build(
        dp_world_size=dist.get_world_size(), dp_rank=dist.get_rank(), local_batch_size=case.batch, tokenizer=None,
        seq_len=8, snapshot_every_n_steps=1,
    )  # fmt: skip
    assert isinstance(loader, BaseDataLoader)
    model = torch.nn.Linear(4, 2)
    states = {"model": model, "dataloader": loader}
    if life.resume:
        load(states, checkpoint_id=folder / f"at-{life.resume}")
    for _ in range(case.epochs - life.resume // len(loader)):
        for batch in loader:
            log.batch(batch)
            if log.saves():
                async_save(states, checkpoint_id=folder / f"at-{log.batches}").result()  # type: ignore[union-attr]
            log.may_die()


@pytest.mark.parametrize("case", [Case(workers=2), Case(ranks=2, drop_last=True), Case(ranks=3, workers=2)], ids=str)
def test_killed_twice(case: Case, tmp_path: Path) -> None:
    """Within the first epoch, and within the second: the batches are the same."""
    one = count(case)
    run_case(train, tmp_path, case, [Life(0, 2, 3), Life(2, one + 2, one + 3), Life(one + 2)], case.epochs * one)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
def test_another_degree_of_data_parallelism(before: int, after: int, tmp_path: Path) -> None:
    """torchtitan's own loader refuses it; here the rest of the epoch is divided anew, and no sample is lost."""
    order = order_of_job(live(train, tmp_path, Case(epochs=1), Life()))
    first = order_of_job(live(train, tmp_path, Case(before, epochs=1), Life(0, 2, 2)))
    rest = order_of_job(live(train, tmp_path, Case(after, 2, epochs=1), Life(2)))

    assert first + rest[: len(order) - len(first)] == order
    assert len(first) == 2 * 4 * before
