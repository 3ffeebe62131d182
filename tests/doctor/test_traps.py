"""Where batches are taken, what mistakes cost, and how the reports show them."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import weakref
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils import data as td  # noqa: E402  # it needs torch

from penstock.doctor import watch  # noqa: E402  # it needs torch
from penstock.doctor.checks.findings import Finding, Severity  # noqa: E402  # as above
from penstock.doctor.checks.script_rules.tensor_copies import measure_tensor_copies  # noqa: E402  # as above
from penstock.doctor.judge.diagnosis import Verdict, VerdictStage  # noqa: E402  # as above
from penstock.doctor.judge.text_report import format_report  # noqa: E402  # as above
from penstock.doctor.judge.traps import name_in_verdict  # noqa: E402  # as above
from penstock.doctor.reports.github_report import list_annotations  # noqa: E402  # as above
from penstock.doctor.trials.forked_child import run_in_child  # noqa: E402  # as above
from penstock.doctor.watching.batch_layout import describe_batch  # noqa: E402  # as above
from penstock.doctor.watching.steps.batch_places import BatchPlaces  # noqa: E402  # as above
from tests.doctor.diagnoses import make_diagnosis  # noqa: E402  # as above
from tests.doctor.stranger_scripts import COMMON, SCRIPTS  # noqa: E402  # as above
from tests.doctor.test_script import environment  # noqa: E402  # as above
from tests.doctor.test_script_rules import marked  # noqa: E402  # as above

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024  # as users write it


# batches and places


def test_the_layout_of_a_batch_has_its_parts() -> None:
    """Types, sizes and shapes of tensors and arrays; nothing is kept of the batch."""
    images = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    layout = describe_batch({"images": images, "pair": Pair(np.zeros((2, 3)), [1, "text"])})

    part, pair = layout.parts

    assert (part.kind, part.dtype, part.itemsize, part.nbytes, part.shape) == ("tensor", "uint8", 1, 768, (4, 3, 8, 8))
    assert pair.kind == "sequence"
    assert [leaf.dtype for leaf in layout.leaves()] == ["uint8", "float64"]


def test_a_place_keeps_no_value_alive() -> None:
    """Nothing of the script is kept but lines: a large object dies with its function, as without the doctor."""
    places = BatchPlaces()

    class Large:
        def __init__(self) -> None:
            self.values = np.zeros(8)

    def train() -> weakref.ref[Large]:
        large = Large()
        places.note(None, 0)
        died = weakref.ref(large)
        del large
        assert died() is None, "the function goes on without it"
        return died

    gc.disable()
    try:
        died = train()
    finally:
        gc.enable()

    assert died() is None
    assert [taking.line.function for taking in places.takings] == ["test_a_place_keeps_no_value_alive.train"]


def test_a_place_is_kept_once() -> None:
    """A place that asks again and again, such as `next(iter(loader))`, is one place."""
    places = BatchPlaces()
    for _ in range(100):
        places.note(None, 5)

    assert len(places.takings) == 1
    assert places.epoch_starts_ns == [5] * 100


# trials


def test_a_child_returns_a_result_or_nothing() -> None:
    """What raises, prints, exits or takes too long gives None, and leaves the process as it is."""
    touched: list[int] = []

    def touch() -> list[int]:
        print("nobody reads this")  # noqa: T201  # a user's dataset may print
        touched.append(1)
        return [len(touched), 2**70]

    def fail() -> None:
        raise ValueError

    assert run_in_child(touch, 60.0) == [1, 2**70]
    assert run_in_child(lambda: "x" * 1_000_000, 60.0) == "x" * 1_000_000
    assert run_in_child(fail, 60.0) is None
    assert run_in_child(lambda: sys.exit(3), 60.0) is None
    assert run_in_child(threading.Event().wait, 0.2) is None
    assert touched == []


class Scans(td.Dataset[Any]):
    """Samples with copies that are needless, and with one that is not."""

    def __init__(self) -> None:
        self.volume = np.zeros((64, 32, 32), np.float32)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        new = self.volume[index] + 1
        return torch.tensor(new), torch.tensor(self.volume[index]), torch.tensor(index), new


def collate(samples: list[Any]) -> Any:
    """Convert a list of arrays."""
    return torch.tensor([each[3] for each in samples]), torch.stack([each[0] for each in samples])


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
def test_copies_are_found_by_their_lines() -> None:
    """New arrays and lists of arrays count; an array that the dataset holds, and numbers, do not."""
    loader = torch.utils.data.DataLoader(Scans(), batch_size=8, num_workers=1, collate_fn=collate)

    copies = measure_tensor_copies(loader, 60.0)

    assert copies is not None
    found = {(copy.function, copy.is_list): (copy.per_batch, copy.nbytes) for copy in copies}
    assert found == {("Scans.__getitem__", False): (8, 8 * 4096), ("collate", True): (1, 8 * 4096)}
    for copy in copies:
        assert copy.file == __file__
        assert "torch.tensor(" in Path(__file__).read_text().splitlines()[copy.line - 1]
        assert 0 < copy.seconds < copy.batch_s
    assert not hasattr(torch.tensor, "describe"), "it is replaced in the child only"


def test_a_dataset_that_fails_has_no_trial() -> None:
    """The result is None, and the diagnosis does without it."""
    loader = torch.utils.data.DataLoader([1, 2], batch_size=1, collate_fn=lambda samples: 1 / 0)

    assert measure_tensor_copies(loader, 60.0) is None


# frameworks

LIGHTNING = """
import torch


