"""``penstock rewind``: from a state in a file to the samples of a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from conftest import photographs
from penstock.ranks import World, assume_world
from tests.test_cli import run

SCRIPT = """
import penstock as ps
from penstock import transforms as T

ops = [T.Decode(), T.RandomCrop(24), T.ToLayout("CHW", "uint8")]
dataset = ps.StoreDataset({photos!r}, ("image", "label"), ops)


def ranked():
    return ps.DataLoader(dataset, 4, sampler=ps.DistributedSampler(dataset, seed=5), seed=3)


def alone():
    return ps.DataLoader(dataset, 4, shuffle=True, seed=3)


def framework():
    import penstock.torch

    return penstock.torch.DataLoader(dataset, 4, shuffle=True, seed=3)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script with loaders of a folder of photographs, beside it."""
    photographs(tmp_path / "photos", per_class=12)
    (tmp_path / "train.py").write_text(SCRIPT.format(photos=str(tmp_path / "photos")))
    return tmp_path / "train.py"


def make_loader(script: Path, name: str) -> Any:
    """The loader of the script, made here; of rank 1 of 3, where it has ranks."""
    variables: dict[str, Any] = {}
    exec(script.read_text(), variables)  # as the command does
    with assume_world(World(3, 1, source="test")):
        return variables[name]()


def save(script: Path, state: Any) -> Path:
    """Write a state, or what has it, as JSON."""
    file = script.parent / "state.json"
    file.write_text(json.dumps(state))
    return file


def test_a_step_of_another_rank_is_shown(script: Path) -> None:
    """The state and the script of one rank are enough, and the environment need not say how many there are."""
    loader = make_loader(script, "ranked")
    labels = [label for _ in range(2) for _, label in loader]
    state = save(script, {"model": [], "loaders": [loader.state_dict()]})

    ran = run(
        "rewind", state, f"{script}:ranked", "--step", 3, "--rank", 1, "--json", "--output", script.parent / "s.png"
    )

    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert [each["key"][:3] for each in said["samples"]] == [("cat", "dog")[label] for label in labels[3]]
    assert [each["draws"] for each in said["samples"]] == [sample.draws() for sample in loader.samples_of(3)]
    assert (said["epoch"], said["batch"], said["rank"]) == (1, 1, 1)
    assert (script.parent / "s.png").is_file()


@pytest.mark.parametrize("name", ["ranked", "alone", "framework"])
def test_a_store_alone_gives_the_records(script: Path, name: str) -> None:
    """Of the orders of all records."""
    if name == "framework":
        pytest.importorskip("torch")
    loader = make_loader(script, name)
    next(iter(loader))

    ran = run(
        "rewind",
        save(script, loader.state_dict()),
        script.parent / "photos",
        "--step",
        1,
        "--rank",
        int(name == "ranked"),
    )

    keys = [sample.key for sample in loader.samples_of(1)]
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[-1] for line in ran.stdout.splitlines()[1:]] == keys


def test_a_checkpoint_of_torch_is_read(script: Path) -> None:
    """Beside whatever else is in it."""
    torch = pytest.importorskip("torch")
    loader = make_loader(script, "framework")
    images = next(iter(loader))[0]
    torch.save({"weights": torch.ones(3), "loader": loader.state_dict()}, script.parent / "checkpoint.pt")

    ran = run("rewind", script.parent / "checkpoint.pt", f"{script}:framework", "--step", 0, "--json")

    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)["samples"]
    dataset = loader.dataset.store
    for row, image in zip(said, images, strict=True):
        left, top = map(int, row["draws"]["RandomCrop"][:2])
        whole = ps.decode(dataset[row["record"]].fields["image"])
        crop = whole[top : top + 24, left : left + 24].transpose(2, 0, 1)
        assert np.array_equal(crop, image.numpy())


def test_what_cannot_be_read_is_an_error(script: Path) -> None:
    """It names the file, or what is in it, and what to do; nothing in a file is run."""
    pytest.importorskip("torch")
    state = make_loader(script, "alone").state_dict()
    code = script.parent / "code.pt"
    code.write_bytes(b"cbuiltins\nexec\n(Vraise SystemExit(9)\ntR.")
    weighted = {**state, "order": {**state["order"], "sampler": {"type": "WeightedRandomSampler"}}}
    cases: list[tuple[Any, Any, str]] = [
        (save(script, {"a": 1}), f"{script}:alone", "--entry must name a state of a loader"),
        (code, f"{script}:alone", "cannot be read as a file of torch.save, without running code in it"),
        (script.parent / "none.json", f"{script}:alone", "cannot be read as JSON"),
    ]

    for file, loader, message in cases:
        ran = run("rewind", file, loader, "--step", 0)
        assert (ran.returncode > 0, message in ran.stderr) == (True, True), ran.stderr
    several = run("rewind", save(script, [state, state]), f"{script}:alone", "--step", 0)
    assert "it has: '0', '1'" in several.stderr
    needs_script = run("rewind", save(script, weighted), script.parent / "photos", "--step", 0)
    assert "a state of WeightedRandomSampler needs the loader itself" in needs_script.stderr
    ranks = {**state, "ranks": {"num_replicas": 5, "origin": 0}}
    other = run("rewind", save(script, ranks), f"{script}:alone", "--step", 0)
    assert "the loader must be of 5 rank(s), as the state is, got one of 1" in other.stderr
