"""What the examples have in common: packing, a run that can be saved in the middle of an epoch, and its options."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import penstock as ps

__all__ = [
    "Run",
    "digest",
    "make_parser",
    "pack",
    "parse_options",
    "report_counts",
    "save_sheet",
    "start_run",
    "to_picture",
    "train",
]

Loss = Callable[[Any, Any], torch.Tensor]
"""The loss of a network on a batch."""


@dataclass
class Run:
    """All that training changes, and what is saved to continue."""

    loader: Any
    network: torch.nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    loss: Loss
    epoch: int = 0

    def train(self) -> Iterator[tuple[str, float]]:
        """Train on what is left of the epoch; after each batch, its digest and loss."""
        self.network.train()
        for batch in self.loader:
            loss = self.loss(self.network, batch)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
            self.optimizer.step()
            self.schedule.step()
            yield digest(batch), float(loss.detach())
        self.epoch += 1

    def save(self, path: Path) -> None:
        """Save the run, also in the middle of an epoch."""
        parts = {name: getattr(self, name).state_dict() for name in ("loader", "network", "optimizer", "schedule")}
        torch.save({**parts, "epoch": self.epoch}, path)

    def load(self, path: Path) -> None:
        """Continue from what was saved."""
        saved = torch.load(path)
        self.epoch = saved.pop("epoch")
        for name, state in saved.items():
            getattr(self, name).load_state_dict(state)


def start_run(loader: Any, make_network: Callable[[], torch.nn.Module], loss: Loss, options: argparse.Namespace) -> Run:
    """A run at its beginning, with random weights of the seed."""
    torch.manual_seed(options.seed)
    network = make_network().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-3)
    steps = options.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options.lr, total_steps=steps, pct_start=0.15)
    return Run(loader, network, optimizer, schedule, loss)


def digest(batch: Any) -> str:
    """A digest of all bytes of a batch: tensors, in lists and tuples."""
    made = hashlib.blake2b(digest_size=16)
    _add(batch, made)
    return made.hexdigest()


def _add(part: Any, made: Any) -> None:
    if isinstance(part, torch.Tensor):
        made.update(f"{part.dtype} {tuple(part.shape)}".encode())
        made.update(part.numpy().tobytes())
    else:
        made.update(f"{len(part)}".encode())
        for each in part:
            _add(each, made)


def pack(options: argparse.Namespace, part: str | None, source: Path, form: str) -> ps.Store:
    """Pack the images of a split with their annotations; a finished pack is used again."""
    target = options.output / f"{form}-{part or 'all'}.lmdb"
    report = ps.pack(source, target, annotations=source, format=form, split=part, on_error=options.on_error)
    for skipped in report.skipped:
        print(f"  left out: {skipped.key}: {skipped.reason}")
    return ps.open(target)


def report_counts(learn: ps.Store, check: ps.Store) -> None:
    """Print how many images there are."""
    print(f"{len(learn)} images to train, {len(check)} to check")


def train(start: Callable[[], Run], options: argparse.Namespace) -> Run:
    """Train all epochs; in the middle of one of them, save, and later continue from there. Each epoch is saved."""
    run = start()
    path = options.output / "checkpoint.pt"
    if options.resume:
        run.load(path)
        print(f"continued in epoch {run.epoch + 1}")
    began = time.process_time()
    middle = options.epochs // 2
    while run.epoch < options.epochs:
        number, seen = run.epoch + 1, []
        for step, made in enumerate(run.train(), 1):
            seen.append(made)
            if number == middle + 1 and step == len(run.loader) // 2 and not options.resume:
                run.save(path)
        if number == 1:
            print(f"batches of epoch 1: {hashlib.blake2b(repr([name for name, _ in seen]).encode()).hexdigest()[:16]}")
        if number == middle + 1 and not options.resume:
            run = _continue_from(path, start, seen)
        run.save(path)
        loss = np.mean([loss for _, loss in seen])
        print(
            f"epoch {number:3}/{options.epochs}  loss {loss:7.3f}  {time.process_time() - began:6.1f} s CPU", flush=True
        )
    return run


def _continue_from(path: Path, start: Callable[[], Run], seen: list[tuple[str, float]]) -> Run:
    """A new run, continued from the middle of the epoch to its end, and compared with the one that was not stopped."""
    run = start()
    run.load(path)
    again = list(run.train())
    expected = seen[len(seen) - len(again) :]
    batches = sum(one == other for (one, _), (other, _) in zip(expected, again, strict=True))
    losses = sum(one == other for (_, one), (_, other) in zip(expected, again, strict=True))
    print(
        f"resumed after batch {len(seen) - len(again)} of {len(seen)}: {batches} of {len(again)} batches the same, "
        f"{losses} of {len(again)} losses the same"
    )
    if batches != len(again):
        raise SystemExit("the resumed run has other batches")
    return run


def to_picture(image: torch.Tensor) -> Any:
    """A picture of Pillow from an image uint8 (3, h, w)."""
    return Image.fromarray(np.ascontiguousarray(image.numpy().transpose(1, 2, 0)))


def save_sheet(pictures: Sequence[Any], path: Path, columns: int = 3) -> None:
    """Save pictures of one size side by side."""
    width, height = pictures[0].size
    sheet = Image.new("RGB", (columns * width, -(-len(pictures) // columns) * height))
    for number, picture in enumerate(pictures):
        sheet.paste(picture, (number % columns * width, number // columns * height))
    sheet.save(path)
    print(f"drawn: {path}")


def make_parser(task: str, *, epochs: int, batch_size: int, lr: float) -> argparse.ArgumentParser:
    """The options that all examples have."""
    parser = argparse.ArgumentParser(description=f"Train a small network for {task} on the CPU.")
    parser.add_argument("--data", type=Path, help="annotations with the splits train and val")
    parser.add_argument("--format", default="auto", help="of the annotations; by default it is recognised")
    parser.add_argument("--output", type=Path, default=Path(f"{task}-output"), help="folder of packs and results")
    parser.add_argument("--on-error", default="raise", choices=("raise", "skip"), help="what is wrong in annotations")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--batch-size", type=int, default=batch_size)
    parser.add_argument("--lr", type=float, default=lr)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of torch; with another number, sums differ slightly")
    parser.add_argument("--resume", action="store_true", help="continue from checkpoint.pt in the output folder")
    parser.add_argument("--quick", action="store_true", help="two short epochs: shows that everything runs")
    return parser


def parse_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of the command line; the output folder exists then."""
    options = parser.parse_args()
    if options.quick:
        options.epochs = 2
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    return options
