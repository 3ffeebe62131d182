"""Transformers: a callback by which ``Trainer`` resumes with the next batch, instead of skipping batches.

``Trainer`` calls ``skip_first_batches`` with its loader, counts the steps that it skipped, and restores random states
after the first batches are read. The function is replaced for that one call, so that the loader, which stands at the
right batch already, comes back; the counts stay the trainer's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.registry import require
from penstock.torch.loader.randomness import Randomness
from penstock.torch.resume.accelerate import adopt_prepared, dump_prepared, load_prepared
from penstock.torch.resume.rank_files import load_states, save_state

__all__ = ["TransformersResume"]

_trainer: Any = require("transformers.trainer", purpose="for penstock.torch.resume.TransformersResume")
_NAME = "penstock-loader"


class TransformersResume(_trainer.TrainerCallback):  # type: ignore[misc]  # Transformers is not there for mypy
    """A callback of ``transformers.Trainer``: penstock makes the training batches, and checkpoints have the position.

    Each rank writes a file ``penstock-loader-RANK.pt`` into each checkpoint. ``train(resume_from_checkpoint=...)``
    continues with the next batch, and reads none before it; random states are those of the run that was stopped.

    Parameters
    ----------
    checkpoint : path, optional
        The checkpoint to resume from, where it is not ``output_dir/checkpoint-STEP``.
    **more : object
        Any argument of :class:`~penstock.torch.DataLoader`, in place of what the trainer's loader has.

    Raises
    ------
    ArgumentError
        When the training begins, if the trainer's loader is not one that Accelerate prepared for each rank.
    StateError
        When the training begins, if the checkpoint has no file of this rank, or that of another order.

    Examples
    --------
    ::

        trainer = Trainer(model, arguments, train_dataset=dataset, callbacks=[TransformersResume()])
        trainer.train(resume_from_checkpoint=True)
    """

    def __init__(self, checkpoint: str | Path | None = None, **more: object) -> None:
        self.checkpoint, self._more = checkpoint, more
        self._resumed: _Resumed | None = None

    def on_train_begin(self, args: Any, state: Any, *_: object, train_dataloader: Any, **__: object) -> None:
        """Put penstock's loader into the trainer's; if the trainer resumes, load its state."""
        adopt_prepared(train_dataloader, **self._more)
        if state.global_step:
            states = load_states(self.checkpoint or _folder(args, state), _NAME)
            load_prepared(train_dataloader, states)
            own = states[0]["randomness"] if len(states) == 1 else None
            self._resumed = _Resumed(train_dataloader, None if own is None else Randomness.parse(own))

    def on_step_begin(self, *_: object, **__: object) -> None:
        """Give the first step after a resume the random states that reading its batches has left."""
        if self._resumed is not None:
            self._resumed.begin_step()
            self._resumed = None

    def on_save(self, args: Any, state: Any, *_: object, train_dataloader: Any, **__: object) -> None:
        """Write the state of this rank into the checkpoint."""
        saved = {**dump_prepared(train_dataloader), "randomness": Randomness.now().dump()}
        save_state(_folder(args, state), _NAME, saved)


class _Resumed:
    """The trainer's loader in place of one that skips; notes the random states after each batch until a step begins."""

    def __init__(self, loader: Any, saved: Randomness | None) -> None:
        self._loader, self._saved = loader, saved
        self._original, self._is_noting = _trainer.skip_first_batches, True
        self._after: Randomness | None = None
        _trainer.skip_first_batches = self._skip

    def _skip(self, loader: Any, num_batches: int = 0) -> Any:
        _trainer.skip_first_batches = self._original
        if loader is not self._loader:
            return self._original(loader, num_batches)
        if self._saved is not None:
            self._saved.restore()
        return self

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            self._after = Randomness.now() if self._is_noting else None
            yield batch

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def begin_step(self) -> None:
        """Undo the replacement, if the trainer has not skipped; else restore the noted states."""
        _trainer.skip_first_batches, self._is_noting = self._original, False
        if self._after is not None:
            self._after.restore()


def _folder(args: Any, state: Any) -> Path:
    return Path(args.output_dir, f"checkpoint-{state.global_step}")
