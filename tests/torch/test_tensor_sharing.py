"""Tensors from worker processes: what torch's own way of sending them keeps."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402  # it is there now

import penstock.torch as pt  # noqa: E402  # as above

TENSORS: dict[str, Any] = {
    "channels last": torch.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "channels last, large": torch.rand(2, 3, 64, 65).contiguous(memory_format=torch.channels_last),
    "channels last in three dimensions": torch.rand(1, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last_3d),
    "transposed": torch.arange(6).reshape(2, 3).T,
    "every second": torch.arange(8)[::2],
    "repeated": torch.arange(2).expand(3, 2),
    "empty": torch.empty(0, 3).T,
    "that wants a gradient": torch.rand(2, 3).T.contiguous().T.requires_grad_(),
}


def itself(batch: Any) -> Any:
    """No collation."""
    return batch


@pytest.mark.parametrize("name", TENSORS)
def test_the_order_of_dimensions_in_memory_is_kept(name: str) -> None:
    """A batch that collate_fn has made channels-last comes as it was made; one with gaps comes without them."""
    given = TENSORS[name]
    loader: Any = pt.DataLoader([given], None, num_workers=1, collate_fn=itself, multiprocessing_context="fork")

    (sent,) = loader

    assert torch.equal(sent, given)
    assert (sent.dtype, sent.requires_grad) == (given.dtype, given.requires_grad)
    dense = name not in {"every second", "repeated"}
    assert not sent.numel() or sent.stride() == (given.stride() if dense else given.contiguous().stride())


@pytest.mark.parametrize("make", [data.DataLoader, pt.DataLoader])
def test_a_tensor_is_no_list_of_samples(make: Any) -> None:
    """default_collate of one tensor is a TypeError, also in a worker."""
    loader = make(
        [torch.arange(3.0)], None, num_workers=1, collate_fn=data.default_collate, multiprocessing_context="fork"
    )

    with pytest.raises(TypeError, match="must be tuple of Tensors, not Tensor"):
        list(loader)
