"""Nested batches: all tensors are found and moved, and containers keep their types."""

from __future__ import annotations

import collections
import types
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from penstock.torch.device.batches import iterate_tensors, map_tensors, to_device  # noqa: E402  # it needs torch

META = torch.device("meta")


class Pair(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any


@dataclass
class Detection:
    """A batch class of the user."""

    image: Any
    boxes: list[Any]
    name: str = "none"
    area: Any = field(init=False, default=None)


@dataclass(frozen=True, slots=True)
class Frozen:
    """An object without ``__dict__`` and without assignment."""

    image: Any


class Custom:
    """An object whose ``to`` does not accept non_blocking."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def to(self, device: Any) -> Custom:
        """Return a copy."""
        return Custom(self.x.to(device))


class InPlace:
    """An object whose ``to`` works in place, as graph batches do, and accepts non_blocking."""

    def __init__(self, x: Any) -> None:
        self.inner = {"x": x}
        self.asked: list[Any] = []

    def to(self, device: Any, non_blocking: bool = False) -> InPlace:
        """Return itself."""
        self.asked.append(non_blocking)
        self.inner = {"x": self.inner["x"].to(device)}
        return self


class Tagged(collections.UserDict[str, Any]):
    """A mapping with another attribute."""

    tag = "kept"


def move(batch: Any) -> Any:
    """The meta device, which computes nothing."""
    return to_device(batch, META, non_blocking=True)


def test_every_tensor_of_a_nested_batch_is_moved_and_found() -> None:
    """Lists, tuples, dicts, named tuples, dataclasses and user classes keep their types."""
    tagged = Tagged(a=torch.ones(1))
    tagged.tag = "mine"
    detection = Detection(torch.ones(2), [torch.ones(3), 4])
    detection.area = torch.ones(4)
    batch = [
        torch.ones(5),
        (torch.ones(6), "text", b"bytes", None, 3, 1.5),
        collections.OrderedDict(b=Pair(torch.ones(7), torch.ones(8))),
        detection,
        Frozen(torch.ones(9)),
        Custom(torch.ones(10)),
        InPlace(torch.ones(11)),
        tagged,
        collections.deque([torch.ones(12)], maxlen=3),
        collections.defaultdict(list, c=torch.ones(13)),
        types.MappingProxyType({"d": torch.ones(14)}),
        torch.nn.utils.rnn.pack_sequence([torch.ones(15)]),
    ]
    before = sorted(t.numel() for t in iterate_tensors(batch))

    moved = move(batch)

    assert before == sorted([1, *range(2, 16), 15])  # batch_sizes of the packed sequence is one too
    after = list(iterate_tensors(moved))
    assert sorted(t.numel() for t in after) == before
    assert [t.numel() for t in after if t.device != META] == [15]  # ... and stays on the CPU, as torch has it
    assert [type(part) for part in moved[:-2]] == [type(part) for part in batch[:-2]]
    assert type(moved[-1]) is type(batch[-1])
    assert moved[1][1:] == ("text", b"bytes", None, 3, 1.5)
    assert type(moved[2]["b"]) is Pair
    assert (moved[3].name, moved[3].boxes[1]) == ("none", 4)
    assert moved[6].asked == [True]
    assert moved[7].tag == "mine"
    assert moved[8].maxlen == 3
    assert moved[9].default_factory is list
    assert moved[10]["d"].device == META


def test_non_blocking_is_passed_to_whoever_takes_it() -> None:
    """It is passed by name or in any keywords; a ``to`` without it is called without it."""

    class Keywords:
        def to(self, device: Any, **kwargs: Any) -> Any:
            return kwargs

    class Plain:
        def to(self, device: Any) -> Any:
            return "plain"

    assert move([Keywords(), Plain()]) == [{"non_blocking": True}, "plain"]


def test_the_given_batch_is_left_as_it_was() -> None:
    """Moving creates new containers; the original ones still have the host tensors."""
    tensor = torch.ones(2)
    inner, detection, frozen = [tensor], Detection(tensor, [tensor]), Frozen(tensor)
    batch = {"a": inner, "b": detection, "c": frozen}

    moved = move(batch)

    assert moved["a"] is not inner
    assert batch["a"] is inner
    assert inner[0] is detection.image is detection.boxes[0] is frozen.image is tensor


@pytest.mark.parametrize(
    "batch",
    [
        "text", b"bytes", 3, None, range(3), np.zeros(3), ["a", ["b"]], {"a": (1, 2)}, Pair(1, 2), Detection(1, [2]),
        (), {}, Tagged(a=1), bytearray(b"ab"), {1, 2}, int, np.float32,
    ],
)  # fmt: skip
def test_what_holds_no_tensor_stays_the_same_object(batch: Any) -> None:
    """Objects without tensors are not copied."""
    assert move(batch) is batch
    assert list(iterate_tensors(batch)) == []


def test_containers_that_cannot_be_rebuilt_become_plain_ones() -> None:
    """A sequence or mapping with another constructor becomes a list or dict, as in torch."""

    class Odd(collections.UserList[Any]):
        def __init__(self, a: Any, b: Any) -> None:
            super().__init__([a, b])

        def __setitem__(self, i: Any, value: Any) -> None:
            raise TypeError("read-only")

    class Map(dict[str, Any]):
        def __copy__(self) -> Map:
            raise TypeError("unique")

    tensor = torch.ones(1)

    assert type(move(Odd(tensor, 2))) is list
    assert type(move(Map(a=tensor))) is dict


def test_subclasses_of_tensor_stay_what_they_are() -> None:
    """A parameter is moved by its own method."""

    class Marked(torch.Tensor):  # type: ignore[name-defined,misc]  # a module found at run time
        pass

    assert type(move([torch.ones(2).as_subclass(Marked)])[0]) is Marked


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore:The PyTorch API of nested:UserWarning")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_the_parts_of_sparse_tensors_are_found(layout: str) -> None:
    """Indices and values are tensors with memory."""
    eye = torch.eye(4).to_sparse(layout=getattr(torch, layout))

    parts = list(iterate_tensors([eye]))

    assert len(parts) == (2 if layout == "sparse_coo" else 3)
    assert all(part.layout == torch.strided and part.untyped_storage().nbytes() for part in parts)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested:UserWarning")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_the_parts_of_nested_tensors_are_found(layout: str) -> None:
    """They are the buffer of a nested tensor, and its offsets if it is jagged."""
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=getattr(torch, layout))

    parts = list(iterate_tensors({"a": nested}))

    assert sorted(part.numel() for part in parts)[-2:] == ([3, 5] if layout == "jagged" else [5])
    assert not any(part.is_nested for part in parts)


def test_cycles_end_and_shared_tensors_come_once() -> None:
    """An object that refers to itself is visited once."""
    custom, tensor = Custom(torch.ones(1)), torch.ones(2)
    custom.x = [custom, tensor, tensor]

    assert [t.numel() for t in iterate_tensors([custom, tensor])] == [2]


def test_mapping_a_function_reaches_tensors_alone() -> None:
    """The ``to`` method of other objects is not called."""
    custom = Custom(torch.ones(1))

    doubled = map_tensors(lambda t: t * 2, [torch.ones(1), custom, {"a": torch.ones(1)}])

    assert (doubled[0].item(), doubled[2]["a"].item()) == (2, 2)
    assert doubled[1] is custom
