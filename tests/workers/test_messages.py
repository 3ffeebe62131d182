"""Messages are sent as tuples of plain values, and are the same again."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from penstock.sample import SampleKeys
from penstock.workers import Task, WorkerStart
from penstock.workers.left_out import LeftOut
from penstock.workers.processes.captured_errors import CapturedError
from penstock.workers.processes.messages import (
    BatchBuilt,
    EpochStarted,
    SlotPayload,
    SlotReport,
    SlotReturn,
    StartEpoch,
    decode,
    encode,
)

LEFT_OUT = LeftOut(0, 7, 3, None, None, "no image", "DecodeError")

MESSAGES = [
    StartEpoch(WorkerStart(3, 1, 20, {"ended": False}, rng=b"rng")),
    EpochStarted(b"state", CapturedError("ValueError", "text")),
    BatchBuilt(7, 2, b"state", b"rng", None, [LEFT_OUT], ((1, 2), (3, 4))),
    SlotReport([(1, 4096, 10)], [(1, 8192)], [2], "no memory"),
    SlotReturn([1], [2]),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_as_it_was_sent(message: Any) -> None:
    """All fields, in a tuple that names no class of a message."""
    sent = pickle.dumps(encode(message))

    assert decode(pickle.loads(sent)) == message
    assert type(message).__name__.encode() not in sent


def test_a_payload_is_not_part_of_the_message() -> None:
    """It belongs to the transport, which need not pickle it."""
    message = BatchBuilt(7, 2, None, None, None, (), (), payload=SlotPayload(b"large"))

    received = decode(pickle.loads(pickle.dumps(encode(message))))

    assert isinstance(received, BatchBuilt)
    assert received.payload == SlotPayload()


@pytest.mark.parametrize("same", [True, False])
def test_a_task_is_the_same_in_the_worker(same: bool) -> None:
    """But for what belongs to the parent; keys that are the indices are sent once."""
    indices = np.array([4, 2], np.int64)
    keys = SampleKeys(11, 3, indices if same else indices + 100)
    task = Task(7, indices, keys, sampler_state="parent's", worker=1, snapshot=False, fatal={0: "died"}, size=5)

    sent = encode(task)
    received = decode(pickle.loads(pickle.dumps(sent)))

    assert isinstance(received, Task)
    assert (sent[5] is None) == same
    assert received.keys.indices.tolist() == keys.indices.tolist()
    others = {"sampler_state", "worker", "keys", "indices"}
    names = [each.name for each in fields(Task) if each.name not in others]
    assert [getattr(received, name) for name in names] == [getattr(task, name) for name in names]
    assert received.indices.tolist() == [4, 2]
