"""The positions of loaders in Lightning's checkpoints, as a callback of its ``Trainer``.

Lightning keeps the states of loaders itself, those of rank 0, and loses them in four cases: a module asks for
``estimated_stepping_batches`` (pytorch-lightning#20550); the checkpoint is of the end of an epoch, or of its last
batch; a loader has no length, so that a batch is read ahead. This module reads and sets attributes of Lightning's loops
(``trainer.fit_loop``), since no hook is called between the making of loaders and their first batch.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.registry import require
from penstock.sample import Batch, StateDict
from penstock.torch.loader.dataloader import DataLoader
from penstock.torch.loader.saving import Stateful
from penstock.torch.resume.ranks import choose_state, gather_states

__all__ = ["LightningResume"]

_KEY: Final = "penstock.torch.resume"
_Write = Callable[[], StateDict]


def _find_callback_class() -> Any:
    """Return that of the package that the program has imported: Lightning is distributed under two names."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:
            return importlib.import_module(name).Callback
    return require("pytorch_lightning", purpose="for penstock.torch.resume.lightning").Callback


class LightningResume(_find_callback_class()):  # type: ignore[misc]  # known when the program runs
    """Saves where the training loaders are, and continues there: ``Trainer(callbacks=[LightningResume()])``.

    Loaders need no change; each with ``state_dict`` and ``load_state_dict`` is saved, in the checkpoints that the
    trainer writes, with the states of all ranks. A checkpoint that was written without the callback is loaded as
    Lightning does.
    """

    def __init__(self) -> None:
        self._saved: tuple[StateDict, ...] | None = None
        self._recent: deque[tuple[list[_Write], int]] = deque(maxlen=2)
        self._is_ahead = self._has_ended = False

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: StateDict) -> None:  # noqa: ARG002  # its names
        """Add the states of all ranks. Lightning calls it on each."""
        if trainer.fit_loop._combined_loader is None:  # noqa: SLF001  # see above
            return
        writers, skip = self._recent[0] if self._is_ahead else (_defer_states(trainer), 0)
        states = {"loaders": [write() for write in writers], "skip": skip, "ended": self._has_ended}
        checkpoint[_KEY] = gather_states(states)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: StateDict) -> None:  # noqa: ARG002  # as above
        """Keep the states until there are loaders; Lightning, which may load its own, finds none."""
        self._saved = checkpoint.get(_KEY) if trainer.state.fn == "fit" else None
        if self._saved is not None:
            checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002  # as above
        """Move the loaders to the states that were kept."""
        saved, self._saved = self._saved, None
        fetcher = trainer.fit_loop._data_fetcher  # noqa: SLF001  # as above
        if saved is not None:
            states = zip(*(rank["loaders"] for rank in saved), strict=True)
            for loader, of_ranks in zip(_loaders_of(trainer), states, strict=True):
                loader.load_state_dict(choose_state(of_ranks))
                if saved[0]["ended"]:
                    iter(loader)  # the epoch without batches that is left: the next one is what the trainer begins
                for _ in range(saved[0]["skip"]):
                    next(iter(loader))
                    loader.load_state_dict(loader.state_dict())
            fetcher.reset()
            fetcher.iterator = _FirstBatch(fetcher)
        self._note(trainer)
        self._has_ended = saved is not None and saved[0]["ended"]

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002  # as above
        """Note where the loaders are."""
        ended = self._has_ended
        self._note(trainer)
        self._has_ended = ended

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Batch, batch_idx: int) -> None:  # noqa: ARG002  # as above
        """Note where the loaders are."""
        self._note(trainer)

    def _note(self, trainer: Any) -> None:
        fetcher = trainer.fit_loop._data_fetcher  # noqa: SLF001  # as above
        self._is_ahead = bool(getattr(fetcher, "batches", ()))
        self._has_ended = fetcher.done and fetcher.length is not None  # of others the end has been read
        if fetcher.length is None:
            self._recent.append((_defer_states(trainer), 0 if self._is_ahead else 1))


class _FirstBatch:
    """The iterator of a fetcher whose loaders were moved: begins them when the first batch is drawn, as it would have.

    Lightning may make another iterator before that; then this one is never used.
    """

    def __init__(self, fetcher: Any) -> None:
        self._fetcher = fetcher

    def __next__(self) -> object:
        fetcher = self._fetcher
        fetcher.iterator = iter(fetcher.combined_loader)
        first = next(fetcher.iterator)
        if fetcher.length is None:
            try:
                fetcher.batches.append(next(fetcher.iterator))
                fetcher.fetched += 1
            except StopIteration:
                fetcher.done = True
        return first


def _loaders_of(trainer: Any) -> list[Any]:
    return [loader for loader in trainer.fit_loop._combined_loader.flattened if isinstance(loader, Stateful)]  # noqa: SLF001  # as above


def _defer_states(trainer: Any) -> list[_Write]:
    """What writes the present states down, where somebody asks for them."""
    writers: list[_Write] = []
    for loader in _loaders_of(trainer):
        write = loader._defer_state() if isinstance(loader, DataLoader) else None  # noqa: SLF001  # of this package
        if write is None:
            write = functools.partial(_same, loader.state_dict())
        writers.append(write)
    return writers


def _same(state: StateDict) -> StateDict:
    return state
