"""torchft: a replica is killed, the other goes on, and the first comes back by healing from it."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torchft = pytest.importorskip("torchft", reason="torchft is not installed: it is not among requirements/clients.txt")

from tests.clients.resume.replica import make_loader  # noqa: E402  # it needs torchft

KILL = 3
TIMEOUT_S = 100.0


@pytest.mark.timeout(280)  # three starts of torchft, one behind the other
def test_a_replica_is_lost_and_comes_back(tmp_path: Path) -> None:
    """Step s of each replica has batch s, to the bit: also the step that fails, and those after the return."""
    from torchft.coordination import LighthouseServer

    stop, logs = tmp_path / "stop", [tmp_path / "0", tmp_path / "1"]
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=100, heartbeat_timeout_ms=2000)
    address = server.address()

    def start(number: int, kill: int = -1) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-W", "ignore", "-m", "tests.clients.resume.replica"]
        with (tmp_path / f"{number}.out").open("ab") as output:  # torchft's lines; the core's come from its own threads
            return subprocess.Popen(
                [*command, address, str(number), str(logs[number]), str(stop), str(kill)], stdout=output, stderr=output
            )

    running = [start(0), start(1, KILL)]
    try:
        assert running[1].wait(TIMEOUT_S) == -signal.SIGKILL
        lost = len(read(logs[1]))
        wait_for(lambda: read(logs[0])[-1]["step"] > KILL + 2)
        running[1] = start(1)
        wait_for(lambda: sum(note["counts"] for note in read(logs[1])[lost:]) > 6)
        stop.touch()
        for process in running:
            assert process.wait(TIMEOUT_S) == 0
    finally:
        for process in running:
            process.kill()
            process.wait()
        server.shutdown()

    survivor, returned = read(logs[0]), read(logs[1])[lost:]
    assert [note["step"] for note in survivor if note["ended"] > note["step"]] == list(range(survivor[-1]["ended"]))
    assert KILL in [note["step"] for note in survivor if note["ended"] == note["step"]]
    used = [note for note in returned if note["counts"]]
    assert used[0]["step"] > KILL + 2
    for number, notes in enumerate([survivor, read(logs[1])[:lost] + used]):
        wanted = list(itertools.islice(epochs(number), survivor[-1]["step"] + 8))
        for note in notes:
            assert (number, note["step"], note["batch"]) == (number, note["step"], wanted[note["step"]])


def epochs(number: int) -> Iterator[Any]:
    """The batches of a replica that is never lost."""
    loader = make_loader(number)
    while True:
        for batch in loader:
            yield batch.tolist()


def read(log: Path) -> list[dict[str, Any]]:
    """The notes of a replica, without a line that is being written."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines] or [{"step": -1, "ended": -1, "counts": False}]


def wait_for(condition: Any) -> None:
    """Until it holds."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, "the replicas have not come so far"
        time.sleep(0.1)
