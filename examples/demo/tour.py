"""The demo, step by step: pack, verify, show, measure, train, stop, resume, say what limits the training.

Each step is a method of :class:`Tour` and prints its result. :mod:`demo.rivals` measures speed, and
:mod:`demo.learn` has the network.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import penstock as ps
from demo import rivals
from demo.learn import Learner, count_correct, digest, digest_all
from penstock.demo.photographs import write_photographs
from penstock.doctor import watch
from penstock.doctor.block import WatchReport
from penstock.doctor.reports.html_report import write_html
from penstock.errors import ArgumentError, StoreError
from penstock.sample import Batch, Sample
from penstock.sheets import contact_sheet
from penstock.torch import DataLoader
from penstock.wording import counted, escape_unprintable

__all__ = ["FULL", "QUICK", "Scale", "Tour"]

SEED: Final = 7


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a run."""

    train: int
    held_out: int
    """``train`` and ``held_out``: number of photographs per class to create."""
    rounds: int  # number of counted rounds of each loader
    round_s: float  # approximate time of a round with torch's loader
    epochs: int  # number of training epochs
    epoch_images: int  # most images of an epoch, if the user's folder is larger
    batch_size: int  # images per batch
    doctor_s: float  # most seconds in which the doctor tries changes of the loader


FULL: Final = Scale(
    train=240, held_out=40, rounds=5, round_s=4.0, epochs=5, epoch_images=3000, batch_size=64, doctor_s=6.0
)
QUICK: Final = Scale(
    train=16, held_out=6, rounds=2, round_s=0.5, epochs=2, epoch_images=200, batch_size=16, doctor_s=1.0
)


@dataclass(frozen=True)
class PackPart:
    """Some records of a pack in random order, and the folder from which they were packed."""

    url: str
    folder: Path
    indices: NDArray[np.int64]

    def first(self, count: int) -> PackPart:
        """The first ``count`` records."""
        return PackPart(self.url, self.folder, self.indices[:count])

    def create_dataset(self, *, augment: bool) -> ps.Subset[Sample]:
        """Create penstock's dataset of these records."""
        store = ps.open(self.url)
        transform = rivals.create_pipeline(augment=augment)
        return ps.Subset(ps.StoreDataset(store, fields=("image", "label"), transform=transform), self.indices)

    def create_file_dataset(self, *, augment: bool) -> rivals.FileDataset:
        """Create the dataset for torch's loader, of the files of the same records."""
        with ps.open(self.url) as store:
            keys, labels = store.keys(), store.column("label")
            files = [(self.folder / keys[i], int(labels[i])) for i in self.indices.tolist()]
        return rivals.FileDataset(files, rivals.create_torchvision_transform(augment=augment))


