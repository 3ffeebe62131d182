"""What one viewer shows; every request is answered from it.

::

    ps.view(...), penstock view ──> Session ──> routes of browse/, find/, model/, compare/, picks/, live/
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.viewer.browse.collection import Collection
from penstock.viewer.browse.layers import JsonObject

__all__ = ["Layer", "LayerSource", "Session"]

Layer = JsonObject
"""One kind of annotation of a picture: see :mod:`penstock.viewer.browse.layers`."""


class LayerSource(Protocol):
    """Further annotations that are drawn over pictures, such as predictions."""

    def layers(self, index: int) -> list[Layer]:
        """Those of a record."""


@dataclass
class Session:
    """What a viewer shows.

    Parameters
    ----------
    collection : Collection
        The records.
    layer_sources : list of LayerSource
        Beside the annotations of the store.
    """

    collection: Collection
    layer_sources: list[LayerSource] = field(default_factory=list)
    parts: dict[str, Any] = field(default_factory=dict)
    """What a folder keeps of this session, by the name of the folder: see :meth:`part`."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def part(self, name: str, make: Callable[[], Any]) -> Any:
        """The object that a folder keeps here, made when it is first asked for."""
        with self._lock:
            if name not in self.parts:
                self.parts[name] = make()
            return self.parts[name]

    def features(self) -> list[str]:
        """Names of the optional pages that there is something for: "model", "compare", "predictions", "live"."""
        return sorted(name for name in self.parts if name in {"model", "compare", "predictions", "live"})

    def close(self) -> None:
        """Close what was opened for it."""
        for part in self.parts.values():
            if hasattr(part, "close"):
                part.close()
        self.collection.close()