class LightningModule(torch.nn.Module):
    pass


class Trainer:
    def fit(self, model, loader):
        optimizer = model.configure_optimizers()
        for number, batch in enumerate(loader):
            loss = model.training_step(batch, number)
            loss.backward()
            optimizer.step()
"""
LIGHTNING_SCRIPT = """
import lightning as L
import torch
from common import Photos, make_model


class LitModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = make_model()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        print(loss.item())
        if batch_idx % 100 == 0:
            print(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        return self.net(batch[0]).mean().item()

    def configure_optimizers(self):
        return self  # the first torch.optim takes 2 s to import

    def step(self):
        self.net.zero_grad()


model = LitModel()
L.Trainer().fit(model, torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32))
"""


@pytest.mark.slow
def test_a_training_step_that_a_framework_calls(tmp_path: Path) -> None:
    """The loop is in an installed package: `training_step` of the user's module is read, other steps are not."""
    package = tmp_path / "site-packages" / "lightning"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(LIGHTNING)
    report = run_doctor(tmp_path, LIGHTNING_SCRIPT, "--no-trials", path=package.parent)

    assert [(each["rule"], each["where"]) for each in of_script(report)] == [
        ("wait-each-step", "LitModel.training_step (train.py, line 15)")
    ]


# from end to end


def run_doctor(folder: Path, script: str, *options: str, path: Path | None = None) -> dict[str, Any]:
    """The JSON file of ``penstock doctor train.py``; the text and annotations are under ``text`` and ``output``."""
    (folder / "common.py").write_text(COMMON)
    (folder / "train.py").write_text(script)
    variables = environment()
    if path is not None:
        variables["PYTHONPATH"] += f":{path}"
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "doctor", "--steps", "8", "--json", "out.json", *options, "train.py"],
        cwd=folder, capture_output=True, text=True, check=True, env=variables, timeout=240,
    )  # fmt: skip
    report: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return {**report, "text": done.stderr, "output": done.stdout}


