"""The demo, step by step: pack, verify, show, measure, train, stop, resume.

Each step is a method of :class:`Tour` and prints what it found; what is measured is measured in
:mod:`penstock.demo.rivals`, what learns is in :mod:`penstock.demo.learn`.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import penstock as ps
from penstock.demo import rivals
from penstock.demo.learn import Learner, accuracy, digest, digests
from penstock.demo.photographs import write_photographs
from penstock.errors import ArgumentError, StoreError
from penstock.escapes import escape_unprintable
from penstock.plurals import counted
from penstock.torch import DataLoader
from penstock.view import contact_sheet

__all__ = ["FULL", "QUICK", "Scale", "Tour"]

SEED: Final = 7


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything.

    Parameters
    ----------
    train, held_out : int
        Photographs per class to make.
    rounds : int
        Counted rounds of each loader.
    round_s : float
        About how long torch's loader takes for a round.
    epochs : int
        Epochs of training.
    epoch_images : int
        Most images of an epoch, however large the user's folder is.
    batch_size : int
        Images per batch.
    """

    train: int
    held_out: int
    rounds: int
    round_s: float
    epochs: int
    epoch_images: int
    batch_size: int


FULL: Final = Scale(train=240, held_out=40, rounds=5, round_s=4.0, epochs=5, epoch_images=3000, batch_size=64)
QUICK: Final = Scale(train=16, held_out=6, rounds=2, round_s=0.5, epochs=2, epoch_images=200, batch_size=16)


@dataclass(frozen=True)
class Part:
    """Some records of a pack, in no order, and the folder that they were packed from."""

    url: str
    folder: Path
    indices: NDArray[np.int64]

    def first(self, count: int) -> Part:
        """The same, with ``count`` records at most."""
        return Part(self.url, self.folder, self.indices[:count])

    def dataset(self, *, augment: bool) -> ps.Subset[Any]:
        """Penstock's dataset of them; the store is opened anew."""
        store = ps.open(self.url)
        transform = rivals.pipeline(augment=augment)
        return ps.Subset(ps.StoreDataset(store, fields=("image", "label"), transform=transform), self.indices)

    def files(self, *, augment: bool) -> rivals.FileDataset:
        """The other side's dataset of the same records: their files."""
        with ps.open(self.url) as store:
            keys, labels = store.keys(), store.column("label")
            files = [(self.folder / keys[i], int(labels[i])) for i in self.indices.tolist()]
        return rivals.FileDataset(files, rivals.torchvision(augment=augment))


