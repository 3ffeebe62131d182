"""penstock.DataLoader, yielding tensors. It adds no thread, no copy and no argument."""

from __future__ import annotations

from penstock.loader import DataLoader as NumpyDataLoader
from penstock.torch.collate import as_batch, default_collate, default_convert

__all__ = ["DataLoader"]


class DataLoader(NumpyDataLoader):
    """Batches as torch tensors; arguments, order, seeds and states are those of :class:`penstock.DataLoader`.

    Notes
    -----
    A dataset that fills rows gives tensors over the slot's own memory: it is used again when the last tensor (or view
    of one) is gone. Any other dataset is collated by ``torch.utils.data.default_collate``.
    """

    _collate = staticmethod(default_collate)
    _convert = staticmethod(default_convert)

    _deliver = staticmethod(as_batch)