class Tour:
    """One run of the demo.

    ``output``: the folder for packs, pictures and the saved state. ``scale``: the size of the run. ``console``: where
    to print.
    """

    def __init__(self, output: Path, scale: Scale, console: Console | None = None) -> None:
        self.output, self.scale = output, scale
        self.console = console or Console(highlight=False)
        self.start = time.perf_counter()
        self.epoch_batches = 0
        self.report: WatchReport | None = None

    def run(self, images: Path | None) -> None:
        """Run all steps, on the user's folder or on the photographs in scikit-image."""
        self.output.mkdir(parents=True, exist_ok=True)
        if self.scale is QUICK:
            self.print_line("quick run: with few images, the measured speeds are inaccurate")
        train, held_out = self.pack_photographs() if images is None else self.pack_users_photographs(images)
        self.measure(train, held_out)
        self.train(train, held_out)
        self.print_diagnosis()
        self.print_line(f"\nTotal time: {time.perf_counter() - self.start:.0f} s. The files are in {self.output}/")

    def print_line(self, text: str) -> None:
        """Print one line."""
        self.console.print(text, soft_wrap=True)

    def print_heading(self, text: str) -> None:
        """Print the heading of a step."""
        self.print_line(f"\n[bold]{text}[/bold]")

    # the photographs

    def pack_photographs(self) -> tuple[PackPart, PackPart]:
        """Pack crops of the photographs in scikit-image: training from the right of each, held out from the left."""
        self.print_heading("Photographs")
        folder = self.output / "photographs"
        write_photographs(folder, train=self.scale.train, held_out=self.scale.held_out)
        self.print_line(f"crops of the photographs in scikit-image, as JPEG files in {folder}/")
        train, held_out = (self.pack(folder / name, f"{name}.lmdb") for name in ("train", "held-out"))
        self.draw_contact_sheet(train)
        return train, held_out

    def pack_users_photographs(self, images: Path) -> tuple[PackPart, PackPart]:
        """Pack the user's folder; a random fifth of its images is held out."""
        whole = self.pack(images, "photographs.lmdb")
        count = len(whole.indices)
        if count < 5 * self.scale.batch_size:
            raise ArgumentError(
                f"the demo needs at least {5 * self.scale.batch_size} images, but {images} has "
                f"{counted(count, 'image')}"
            )
        self.draw_contact_sheet(whole)
        held_out, train = np.split(whole.indices, [count // 5])
        return PackPart(whole.url, images, train), PackPart(whole.url, images, held_out)

    def pack(self, folder: Path, name: str) -> PackPart:
        """Pack a folder, verify the pack against it, and print the result."""
        self.print_heading(f"Packing {folder}/ into {self.output / name}")
        report = ps.pack(folder, self.output / name, on_error="skip", overwrite=True, progress=True)
        megabytes = report.nbytes / 1e6
        self.print_line(
            f"{counted(report.records, 'record')}, {megabytes:.0f} MB in {report.elapsed_s:.1f} s: "
            f"{report.records / report.elapsed_s:,.0f} records/s, {megabytes / report.elapsed_s:,.0f} MB/s"
        )
        for left_out in report.skipped:
            self.print_line(escape(escape_unprintable(f"  left out: {left_out.key}: {left_out.reason}")))
        found = ps.verify(self.output / name, folder)
        for problem in found.problems:
            self.print_line(escape(escape_unprintable(f"  {problem}")))
        if not found.ok:
            raise StoreError("the pack differs from its source", store=found.store)
        self.print_line(f"verified: all checksums are correct, and {found.compared:,} records are equal to their files")
        return PackPart(str(self.output / name), folder, np.random.default_rng(SEED).permutation(report.records))

    def draw_contact_sheet(self, part: PackPart) -> None:
        """Draw some records with their labels."""
        path = self.output / "contact-sheet.png"
        contact_sheet(part.url, path)
        self.print_line(f"contact sheet: {path}")

    # loading

    def measure(self, train: PackPart, held_out: PackPart) -> None:
        """Load the same images with torch's loader and with penstock's, in turns."""
        self.print_heading("Loading: RandomResizedCrop 224, flip, normalise, float32, two workers each")
        size, scale = self.scale.batch_size, self.scale
        few = held_out.first(64)
        worst = rivals.measure_largest_difference(
            DataLoader(few.create_dataset(augment=False), batch_size=size, num_workers=rivals.WORKERS),
            rivals.create_unshuffled_loader(few.create_file_dataset(augment=False), size),
        )
        self.print_line(f"same images: without augmentation, pixels differ by at most {worst:.1f} of 255 levels")
        files = train.create_file_dataset(augment=True)
        count = rivals.estimate_round_images(files, scale.round_s, least=4 * size)
        some = train.first(count)
        mine = self.create_loader(some, num_workers=rivals.WORKERS, persistent_workers=True)
        candidates = {
            "torch DataLoader + Pillow + torchvision": rivals.create_torch_loader(
                some.create_file_dataset(augment=True), size
            ),
            "penstock": mine,
        }
        rates = rivals.measure_in_turns(
            candidates,
            scale.rounds,
            lambda name, n, rate: self.print_line(f"  round {n}  {name:<40}{rate:8,.0f} images/s"),
        )
        theirs, ours = rates.values()
        for rate in (theirs, ours):
            self.print_line(f"{rate.name:<40} median {rate.median:7,.0f} images/s, spread ±{rate.spread:.0%}")
        ratio = ours.median / theirs.median
        self.print_line(f"[bold green]penstock is {ratio:.1f} times as fast[/bold green] ({count:,} images a round)")
        self.print_line(f"penstock's time by stage, summed over its workers:\n{mine.stats()}")
        mine.close()

    # training

    def create_loader(self, part: PackPart, *, num_workers: int, persistent_workers: bool = False) -> DataLoader:
        """Create the training loader. Its batches do not depend on the number of workers."""
        return DataLoader(
            part.create_dataset(augment=True),
            batch_size=self.scale.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=num_workers,
            persistent_workers=persistent_workers,
            seed=SEED,
        )

    def train(self, train: PackPart, held_out: PackPart) -> None:
        """Train, stop in the middle of an epoch, resume with a new loader, and test on the held-out images."""
        self.print_heading("Training a small network on these batches")
        some = train.first(self.scale.epoch_images)
        with ps.open(some.url) as store:
            names = store.schema["label"].classes
        loader = self.create_loader(some, num_workers=rivals.WORKERS)
        learner = Learner(classes=len(names), steps=self.scale.epochs * len(loader))
        self.epoch_batches = len(loader)
        stop = (self.scale.epochs // 2, len(loader) // 2)
        for epoch in range(self.scale.epochs):
            if epoch == stop[0]:
                loader = self.train_interrupted_epoch(some, loader, learner, epoch, stop[1])
            elif epoch == 0:
                with watch(loader, steps=len(loader), budget_s=self.scale.doctor_s) as self.report:
                    self.train_batches(learner, iter(loader), epoch, 0, len(loader))
                self.write_page()
            else:
                self.train_batches(learner, iter(loader), epoch, 0, len(loader))
        self.test(learner, held_out, len(names))

    def train_interrupted_epoch(
        self, part: PackPart, loader: DataLoader, learner: Learner, epoch: int, stop: int
    ) -> DataLoader:
        """Train up to batch ``stop``, save the loader's state, and continue with a new loader, which is returned."""
        batches = iter(loader)
        self.train_batches(learner, batches, epoch, 0, stop)
        saved = self.output / "loader-state.json"
        saved.write_text(json.dumps(loader.state_dict()))
        self.print_line(
            f"  stopped after batch {stop} of epoch {epoch + 1}; state: {saved.stat().st_size} bytes in {saved}"
        )
        expected = digest_all(batches)
        resumed = self.create_loader(part, num_workers=1)
        resumed.load_state_dict(json.loads(saved.read_text()))
        found = self.train_batches(learner, iter(resumed), epoch, stop, len(loader))
        same = sum(a == b for a, b in zip(expected, found, strict=True))
        self.print_line(
            f"  [bold green]resumed with a new loader and another number of workers: "
            f"{same} of {len(expected)} remaining batches are the same to the byte[/bold green]"
        )
        if same != len(expected):
            raise AssertionError("the batches of the resumed loader differ")
        return resumed

    def train_batches(self, learner: Learner, batches: Iterable[Batch], epoch: int, first: int, last: int) -> list[str]:
        """Train on batches ``first`` to ``last`` of an epoch, with a progress bar; return the batches' digests."""
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

    def test(self, learner: Learner, held_out: PackPart, classes: int) -> None:
        """Print the accuracy on the held-out images."""
        some = held_out.first(self.scale.epoch_images)
        loader = DataLoader(
            some.create_dataset(augment=False), batch_size=self.scale.batch_size, num_workers=rivals.WORKERS, seed=SEED
        )
        right, seen = count_correct(learner.network, loader)
        if classes == 1:
            self.print_line(
                "there is one class only, so there is no accuracy: put the photographs into one sub-folder per class"
            )
            return
        self.print_line(
            f"[bold green]{right} of {seen} held-out images correct: {right / seen:.1%}[/bold green] "
            f"({counted(classes, 'class')}; guessing gives {1 / classes:.1%})"
        )

    # the doctor

    def write_page(self) -> None:
        """Write the doctor's page on the first epoch."""
        diagnosis = None if self.report is None else self.report.diagnosis
        if diagnosis is not None:
            write_html(diagnosis, self.output / "doctor.html")

    def print_diagnosis(self) -> None:
        """Print what limited the first epoch of the training, and what would make it faster."""
        diagnosis = None if self.report is None else self.report.diagnosis
        if diagnosis is None:
            return
        self.print_heading("What limits this training: penstock doctor on its first epoch")
        self.print_line(escape(escape_unprintable(diagnosis.verdict.text)))
        for advice in diagnosis.advice:
            gain = "" if advice.measured is None else f": {advice.measured.median - 1:+.0%} (measured)"
            self.print_line(escape(escape_unprintable(f"  {advice.change}{gain}")))
        self.print_line(f"the doctor's page: {self.output / 'doctor.html'}")