class Tour:
    """One run of the demo.

    Parameters
    ----------
    output : Path
        Where packs, pictures and the saved state go.
    scale : Scale
        How much of everything.
    console : rich.console.Console, optional
        Where to print.
    """

    def __init__(self, output: Path, scale: Scale, console: Console | None = None) -> None:
        self.output, self.scale = output, scale
        self.console = console or Console(highlight=False)
        self.start = time.perf_counter()
        self.epoch_batches = 0

    def run(self, images: Path | None) -> None:
        """All steps, on the user's folder or on the photographs that we bring."""
        self.output.mkdir(parents=True, exist_ok=True)
        if self.scale is QUICK:
            self.say("quick: a few images, so that figures mean little")
        train, held_out = self.own_photographs() if images is None else self.users_photographs(images)
        self.measure(train, held_out)
        self.train(train, held_out)
        self.say(f"\nAll of it took {time.perf_counter() - self.start:.0f} s. The files are in {self.output}/")

    def say(self, text: str) -> None:
        """One line for the person."""
        self.console.print(text, soft_wrap=True)

    def head(self, text: str) -> None:
        """The headline of a step."""
        self.say(f"\n[bold]{text}[/bold]")

    # the photographs

    def own_photographs(self) -> tuple[Part, Part]:
        """Crops of the photographs in scikit-image: training from the right of each, held out from the left."""
        self.head("Photographs")
        folder = self.output / "photographs"
        write_photographs(folder, train=self.scale.train, held_out=self.scale.held_out)
        self.say(f"crops of photographs that come inside scikit-image, as JPEG files in {folder}/")
        train, held_out = (self.packed(folder / name, f"{name}.lmdb") for name in ("train", "held-out"))
        self.contact_sheet(train)
        return train, held_out

    def users_photographs(self, images: Path) -> tuple[Part, Part]:
        """The user's own folder, of which every fifth image, at random, is held out."""
        whole = self.packed(images, "photographs.lmdb")
        count = len(whole.indices)
        if count < 5 * self.scale.batch_size:
            raise ArgumentError(
                f"{images} has {counted(count, 'image')}; the demo needs {5 * self.scale.batch_size} to show anything"
            )
        self.contact_sheet(whole)
        held_out, train = np.split(whole.indices, [count // 5])
        return Part(whole.url, images, train), Part(whole.url, images, held_out)

    def packed(self, folder: Path, name: str) -> Part:
        """Pack a folder, verify the pack against it, and say what came of it."""
        self.head(f"Packing {folder}/ into {self.output / name}")
        report = ps.pack(folder, self.output / name, on_error="skip", overwrite=True, progress=True)
        megabytes = report.nbytes / 1e6
        self.say(
            f"{counted(report.records, 'record')}, {megabytes:.0f} MB in {report.elapsed_s:.1f} s: "
            f"{report.records / report.elapsed_s:,.0f} records/s, {megabytes / report.elapsed_s:,.0f} MB/s"
        )
        for left_out in report.skipped:
            self.say(escape(escape_unprintable(f"  left out: {left_out.key}: {left_out.reason}")))
        found = ps.verify(self.output / name, folder)
        for problem in found.problems:
            self.say(escape(escape_unprintable(f"  {problem}")))
        if not found.ok:
            raise StoreError("the pack is not what was packed", store=found.store)
        self.say(f"verified: every checksum holds, and {found.compared:,} records are the same as their files")
        return Part(str(self.output / name), folder, np.random.default_rng(SEED).permutation(report.records))

    def contact_sheet(self, part: Part) -> None:
        """A picture of some records with their labels."""
        path = self.output / "contact-sheet.png"
        contact_sheet(part.url, path)
        self.say(f"contact sheet: {path}")

    # loading

    def measure(self, train: Part, held_out: Part) -> None:
        """Load the same images with torch's loader and with penstock's, in turns."""
        self.head("Loading: RandomResizedCrop 224, flip, normalise, float32, two workers each")
        size, scale = self.scale.batch_size, self.scale
        few = held_out.first(64)
        worst = rivals.largest_difference(
            DataLoader(few.dataset(augment=False), batch_size=size, num_workers=rivals.WORKERS),
            rivals.in_order(few.files(augment=False), size),
        )
        self.say(f"the same pictures: without augmentation, pixels differ by at most {worst:.1f} of 255 levels")
        files = train.files(augment=True)
        count = rivals.enough_images(files, scale.round_s, least=4 * size)
        some = train.first(count)
        mine = self.loader(some, num_workers=rivals.WORKERS, persistent_workers=True)
        candidates = {
            "torch DataLoader + Pillow + torchvision": rivals.torch_loader(some.files(augment=True), size),
            "penstock": mine,
        }
        rates = rivals.in_turns(
            candidates, scale.rounds, lambda name, n, rate: self.say(f"  round {n}  {name:<40}{rate:8,.0f} images/s")
        )
        theirs, ours = rates.values()
        for rate in (theirs, ours):
            self.say(f"{rate.name:<40} median {rate.median:7,.0f} images/s, spread ±{rate.spread:.0%}")
        ratio = ours.median / theirs.median
        self.say(f"[bold green]penstock is {ratio:.1f} times as fast[/bold green] ({count:,} images a round)")
        self.say(f"where penstock's time went, summed over its workers:\n{mine.stats()}")
        mine.close()

    # training

    def loader(self, part: Part, *, num_workers: int, persistent_workers: bool = False) -> DataLoader:
        """The training loader; two of them give the same batches, whatever their number of workers."""
        return DataLoader(
            part.dataset(augment=True),
            batch_size=self.scale.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=num_workers,
            persistent_workers=persistent_workers,
            seed=SEED,
        )

    def train(self, train: Part, held_out: Part) -> None:
        """Train; stop in the middle of an epoch, resume in a fresh loader, go on; then test on what was held out."""
        self.head("Training a small network on these batches")
        some = train.first(self.scale.epoch_images)
        with ps.open(some.url) as store:
            names = store.schema["label"].classes
        loader = self.loader(some, num_workers=rivals.WORKERS)
        learner = Learner(classes=len(names), steps=self.scale.epochs * len(loader))
        self.epoch_batches = len(loader)
        stop = (self.scale.epochs // 2, len(loader) // 2)
        for epoch in range(self.scale.epochs):
            if epoch == stop[0]:
                loader = self.interrupted_epoch(some, loader, learner, epoch, stop[1])
            else:
                self.steps(learner, iter(loader), epoch, 0, len(loader))
        self.test(learner, held_out, len(names))

    def interrupted_epoch(self, part: Part, loader: DataLoader, learner: Learner, epoch: int, stop: int) -> DataLoader:
        """Train until ``stop``, save the loader's state, and go on from it with a fresh loader; returns that one."""
        batches = iter(loader)
        self.steps(learner, batches, epoch, 0, stop)
        saved = self.output / "loader-state.json"
        saved.write_text(json.dumps(loader.state_dict()))
        self.say(f"  stopped after batch {stop} of epoch {epoch + 1}; state: {saved.stat().st_size} bytes in {saved}")
        expected = digests(batches)
        fresh = self.loader(part, num_workers=1)
        fresh.load_state_dict(json.loads(saved.read_text()))
        found = self.steps(learner, iter(fresh), epoch, stop, len(loader))
        same = sum(a == b for a, b in zip(expected, found, strict=True))
        self.say(
            f"  [bold green]resumed in a fresh loader with another number of workers: "
            f"{same} of {len(expected)} remaining batches are the same to the byte[/bold green]"
        )
        if same != len(expected):
            raise AssertionError("a resumed loader gave other batches")
        return fresh

    def steps(self, learner: Learner, batches: Any, epoch: int, first: int, last: int) -> list[str]:
        """Train on the batches ``first`` to ``last`` of an epoch with a live line; returns their digests."""
        seen: list[str] = []
        images, start, loss = 0, time.perf_counter(), 0.0
        columns = (
            TextColumn("  epoch {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
        )
        with Progress(*columns, console=self.console) as progress:
            bar = progress.add_task(
                f"{epoch + 1}/{self.scale.epochs}", total=self.epoch_batches, completed=first, now=""
            )
            for number, (pictures, labels) in zip(range(first, last), batches, strict=False):
                seen.append(digest((pictures, labels)))
                now = learner.step(pictures, labels)
                loss = now if number == first else 0.9 * loss + 0.1 * now
                images += len(labels)
                rate = images / (time.perf_counter() - start)
                progress.update(bar, advance=1, now=f"loss {loss:.3f}  {rate:,.0f} images/s")
        return seen

    def test(self, learner: Learner, held_out: Part, classes: int) -> None:
        """Accuracy on images whose pixels the network has not seen."""
        some = held_out.first(self.scale.epoch_images)
        loader = DataLoader(
            some.dataset(augment=False), batch_size=self.scale.batch_size, num_workers=rivals.WORKERS, seed=SEED
        )
        right, seen = accuracy(learner.network, loader)
        if classes == 1:
            self.say("one class, so there is nothing to tell apart: put the photographs into a sub-folder per class")
            return
        self.say(
            f"[bold green]{right} of {seen} held-out images right: {right / seen:.1%}[/bold green] "
            f"({counted(classes, 'class')}; guessing gives {1 / classes:.1%})"
        )
