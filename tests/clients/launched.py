"""What each rank does in ``test_launchers.py``: ``python -m tests.clients.launched TASK FOLDER``.

Each task has the line that ``docs/distributed.md`` states for its launcher, and leaves what its rank was given.
"""

from __future__ import annotations

import json
import logging
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

import penstock as ps
import penstock.torch as pt

__all__ = ["COUNT", "EPOCHS"]

COUNT: Final = 48
EPOCHS: Final = 2
BATCH: Final = 4
STOP: Final = 3


class Numbers(torch.utils.data.Dataset[Any]):
    """Each index as a number."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index)])


def keep(folder: Path, world: ps.World, **found: Any) -> None:
    """Leave what a rank has found."""
    entry = {"rank": world.rank, "num_replicas": world.num_replicas, "source": world.source, **found}
    (folder / f"{world.rank}.json").write_text(json.dumps(entry))


def read(loader: Any, batches: int | None = None) -> list[list[int]]:
    """The numbers of the batches of an epoch, or of its first ones."""
    found = []
    for number, batch in enumerate(loader, 1):
        found.append(batch.flatten().int().tolist())
        if number == batches:
            break
    return found


def observe(make: Callable[[], Any]) -> dict[str, Any]:
    """Two epochs; and an epoch that another loader ends, from a state within it."""
    loader = make()
    epochs = []
    for epoch in range(EPOCHS):
        if isinstance(getattr(loader, "sampler", None), torch.utils.data.DistributedSampler):
            loader.sampler.set_epoch(epoch)  # as with torch's loader
        epochs.append(read(loader))
    first = make()
    begun = read(first, STOP)
    state = pickle.loads(pickle.dumps(first.state_dict()))
    again = make()
    again.load_state_dict(state)
    return {"epochs": epochs, "resumed": begun + read(again), "kind": type(loader).__name__}


def make_loader(num_workers: int = 0) -> Any:
    """The line for torchrun, SLURM and Ray Train."""
    dataset = Numbers()
    return pt.DataLoader(dataset, BATCH, sampler=ps.DistributedSampler(dataset, seed=1), num_workers=num_workers)


def run_torchrun(folder: Path) -> None:
    """By the variables that torchrun sets."""
    dist.init_process_group("gloo")
    keep(folder, ps.find_world(), **observe(lambda: make_loader(num_workers=2)))
    dist.destroy_process_group()


def run_slurm(folder: Path) -> None:
    """By the variables that srun sets; the ranks meet at a file."""
    world = ps.find_world()
    place = f"file://{folder}/ranks"
    dist.init_process_group("gloo", init_method=place, rank=world.rank, world_size=world.num_replicas)
    keep(folder, world, **observe(make_loader))
    dist.destroy_process_group()


def run_accelerate(folder: Path) -> None:
    """Accelerate divides the batches of a loader."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)

    def make() -> Any:
        return pt.adopt(accelerator.prepare(pt.DataLoader(Numbers(), BATCH, shuffle=True, seed=1)))

    keep(folder, ps.find_world(), **observe(make))
    accelerator.end_training()


def run_lightning(folder: Path) -> None:
    """Lightning starts the second process, and makes the loader again with torch's sampler."""
    import pytorch_lightning as pl

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), []  # type: ignore[var-annotated]  # numbers of batches
            self.world = ps.World()

        def training_step(self, batch: Any, _: int) -> Any:
            self.seen.append(batch.flatten().int().tolist())
            self.world = ps.find_world()
            return self.layer(batch).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Save(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == STOP and trainer.max_steps == STOP:
                trainer.save_checkpoint(folder / "begun.ckpt")

    def fit(steps: int, begin: Path | None = None) -> tuple[Any, Any]:
        model = Model()
        trainer = pl.Trainer(
            accelerator="cpu", devices=2, strategy="ddp", max_epochs=EPOCHS, max_steps=steps, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[Save()],
        )  # fmt: skip
        loader = pt.DataLoader(Numbers(), BATCH, shuffle=True)
        trainer.fit(model, loader, ckpt_path=begin, weights_only=False)
        return model, trainer.train_dataloader

    whole, loader = fit(-1)
    begun, _ = fit(STOP)
    ended, _ = fit(-1, folder / "begun.ckpt")
    steps = len(whole.seen) // EPOCHS
    epochs = [whole.seen[:steps], whole.seen[steps:]]
    keep(folder, whole.world, epochs=epochs, resumed=(begun.seen + ended.seen)[:steps], kind=type(loader).__name__)


def run_ray(folder: Path) -> None:
    """Ray Train's worker group: the line, and what its own function makes of a loader, with penstock in it."""
    import os

    os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "200"  # on a busy machine, it would end workers that start
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def train() -> None:
        from ray.train.torch import prepare_data_loader

        def prepare() -> Any:
            loader = pt.DataLoader(Numbers(), BATCH, shuffle=True)
            return pt.adopt(prepare_data_loader(loader, move_to_device=False))

        moved = pt.adopt(prepare_data_loader(pt.DataLoader(Numbers(), BATCH)))
        keep(folder, ps.find_world(), **observe(make_loader))
        keep(folder / "prepared", ps.find_world(), **observe(prepare), moved=read(moved))

    (folder / "prepared").mkdir()
    ray.init("local", num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
    config = RunConfig(storage_path=str(folder / "results"))
    TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=config).fit()
    ray.shutdown()


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[f"run_{sys.argv[1]}"](Path(sys.argv[2]))
