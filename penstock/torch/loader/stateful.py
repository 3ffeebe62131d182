"""What a sampler, dataset or iterator has whose position can be kept: torchdata's protocol, without torchdata."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["Stateful"]


@runtime_checkable
class Stateful(Protocol):
    """Anything with ``state_dict`` and ``load_state_dict``; ``isinstance`` asks for the two methods alone."""

    def state_dict(self) -> dict[str, Any]:
        """Where it stands: picklable, and unchanged by what comes later."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        ...
