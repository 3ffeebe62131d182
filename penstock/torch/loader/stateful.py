"""What a sampler, dataset or iterator has whose position can be kept: torchdata's protocol, without torchdata."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from penstock.sample import StateDict

__all__ = ["Stateful"]


@runtime_checkable
class Stateful(Protocol):
    """Anything with ``state_dict`` and ``load_state_dict``; ``isinstance`` asks for the two methods alone."""

    def state_dict(self) -> StateDict:
        """Where it stands: picklable, and unchanged by what comes later."""
        ...

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from where ``state_dict`` was taken."""
        ...