def of_script(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The mistakes in the script's own files."""
    return [each for each in report["traps"] if each["file"]]


SCANS_SCRIPT = """
import gc

import numpy as np
import torch


class Scans(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return np.full((1, 64, 64), index, np.float32), index % 10


def collate(samples):
    images = torch.tensor([image for image, _ in samples])  # trap: tensor-copies
    return images, torch.tensor([label for _, label in samples])


def main():
    dataset = Scans()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64 * 64, 10)).to(device)
    for epoch in range(3):
        loader = torch.utils.data.DataLoader(  # trap: loader-each-epoch
            dataset, batch_size=32, num_workers=1, collate_fn=collate, multiprocessing_context="fork"
        )
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            gc.collect()  # trap: cleanup-each-step


main()
"""


@pytest.mark.slow
def test_a_script_with_workers_from_end_to_end(tmp_path: Path) -> None:
    """Mistakes are in the JSON file, in the text and in annotations, with lines, costs and pages."""
    report = run_doctor(tmp_path, SCANS_SCRIPT, "--budget", "20", "--github")
    traps = {each["rule"]: each for each in of_script(report)}

    assert {(rule, each["line"]) for rule, each in traps.items()} == marked(SCANS_SCRIPT)
    for rule, each in traps.items():
        assert Path(each["file"]) == tmp_path / "train.py"
        assert (Path(__file__).resolve().parents[2] / each["page"]).exists()
        assert f"[{rule}]" in report["text"]
        assert f"More: penstock explain {rule}" in report["text"]
        assert f"file=train.py,line={each['line']},title=penstock doctor%3A {rule}" in report["output"]
    assert traps["tensor-copies"]["severity"] == "warning"
    assert "in which one worker makes a batch" in traps["tensor-copies"]["cost"]
    assert "for the start in each epoch" in traps["loader-each-epoch"]["cost"]
    assert "in each step" in traps["cleanup-each-step"]["cost"]


@pytest.mark.slow
def test_a_script_of_a_stranger_from_end_to_end(tmp_path: Path) -> None:
    """As the command runs it, it has the findings at its marked lines, and no others (test_script_rules.py: all)."""
    script = SCRIPTS["imagenet"]
    report = run_doctor(tmp_path, script, "--no-trials")

    assert {(each["rule"], each["line"]) for each in of_script(report)} == marked(script)
    assert {each["severity"] for each in of_script(report)} <= {
        "warning" if torch.accelerator.is_available() else "note"
    }


def test_a_block_is_checked_too() -> None:
    """`penstock.doctor.watch` reads the function around the block, also for penstock's own loader."""
    from penstock.torch import DataLoader

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = torch.utils.data.TensorDataset(torch.ones(64, 8))
    model = torch.nn.Linear(8, 1).to(device)
    with watch(steps=6, budget_s=0) as report:
        for (values,) in DataLoader(dataset, batch_size=4):
            model(values.to(device)).mean().backward()
            torch.cuda.empty_cache()

    assert report.diagnosis is not None
    assert [each.rule for each in report.diagnosis.findings if each.file] == ["cleanup-each-step"]


# reports


def make_finding(rule: str, severity: Severity = "warning") -> Finding:
    """A finding in a file."""
    return Finding(rule, severity, "train (train.py, line 3)", "It waits.", "Do not.", "2 ms a step", "/x/train.py", 3)


@pytest.mark.parametrize(
    ("stage", "rule", "severity", "is_named"),
    [
        ("copy", "blocking-copy", "warning", True),
        ("step", "wait-each-step", "warning", True),
        ("workers", "loader-each-epoch", "warning", True),
        ("copy", "blocking-copy", "note", False),
        ("decode", "blocking-copy", "warning", False),
        ("none", "wait-each-step", "warning", False),
    ],
)
def test_a_verdict_names_the_mistakes_of_its_stage(
    stage: VerdictStage, rule: str, severity: Severity, is_named: bool
) -> None:
    """Those that cost time there; notes cost none."""
    verdict = Verdict(stage, "It limits.", 0.5, 1.0, 2.0)

    sentence = name_in_verdict(verdict, [make_finding("held-batches"), make_finding(rule, severity)])

    assert sentence == (f" A known mistake has to do with it: {rule} in train (train.py, line 3)." if is_named else "")


def test_reports_have_the_cost_and_the_page() -> None:
    """Text and annotations show them; a file outside of the present folder keeps its path."""
    diagnosis = make_diagnosis(findings=[make_finding("blocking-copy")])

    text = format_report(diagnosis)
    annotation = list(list_annotations(diagnosis))[1]

    assert "costs 2 ms a step" in text
    assert "More: penstock explain blocking-copy" in text
    assert annotation.startswith("::warning file=/x/train.py,line=3,title=penstock doctor%3A blocking-copy::")
    assert "Costs 2 ms a step.%0AMore: penstock explain blocking-copy" in annotation
