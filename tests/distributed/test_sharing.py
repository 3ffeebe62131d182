"""Ranks on one machine share what they fetch, and what they may ask for at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.stores.remote import request_queue
from tests.photographs import write_photographs
from tests.servers.web import serving

pytest.importorskip("obstore")

ROOT = Path(__file__).resolve().parents[2]


def start_rank(rank: int, *arguments: str) -> subprocess.Popen[str]:
    """One of two ranks on this machine, before it reads."""
    variables = {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.distributed.reading", *arguments], cwd=ROOT, env={**os.environ, **variables},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def hear(ranks: list[subprocess.Popen[str]]) -> list[Any]:
    """What each rank says; then all go on."""
    found = []
    for rank in ranks:
        assert rank.stdout is not None
        found.append(json.loads(rank.stdout.readline()))
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write("go on\n")
        rank.stdin.flush()
    return found


def test_two_ranks_fetch_each_record_once(tmp_path: Path) -> None:
    """Each looks ahead for its own part; the second epoch, in which parts are others, comes from the cache."""
    (tmp_path / "served").mkdir()
    ps.pack(write_photographs(tmp_path / "photographs", per_class=4), tmp_path / "served" / "real.lmdb")
    with ps.open(tmp_path / "served" / "real.lmdb") as store:
        sizes = [len(blob) for blob in store.blobs("image", range(len(store)))]

    with serving(tmp_path / "served") as server:
        ranks = [start_rank(rank, f"{server.url}/real.lmdb", str(tmp_path / "cache")) for rank in range(2)]
        try:
            limits = hear(ranks)
            asked, sent = len(server.asked), server.sent_nbytes
            epochs = [hear(ranks), hear(ranks)]
            assert [rank.wait(60) for rank in ranks] == [0, 0]
        finally:
            for rank in ranks:
                rank.kill()
                rank.communicate()
        ranges = Counter(each for each in server.asked[asked:] if each[0] == "GET")
        fetched = server.sent_nbytes - sent

    assert [sum(numbers) for numbers in epochs] == [len(sizes), len(sizes)]
    assert max(ranges.values()) == 1
    assert fetched < sum(sizes) + 2 * 4096 * len(sizes)  # whole pages
    assert limits == [[request_queue.MAX_NBYTES // 2, request_queue.MAX_REQUESTS // 2]] * 2
