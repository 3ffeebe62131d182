"""Running loaders in a viewer: found, read while they run, and seen to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.errors import ArgumentError
from penstock.loader.live.live_file import LiveFile
from penstock.viewer.live.sources import LiveLoader, make_point
from tests.pack.images import make_photos
from tests.viewer.running import start_training, until


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where loaders write."""
    monkeypatch.setenv("PENSTOCK_VIEW_DIR", str(tmp_path / "live"))
    (tmp_path / "live").mkdir()
    return tmp_path / "live"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eight pictures, and one that is none."""
    folder = make_photos(tmp_path / "photos", 8)
    (folder / "cats" / "broken.jpg").write_bytes(b"no picture")
    return folder


@pytest.fixture
def ranks(photos: Path, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that train."""
    started = [start_training(photos, folder, "threads", 0), start_training(photos, folder, "processes", 1)]
    yield started
    for each in started:
        with each:  # which closes its pipes, and waits
            each.kill()


def test_two_ranks_are_shown_until_they_end(ranks: list[Any], photos: Path, ask: Callable[..., Any]) -> None:
    """Speeds over time, slow samples with pictures, what is left out; the end of one, and that the other was killed."""
    asker = ask(attach="all")
    found: list[Any] = []

    def is_complete() -> bool:
        found[:] = asker.json("api/live/loaders")["loaders"]
        has_queue = all(any(point["limit"] == 4 for point in each["points"]) for each in found)
        return len(found) == 2 and has_queue and all(each["slow"] and each["errors"] for each in found)

    until(is_complete)

    assert asker.json("api/session")["features"] == ["live"]
    assert asker.json("api/session")["total"] == 9
    assert [(each["rank"], each["world_size"], each["workers"]) for each in found] == [
        (0, 2, "threads"),
        (1, 2, "processes"),
    ]
    for each, process in zip(found, ranks, strict=True):
        assert (each["state"], each["pid"], each["dataset"]) == ("running", process.pid, "StoreDataset")
        point = each["points"][-1]
        assert point["samples_per_s"] > 0
        assert point["wait_ms"] + point["step_ms"] > 0
        assert set(point["busy"]) == {"0", "1"}
        assert each["errors"][0]["key"] == "cats/broken.jpg"
        slow = each["slow"][0]
        assert slow["key"] == asker.json(f"api/rows?start={slow['record']}&stop={slow['record'] + 1}")["rows"][0]["key"]
    pictures = [slow["picture"] for each in found for slow in each["slow"] if "broken" not in slow["key"]]
    status, headers, body = asker.request(pictures[0] + "?side=32")
    assert (status, headers["content-type"], body[8:12]) == (200, "image/webp", b"WEBP")

    # What the page knows is not sent again.
    known = ",".join(f"{each['number']}:{each['points'][-1]['t']}" for each in found)
    for each, before in zip(asker.json(f"api/live/loaders?since={known}")["loaders"], found, strict=True):
        assert all(point["t"] > before["points"][-1]["t"] for point in each["points"])

    assert f"{ranks[0].pid}  rank 0" in CliRunner().invoke(app, ["view", "--attach", "list"]).output
    ranks[0].stdin.close()
    ranks[1].send_signal(signal.SIGKILL)
    for process in ranks:
        process.wait()

    def states() -> list[str]:
        loaders = sorted(asker.json("api/live/loaders")["loaders"], key=lambda each: each["rank"])
        return [each["state"] for each in loaders]

    until(lambda: states() == ["ended", "killed"])
    assert "its process was killed" in CliRunner().invoke(app, ["view", "--attach", "list"]).output


def test_a_process_or_a_file_is_named(folder: Path, photos: Path, ask: Callable[..., Any]) -> None:
    """Others are not shown; without a store there are no records."""
    files = [LiveFile(folder / f"host-{pid}-0.jsonl", {"penstock": 1, "pid": pid}) for pid in (11, 12, 112)]

    shown = [
        [each["pid"] for each in ask(attach=which).json("api/live/loaders")["loaders"]]
        for which in (12, str(files[0].path), str(folder))
    ]

    assert shown == [[12], [11], [11, 112, 12]]
    asker = ask(str(photos), attach=11)
    assert asker.json("api/session")["total"] == 9
    assert ask(attach="all").json("api/rows")["rows"] == []


def test_a_loader_of_this_process_is_shown(photos: Path, ask: Callable[..., Any]) -> None:
    """From its next epoch on, as in a notebook, beside its samples; pictures of slow ones are those of its store."""
    with ps.open(str(photos)) as store:
        dataset = ps.StoreDataset(store, fields=("image", "label"), transform=[ps.transforms.Decode()])
        loader = ps.DataLoader(ps.Subset(dataset, [1, 2]), collate_fn=list, view=True)
        asker = ask(loader)
        assert asker.json("api/session")["total"] == 2
        assert asker.json("api/live/loaders")["loaders"] == []

        assert len(list(loader)) == 2

        [shown] = asker.json("api/live/loaders")["loaders"]
        assert (shown["pid"], shown["dataset"]) == (os.getpid(), "Subset")
        assert all(each["picture"] for each in shown["slow"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a store or a loader must be given"),
        ({"attach": 999_999_999}, "process 999999999 writes nothing; loaders with view=True write to"),
        ({"attach": "/nothing/here.jsonl"}, "there is no file /nothing/here.jsonl"),
        ({"attach": __file__}, "must be a file that a loader writes, its first line is no header"),
    ],
)
def test_what_is_not_there_is_said(arguments: dict[str, Any], message: str) -> None:
    """In one sentence, before a server starts."""
    with pytest.raises(ArgumentError, match=message):
        ps.view(**arguments)


