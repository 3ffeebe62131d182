"""Composer: a callback whose state, in Composer's checkpoints, is that of the training loader on every rank."""

from __future__ import annotations

from typing import Any

from penstock.errors import ArgumentError
from penstock.registry import require
from penstock.sample import StateDict
from penstock.torch.loader.dataloader import DataLoader
from penstock.torch.resume.rank_files import join_states

__all__ = ["ComposerResume"]

_composer: Any = require("composer", purpose="for penstock.torch.resume.ComposerResume")
_utils: Any = require("composer.utils", purpose="for penstock.torch.resume.ComposerResume")
_dist: Any = _utils.dist


class ComposerResume(_composer.Callback):  # type: ignore[misc]  # Composer is not there for mypy
    """A callback of ``composer.Trainer``: a run that is loaded goes on with the next batch of penstock's loader.

    Composer itself reads every batch again up to the position, and the first one of every epoch before it. With this
    callback it reads none, and random states of workers and of the program are those of the run that was stopped.

    Raises
    ------
    ArgumentError
        When a run begins or is saved, if ``train_dataloader`` is no :class:`penstock.torch.DataLoader`.
    StateError
        When a run begins that was loaded, if the state belongs to a loader with another order.

    Notes
    -----
    Asking for the state waits for all ranks, as Composer's own random states do. With ``train_subset_num_batches``, an
    epoch ends before the loader does, and Composer skips batches as it does without this callback.

    Examples
    --------
    ::

        trainer = composer.Trainer(model, train_dataloader=loader, load_path=checkpoint, callbacks=[ComposerResume()])
    """

    def __init__(self) -> None:
        self._state: Any = None
        self._loaded: list[StateDict] = []
        self._generators: Any = None  # until the first batch is asked for

    def init(self, state: Any, *_: object) -> None:
        """Keep Composer's state, to ask it for the loader."""
        self._state = state

    def state_dict(self) -> StateDict:
        """Return the states of the loaders and of the generators of all ranks."""
        loader = self._loader()
        begins = int(self._state.timestamp.batch_in_epoch) == 0  # Composer leaves an epoch without asking for its end
        own = loader._describe_next_epoch() if begins else loader.state_dict()  # noqa: SLF001  # a loader of ours
        generators = None if begins else _utils.reproducibility.get_rng_state()
        return {"ranks": _dist.all_gather_object(own), "generators": generators}

    def load_state_dict(self, state: StateDict) -> None:
        """Keep the states until the loader is there."""
        self._loaded, self._generators = state["ranks"], state["generators"]

    def fit_start(self, state: Any, *_: object) -> None:
        """Load the state of this rank, or of all ranks where their number is another one."""
        length, generators, self._generators = state.dataloader_len, self._generators, None
        if not self._loaded or (length is not None and int(length) < len(self._loader())):
            return  # where an epoch ends before its loader, Composer counts what it skips
        same = len(self._loaded) == _dist.get_world_size()
        states = [self._loaded[_dist.get_global_rank()]] if same else self._loaded
        self._loader().load_state_dict(join_states(states))
        self._loaded = []
        state.dataset_resumption["train"] = True  # Composer's word that there is nothing to skip
        self._generators = generators if same else None

    def before_dataloader(self, *_: object) -> None:
        """Restore the generators in the middle of an epoch: Composer does it only where it has skipped batches."""
        generators, self._generators = self._generators, None
        if generators is not None:
            _utils.reproducibility.load_rng_state(generators)

    def _loader(self) -> DataLoader[Any]:
        loader = self._state.train_dataloader
        if not isinstance(loader, DataLoader):
            raise ArgumentError(
                f"ComposerResume needs a penstock.torch.DataLoader to train on, got {type(loader).__qualname__}; "
                "penstock.torch.adopt makes one"
            )
        return loader
