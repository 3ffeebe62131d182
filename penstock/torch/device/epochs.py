"""The epochs of a loader, one after another, and where the loader stands after each batch.

Called by the iterator of :mod:`penstock.torch.device.prefetching`. Nothing here touches a device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator

from penstock.errors import ArgumentError
from penstock.loader.iteration import LoaderIterator
from penstock.loader.loader import DataLoader as NumpyLoader
from penstock.sample import Batch, SamplerLike, State
from penstock.samplers import Sampler
from penstock.torch.loader.dataloader import DataLoader

__all__ = ["LoaderEpochs", "defer_state", "find_numbered_parts"]


class LoaderEpochs:
    """Iterates a loader once, or epoch after epoch.

    Parameters
    ----------
    loader : iterable
        It is iterated at once.
    endless : bool
        Whether :meth:`begin_next` may be called.

    Raises
    ------
    ArgumentError
        If ``endless``, and a part of the loader has ``set_epoch``, but no epoch that can be counted on.
    """

    def __init__(self, loader: Iterable[Batch], *, endless: bool) -> None:
        if endless:
            find_numbered_parts(loader)
        self.endless = endless
        self._loader = loader
        self._batches = 0
        self._was_empty = False
        self._is_numbered = False
        self._iterator: Iterator[Batch] = iter(loader)
        self.epoch: int = _read_epoch(loader, self._iterator, default=0)

    def draw(self) -> Batch:
        """The next batch of the epoch. StopIteration: the epoch has ended."""
        try:
            batch = next(self._iterator)
        except Exception as error:
            self._batches += not isinstance(error, StopIteration)  # an error is in the place of a batch
            del self  # the error's traceback holds this frame, and would keep workers alive
            raise
        self._batches += 1
        return batch

    def begin_next(self) -> None:
        """Begin the next epoch, with its own number in samplers that do not count; the loader requests its batches.

        Raises
        ------
        ArgumentError
            If two epochs in a row have no batches. One alone may be the rest of an epoch that was resumed after its
            last batch.
        """
        loader, is_empty = self._loader, self._batches == 0
        if is_empty and self._was_empty:
            hint = f"; {type(loader).__name__} can be iterated once only" if self._iterator is loader else ""
            raise ArgumentError(f"endless=True needs a loader with batches, but two epochs in a row had none{hint}")
        if not self._is_numbered:  # else iter() failed after this
            for part in find_numbered_parts(loader):
                part.set_epoch(part.epoch + 1)
            self._is_numbered = True
        self._iterator = iter(())  # workers of the last epoch end before those of the next one start
        self._iterator = iter(loader)
        self._is_numbered, self._was_empty, self._batches = False, is_empty, 0
        self.epoch = _read_epoch(loader, self._iterator, default=self.epoch + 1)

    def close(self) -> None:
        """Close the loader's iterator, if it has ``close``. Idempotent."""
        iterator, self._iterator = self._iterator, iter(())
        if hasattr(iterator, "close"):
            iterator.close()


def find_numbered_parts(loader: object) -> list[SamplerLike]:
    """The objects whose epoch the user sets with ``set_epoch(epoch)``, since the loader does not count.

    They are the loader, its samplers and its dataset. penstock's loaders count, also for penstock's samplers. Any other
    loader that has ``set_epoch`` and no ``epoch`` is taken to count its epochs itself.

    Raises
    ------
    ArgumentError
        If a sampler or dataset has ``set_epoch``, but no integer ``epoch``: then the next epoch is not known.
    """
    is_own = isinstance(loader, DataLoader | NumpyLoader)
    numbered: list[SamplerLike] = []
    for part in () if isinstance(loader, NumpyLoader) else _list_parts(loader):
        if not hasattr(part, "set_epoch") or any(part is found for found in numbered):
            continue
        if is_own and (part is loader or isinstance(part, Sampler)):
            continue
        if isinstance(getattr(part, "epoch", None), int):
            numbered.append(part)
        elif part is not loader:
            raise ArgumentError(
                f"endless=True calls set_epoch(epoch + 1) after each epoch, but {type(part).__name__} has set_epoch "
                "and no integer attribute epoch; add the attribute, or prefetch one epoch at a time"
            )
    return numbered


def _list_parts(loader: object) -> list[SamplerLike]:
    batch_sampler = getattr(loader, "batch_sampler", None)
    sampler = getattr(loader, "sampler", None)
    return [loader, batch_sampler, sampler, getattr(batch_sampler, "sampler", None), getattr(loader, "dataset", None)]


def _read_epoch(loader: object, iterator: Iterator[Batch], *, default: int) -> int:
    """The number of the epoch that has just begun: as its samplers have it, or the loader; else ``default``."""
    for part in _list_parts(loader):
        if hasattr(part, "set_epoch") and isinstance(number := getattr(part, "epoch", None), int):
            if isinstance(part, Sampler) and isinstance(iterator, LoaderIterator):
                break
            return number
    return iterator.epoch.position.epoch if isinstance(iterator, LoaderIterator) else default


def defer_state(loader: object) -> Callable[[], State] | None:
    """A function that returns the loader's present state; None if the loader has no state."""
    if isinstance(loader, DataLoader) and type(loader).state_dict is DataLoader.state_dict:
        return loader._defer_state()  # noqa: SLF001  # the state is computed only if it is requested
    if not hasattr(loader, "state_dict"):
        return None
    state = loader.state_dict()
    return lambda: copy.deepcopy(state)
