"""The doctor over other libraries' training loops: the steps are seen, and planted mistakes are found at their lines.

A comment ``# trap: RULE`` marks a line that a finding must name; nothing else in this file is one.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.doctor import watch

STEPS = 8
BATCH = 8
SAMPLE_S = 0.004
pytestmark = [
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '[a-z_]*dataloader[a-z0-9_]*' does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.* argument is set as true but no accelerator is found:UserWarning"),
]


class Slow(torch.utils.data.Dataset[Any]):
    """Samples that take long."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> Any:
        time.sleep(SAMPLE_S)
        return torch.full((3, 64, 64), index % 7, dtype=torch.uint8), index % 10


class Net(torch.nn.Module):
    """A layer over pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3 * 64 * 64, 10)

    def forward(self, images: Any) -> Any:
        """Scores."""
        return self.layer(images.flatten(1).float())


def loader() -> Any:
    """Torch's loader of slow samples."""
    return torch.utils.data.DataLoader(Slow(), batch_size=BATCH, shuffle=True)


def loss_of(model: Any, images: Any, labels: Any) -> Any:
    """The loss of a batch."""
    return torch.nn.functional.cross_entropy(model(images), labels)


@pytest.fixture
def reset() -> Iterator[None]:
    """Accelerate keeps its state in classes: each test ends without."""
    yield
    import accelerate

    for shared in (accelerate.state.AcceleratorState, accelerate.state.GradientState, accelerate.state.PartialState):
        shared._reset_state()


def train_with_lightning(_: Path) -> None:
    """A module and a callback of Lightning's, a data module with validation."""
    lightning = pytest.importorskip("pytorch_lightning")

    class Data(lightning.LightningDataModule):  # type: ignore[misc,name-defined]  # imported above
        def train_dataloader(self) -> Any:
            return loader()

        def val_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(Slow(), batch_size=32)

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]  # imported above
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            images, labels = batch
            loss = loss_of(self.net, images, labels)
            self.seen = loss.item()  # trap: wait-each-step
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.seen = loss_of(self.net, *batch).item()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-9)

    class Log(lightning.Callback):  # type: ignore[misc,name-defined]  # imported above
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.seen = outputs["loss"].cpu()  # trap: wait-each-step

    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Log()],
    )  # fmt: skip
    trainer.fit(Module(), Data())


def train_with_accelerate(_: Path) -> None:
    """A prepared loader, gradients accumulated."""
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Net()
    model, optimizer, batches = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-9), loader())
    for images, labels in batches:
        with accelerator.accumulate(model):
            loss = loss_of(model, images, labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        assert loss.item() >= 0  # trap: wait-each-step


def train_with_dispatched_batches(_: Path) -> None:
    """Accelerate reads on one rank, and splits batches."""
    accelerate = pytest.importorskip("accelerate")
    settings = accelerate.utils.DataLoaderConfiguration(dispatch_batches=True, split_batches=True)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=settings)
    model, batches = accelerator.prepare(Net(), loader())
    for number, (images, labels) in enumerate(batches):
        accelerator.backward(loss_of(model, images, labels))
        if number % 100 == 0:
            assert images.float().mean().item() >= 0


def train_with_transformers(folder: Path) -> None:
    """A model that computes its loss, in ``Trainer``."""
    transformers = pytest.importorskip("transformers")

    class Named(Slow):
        def __getitem__(self, index: int) -> Any:
            image, label = super().__getitem__(index)
            return {"image": image, "labels": label}

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, image: Any, labels: Any = None) -> Any:
            loss = loss_of(self.net, image, labels)
            self.seen = loss.item()  # trap: wait-each-step
            return {"loss": loss}

    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=BATCH, num_train_epochs=1, report_to=[], save_strategy="no",
        disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False, remove_unused_columns=False,
    )  # fmt: skip
    transformers.Trainer(Model(), arguments, train_dataset=Named()).train()


def train_with_ignite(_: Path) -> None:
    """A function that an engine calls for each batch."""
    engine = pytest.importorskip("ignite.engine")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Net().to(device)

    def update(_: Any, batch: Any) -> float:
        images, labels = batch
        images = images.float().to(device, non_blocking=True)  # trap: cast-before-copy
        loss = loss_of(model, images, labels.to(device, non_blocking=True))
        loss.backward()
        return float(loss.item())  # trap: wait-each-step

    engine.Engine(update).run(loader(), max_epochs=1)


def train_with_skorch(_: Path) -> None:
    """A callback of skorch's."""
    skorch = pytest.importorskip("skorch")

    class Log(skorch.callbacks.Callback):  # type: ignore[misc,name-defined]  # imported above
        def on_batch_end(self, net: Any, training: bool = False, loss: Any = None, **_: Any) -> None:
            self.seen = loss.item()  # trap: wait-each-step

    net = skorch.NeuralNet(
        Net, torch.nn.CrossEntropyLoss, lr=1e-9, max_epochs=1, batch_size=BATCH, train_split=None, verbose=0,
        callbacks=[Log()], iterator_train__shuffle=True,
    )  # fmt: skip
    net.fit(Slow(), y=None)


def train_with_monai(_: Path) -> None:
    """MONAI's loader, a subclass of torch's, in the loop of its tutorials."""
    monai = pytest.importorskip("monai.data")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, total = Net().to(device), 0.0
    for images, labels in monai.DataLoader(Slow(), batch_size=BATCH, shuffle=True):
        loss = loss_of(model, images.to(device), labels.to(device))
        loss.backward()
        total += loss.item()  # trap: wait-each-step


RUNS = [
    train_with_lightning,
    train_with_accelerate,
    train_with_dispatched_batches,
    train_with_transformers,
    train_with_ignite,
    train_with_skorch,
    train_with_monai,
]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
@pytest.mark.usefixtures("reset")
def test_steps_and_mistakes(run: Callable[[Path], None], tmp_path: Path) -> None:
    """Enough steps are seen, the loader is what the script waits for, and the marked lines are found, no others."""
    with watch(steps=STEPS, budget_s=0) as report:
        run(tmp_path)

    assert report.recording is not None
    assert report.recording.ended == "steps"
    assert report.recording.settings.dataset in {"Slow", "Named"}
    assert (report.recording.steps.wait_ns >= BATCH * SAMPLE_S * 1e9).all()
    lines, first = inspect.getsourcelines(run)
    marked = {(rule, first + at) for at, line in enumerate(lines) for rule in re.findall(r"# trap: ([\w-]+)", line)}
    found = {
        (finding.rule, int(number))
        for finding in report.findings
        if finding.file == __file__
        for number in re.findall(r"\d+", finding.where.rpartition("line ")[2])
    }
    assert found == marked