def test_the_command_says_what_it_needs(photos: Path) -> None:
    """No store and no loaders; nothing that runs."""
    runner = CliRunner()
    assert "STORE must be given, or --attach" in str(runner.invoke(app, ["view"]).exception)
    assert "no loader with view=True is iterated" in runner.invoke(app, ["view", "--attach", "list"]).output


def test_requests_that_are_wrong_are_refused(folder: Path, photos: Path, ask: Callable[..., Any]) -> None:
    """Without a loader, or with a store, a record or times that are not known."""
    plain, asker = ask(str(photos)), ask(str(photos), attach="all")

    assert plain.request("api/live/loaders")[0] == 400
    for path in ("loaders?since=x", "loaders?since=1:1e400", "thumb/0/0", "loaders?since=" + "1:1," * 999):
        status, _, body = asker.request(f"api/live/{path}")
        assert (status, list(json.loads(body))) == (400, ["error"])


def test_lines_of_any_kind_are_shown_or_passed_over(folder: Path, ask: Callable[..., Any]) -> None:
    """A file may hold whatever JSON can: numbers that are text, keys that are markup, values that do not fit."""
    file = LiveFile(folder / "host-1-0.jsonl", {"penstock": 1, "pid": "x", "rank": None, "dataset": ["a"], "store": 3})
    file.append({"t": 1, "batches": 1, "samples": 1, "workers": {"0": 1}, "queue": "none", "stages": 3})
    slow = [{"ms": "1", "indices": "x", "store": "nothing://here", "record": 0, "key": "<img src=x>" * 999}, 3, None]
    file.append({"t": 2, "batches": 9, "samples": 9, "workers": {"0": {}}, "queue": [{}], "stages": None, "slow": slow})
    file.append(
        {
            "t": 3,
            "batches": 1e308,
            "samples": -1,
            "workers": [],
            "errors": [{"index": {}}, 3],
            "slow": {},
            "verdict": "<b>",
        }
    )
    file.append({"t": {"a": 1}, "batches": True})

    [shown] = ask(attach="all").json("api/live/loaders")["loaders"]

    assert (shown["pid"], shown["dataset"], shown["store"]) == (0, "", "")
    assert [point["t"] for point in shown["points"]] == [2, 3]
    assert shown["verdict"] == "<b>"
    assert len(shown["slow"]) == 1
    assert (shown["slow"][0]["picture"], shown["slow"][0]["key"]) == (None, "record 0")


def test_speeds_are_differences_of_sums() -> None:
    """As ``Stats.since`` computes them."""
    before = {
        "t": 10.0,
        "batches": 2,
        "samples": 8,
        "wait_ns": 0,
        "nbytes": 0,
        "queue": [1, 3, 4],
        "stages": {"read": 0},
    }
    line = {
        "t": 12.0, "batches": 6, "samples": 24, "wait_ns": 1_000_000_000, "nbytes": 2_000, "queue": [1, 3, 4],
        "stages": {"read": 16_000_000}, "workers": {"-1": [5, 0], "0": [500_000_000, 4]},
    }  # fmt: skip

    point: Any = make_point(before, line)

    assert point is not None
    assert (point["samples_per_s"], point["nbytes_per_s"]) == (8, 1000)
    assert (point["wait_ms"], point["step_ms"]) == (250, 250)
    assert point["stages"]["read"] == 1000
    assert point["busy"] == {"0": 0.25}
    assert (point["ready"], point["under_way"], point["limit"]) == (1, 3, 4)
    assert make_point(line, line) is None


def test_the_queue_of_an_epoch_that_has_ended_is_that_of_before(folder: Path) -> None:
    """Between two epochs there is none, however short they are."""
    file = LiveFile(folder / "host-1-0.jsonl", {"penstock": 1})
    watched = LiveLoader(file.path, 0)
    for t, queue in enumerate(([1, 3, 4], [0, 0, 0], [0, 0, 0], [4, 4, 4]), start=1):
        file.append({"t": t, "batches": t, "samples": t, "queue": queue})

    watched.poll()

    assert [(point["ready"], point["under_way"], point["limit"]) for point in watched.points] == [
        (1, 3, 4),
        (1, 3, 4),
        (4, 4, 4),
    ]


def test_a_pause_between_epochs_is_a_gap(folder: Path) -> None:
    """A loader for validation is as fast as it is while it is iterated; epochs may be shorter than a point."""
    file = LiveFile(folder / "host-1-0.jsonl", {"penstock": 1})
    watched = LiveLoader(file.path, 0)
    for t, begun, batches in ((1.0, 0.9, 1), (2.0, 0.9, 11), (60.2, 60.0, 12), (60.4, 60.3, 13), (61.0, 60.9, 21)):
        file.append({"t": t, "begun": begun, "batches": batches, "samples": batches})

    watched.poll()

    assert [(point["t"], point["seconds"], point["samples_per_s"]) for point in watched.points] == [
        (2, 1, 10),
        (61, 1, 10),
    ]


def test_a_file_whose_old_lines_were_removed_is_read_once(folder: Path) -> None:
    """Its first lines are known already."""
    path = folder / "host-1-0.jsonl"
    file, watched = LiveFile(path, {"penstock": 1}), LiveLoader(path, 0)
    for number in range(1500):
        file.append({"t": number, "batches": number, "samples": number, "slow": []})
        if number % 300 == 0:
            watched.poll()
    watched.poll()

    times: list[Any] = [point["t"] for point in watched.points]
    assert times == sorted(set(times))
    assert times[-1] == 1499
    file.close()
    watched.poll()
    assert watched.state == "ended"
