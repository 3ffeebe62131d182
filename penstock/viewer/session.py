"""What one viewer shows; every request is answered from it.

::

    ps.view(...), penstock view ──> Session ──> routes of browse/, find/, model/, compare/, picks/, live/
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, cast

from penstock.errors import PenstockError
from penstock.viewer.browse.collection import Collection
from penstock.viewer.browse.layers import JsonObject

__all__ = ["Background", "Layer", "LayerSource", "Session"]

_LOGGER: Final = logging.getLogger(__name__)
_Part = TypeVar("_Part")
Layer = JsonObject
"""One kind of annotation of a picture: see :mod:`penstock.viewer.browse.layers`."""


class LayerSource(Protocol):
    """Further annotations that are drawn over pictures, such as predictions."""

    def layers(self, index: int) -> list[Layer]:
        """Return the layers of a record."""

    def facts(self, index: int) -> list[JsonObject]:
        """Further fields of a record: see :func:`penstock.viewer.browse.details.describe_record`."""


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
    parts: dict[str, object] = field(default_factory=dict)
    """What a folder keeps of this session, by the name of the folder: see :meth:`part`."""
    start: str = "grid"
    """The page that an address without one shows."""
    filter: str = ""
    """With which the grid is opened."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def part(self, name: str, make: Callable[[], _Part]) -> _Part:
        """Return the object that a folder keeps here, made when it is first asked for."""
        with self._lock:
            if name not in self.parts:
                self.parts[name] = make()
            return cast("_Part", self.parts[name])

    def features(self) -> list[str]:
        """Names of the optional pages that there is something for: "model", "compare", "predictions", "live"."""
        return sorted(name for name in self.parts if name in {"model", "compare", "predictions", "live"})

    def close(self) -> None:
        """Close what was opened for it."""
        for part in self.parts.values():
            if hasattr(part, "close"):
                part.close()
        self.collection.close()


class Background:
    """Work of a thread that requests begin, and ask how far it is; subclasses define :meth:`work`."""

    def __init__(self) -> None:
        self.error = ""
        """Why it failed, in a sentence."""
        self.is_ready = threading.Event()
        """Set when requests can be answered, at the latest when the work ends."""
        self.stops = threading.Event()
        """Set when the viewer is closed."""
        self._thread = threading.Thread(target=self._run, name=f"penstock-view-{type(self).__name__}", daemon=True)
        self._starts = threading.Lock()

    def work(self) -> None:
        """Do what the thread does; returns soon after :attr:`stops` is set."""
        raise NotImplementedError

    def start(self, wait_s: float | None = None) -> None:
        """Begin, if it was not begun, and wait until it is ready: at most ``wait_s``, or however long that takes."""
        with self._starts:
            if self._thread.ident is None and not self.stops.is_set():
                self._thread.start()
        self.is_ready.wait(wait_s)

    @property
    def is_running(self) -> bool:
        """Whether the thread is at work."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop the work, and wait for the end of its thread."""
        with self._starts:
            self.stops.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.is_ready.set()

    def _run(self) -> None:
        try:
            self.work()
        except PenstockError as error:
            self.error = str(error)
        except Exception as error:
            _LOGGER.exception("%s failed", self._thread.name)
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.is_ready.set()
