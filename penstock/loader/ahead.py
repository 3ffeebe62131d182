"""The next epoch, begun while the last batches of this one are consumed: ``overlap_epochs=True``.

::

    epoch 0   ... tasks end | last batches are consumed  StopIteration
    epoch 1                 | begin() builds its first batches         iter(): take() returns them

The next epoch has a backend of its own; with ``persistent_workers`` two backends take turns. Until :meth:`take`, the
loader has not changed: its state is that of the epoch under way.
"""

from __future__ import annotations

import logging
import operator
import os
import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.loader.iteration import LoaderIterator

__all__ = ["EpochAhead", "EpochKey"]

_logger = logging.getLogger(__name__)


EpochKey = tuple[tuple[int | None, ...], tuple[object, ...]]


class _Loader(Protocol):
    # Values and objects that it depends on, to be compared by == and by identity; None: it must not begin early.
    def _next_epoch_key(self) -> EpochKey | None: ...

    def _begin_next_epoch(self) -> LoaderIterator: ...  # changes nothing else


class EpochAhead:
    """Holds the iterator of the next epoch, if that has begun."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = weakref.ref(loader)
        self._key: EpochKey | None = None
        self._iterator: LoaderIterator | None = None
        self._pid = os.getpid()

    def begin(self) -> None:
        """Begin the next epoch, unless that was done; an error is left to ``iter()``, which meets it again."""
        loader = self._loader()
        key = None if loader is None or self._iterator is not None else loader._next_epoch_key()  # noqa: SLF001  # the loader made this object
        if loader is None or key is None:
            return
        try:
            self._iterator, self._key = loader._begin_next_epoch(), key  # noqa: SLF001  # as above
        except Exception as error:  # noqa: BLE001  # as the docstring says
            _logger.debug("the next epoch could not begin ahead: %r", error)

    def take(self, key: EpochKey | None) -> LoaderIterator | None:
        """The iterator that was begun; None, and it is closed, if what the epoch depends on has changed since."""
        iterator, self._iterator = self._iterator, None
        if self._pid != os.getpid():  # the workers are the parent's
            self._pid = os.getpid()
            return None
        if iterator is None or _are_same(key, self._key):
            return iterator
        iterator.close()
        return None

    def close(self) -> None:
        """Stop the workers of an epoch that was begun. Idempotent."""
        self.take(None)


def _are_same(a: EpochKey | None, b: EpochKey | None) -> bool:
    """Objects are compared by identity: ``==`` of a dataset or a tensor is the user's, and may be no bool."""
    return a is not None and b is not None and a[0] == b[0] and all(map(operator.is_, a[1], b[1]))
