"""What type checkers know of samples and batches; nothing here runs.

::

    collate_fn: ... -> B                  DataLoader[B]
    Dataset[tuple[Array, Array]]          DataLoader[tuple[Array, Array]]     also bare arrays, dicts, named tuples
    Dataset[tuple[Array, int]]            DataLoader[tuple[Array, Array]]
    anything else                         DataLoader[Any]

A batch has the structure of a sample, if samples are batched by the default ``collate_fn``. A plain tuple becomes a
list of as many arrays, as in torch; it has the type of a tuple here, which says how many there are. What a
``StoreDataset`` gives depends on the schema of its store, which is no type: Any. Arrays are NumPy's for the loader of
:mod:`penstock`, and tensors for that of :mod:`penstock.torch`, which has a ``SampleT`` of its own.

::

    class Photos(ps.Dataset[tuple[NDArray[np.uint8], int]]): ...

    for images, labels in ps.DataLoader(Photos(), 64): ...     NDArray[np.uint8], NDArray[Any]
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.sample import Array

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers bring it along

    BatchT_co = TypeVar("BatchT_co", covariant=True, default=Any)
else:
    BatchT_co = typing.TypeVar("BatchT_co", covariant=True)

__all__ = ["ArrayT", "BatchT", "BatchT_co", "MapDataset", "SampleT"]

SampleT_co = typing.TypeVar("SampleT_co", covariant=True)
"""A sample of any type."""

BatchT = typing.TypeVar("BatchT")
"""What a ``collate_fn`` returns."""

ArrayT = typing.TypeVar("ArrayT", bound=Array)
"""An array, with its dtype."""

SampleT = typing.TypeVar("SampleT", bound="Array | tuple[Array, ...] | Mapping[str, Array]")
"""A sample whose batch has the same type."""


class MapDataset(Protocol[SampleT_co]):
    """A map-style dataset of any class whose samples have a type.

    Datasets without types, and those whose samples are Any, are such datasets too. So are streams: ``IterableDataset``,
    torch's and penstock's, has the method of its base class.
    """

    def __getitem__(self, index: int, /) -> SampleT_co:
        """A sample."""
