"""Batches of a replica under torchft's manager: one for each committed step, also after the replica has come back.

::

    step             7            8 (not committed)      8            9
    replica 0     batch 7         batch 8             batch 8      batch 9
    replica 1     batch 7            lost                 ·  heals: batch 9
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.sample import Batch, State, StateDict

__all__ = ["ReplicaLoader"]


class ReplicaLoader:
    """Batches of a training loop whose optimizer is stepped by torchft's ``Manager``.

    Step s of each replica has batch s of its loader. A step that is not committed has its batch again. A replica that
    was lost takes the position over, with the model, from the replica that it heals from.

    Parameters
    ----------
    loader : penstock.torch.DataLoader
        Its order must be the same for all replicas but for the rank: :class:`penstock.DistributedSampler` with the
        largest number of replicas and this one's number.
    manager : torchft.Manager
        Gets the functions that save and load the position. It must use asynchronous quorums, its default: a loop draws
        the batch before the quorum is known.
    key : str
        The name under which the manager knows these functions.

    Notes
    -----
    The samples of a replica that is lost are not given to the others. The manager transfers the state before the batch
    in use; in checkpoints on disk, save the loader's own. Iterate by steps, not by epochs, since a replica that heals
    goes on in the epoch of the other one::

        batches = ReplicaLoader(loader, manager)
        while manager.current_step() < steps:
            for images, labels in batches:
                optimizer.zero_grad()  # torchft's OptimizerWrapper begins the quorum here
                ...
                optimizer.step()
                if manager.current_step() >= steps:
                    break
    """

    def __init__(self, loader: Any, manager: Any, key: str = "loader") -> None:
        self.loader, self._manager = loader, manager
        self._before: Callable[[], StateDict] = loader.state_dict
        self._healed_at: int | None = None
        manager.register_state_dict_fn(key, self._load, self._save)

    def __iter__(self) -> Iterator[Batch]:
        manager, batches = self._manager, iter(self.loader)
        while True:
            self._before = self.loader._defer_state()  # noqa: SLF001  # written down only where a replica asks for it
            try:
                batch = next(batches)
            except StopIteration:
                return
            committed = False
            while self._healed_at is None and not committed:
                step = manager.current_step()
                yield batch
                committed = manager.current_step() != step
            if self._healed_at is not None:
                is_used, self._healed_at = manager.current_step() != self._healed_at, None
                batches = iter(self.loader)
                if is_used:  # by the replicas that this one heals from
                    next(batches, None)

    def __len__(self) -> int:
        return len(self.loader)

    def _save(self) -> StateDict:
        return self._before()

    def _load(self, state: Mapping[str, State]) -> None:
        """Go to the batch of the step that the others are in; called before it is known whether they commit it."""
        self.loader.load_state_dict(state)
        self._healed_at = self._manager.current_step()
