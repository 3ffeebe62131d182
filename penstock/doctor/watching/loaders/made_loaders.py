"""Where loaders are made, so that a loader that a script makes anew for each epoch is watched as one.

Called by :class:`.watcher.Watcher`. Loaders of training and validation are two, also if one function
makes both.
"""

from __future__ import annotations

import functools
import sys
import time
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.datasets.user_code import is_user_file
from penstock.doctor.watching.steps.source import SourceLine

__all__ = ["MadeLoaders"]

_MOST_FRAMES: Final = 200
_MOST_PLACES: Final = 8
_MOST_MAKINGS: Final = 256
"""Beyond this, those of loaders that are gone are forgotten."""
_SAME: Final = ("batch_size", "num_workers", "drop_last", "pin_memory", "persistent_workers")


@dataclass(frozen=True, slots=True)
class _Making:
    loader: weakref.ref[object]
    places: tuple[tuple[types.CodeType, int], ...]
    made_ns: int


class MadeLoaders:
    """Loaders by where and when the script made them."""

    def __init__(self) -> None:
        self._makings: dict[int, _Making] = {}

    def watch_init(self, original: Callable[..., None]) -> Callable[..., None]:
        """Return an ``__init__`` of a loader that is noted here."""

        @functools.wraps(original)
        def init(loader: object, *args: object, **kwargs: object) -> None:
            if len(self._makings) > _MOST_MAKINGS:
                self._makings = {key: each for key, each in self._makings.items() if each.loader() is not None}
            self._makings[id(loader)] = _Making(weakref.ref(loader), _find_places(), time.perf_counter_ns())
            original(loader, *args, **kwargs)

        return init

    def find_place(self, loader: object) -> tuple[types.CodeType, int] | None:
        """Return the user's innermost code that made a loader, and the place of the instruction; None if unknown."""
        making = self._find(loader)
        return making.places[0] if making is not None and making.places else None

    def is_successor(self, loader: object, former: object, began_ns: int) -> bool:
        """Return whether ``loader`` takes the place of ``former``, which was iterated first at ``began_ns``.

        It does if both were made by the same call in the script, the later one when the former had been used, and they
        load the same: ``{name: DataLoader(...) for name in ("train", "val")}`` makes two loaders before one is used.
        """
        new, old = self._find(loader), self._find(former)
        if new is None or old is None or not new.places or new.places != old.places:
            return False
        return bool(began_ns) and new.made_ns > began_ns and _find_common_traits(loader) == _find_common_traits(former)

    def find_repetition(self, loader: object, former: object) -> SourceLine | None:
        """Return where a loader was made that might be the former one: of one dataset, in an order of torch's own."""
        place, attributes = self.find_place(loader), vars(loader)
        is_same = attributes.get("dataset") is vars(former).get("dataset")
        kind = type(attributes.get("sampler"))
        if place is None or not is_same or kind.__module__ != "torch.utils.data.sampler":
            return None
        line = list(place[0].co_positions())[place[1] // 2][0]
        return SourceLine.of(place[0], line or place[0].co_firstlineno)

    def _find(self, loader: object) -> _Making | None:
        making = self._makings.get(id(loader))
        return making if making is not None and making.loader() is loader else None


def _find_places() -> tuple[tuple[types.CodeType, int], ...]:
    """The user's calls that make a loader now."""
    places: list[tuple[types.CodeType, int]] = []
    frame: types.FrameType | None = sys._getframe()  # noqa: SLF001  # inspect.currentframe is the same
    for _ in range(_MOST_FRAMES):
        if frame is None or len(places) == _MOST_PLACES:
            break
        if is_user_file(frame.f_code.co_filename):
            places.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(places)


def _find_common_traits(loader: object) -> tuple[object, ...]:
    """Return what two loaders have in common that load the same."""
    attributes = vars(loader)
    dataset = attributes.get("dataset")
    kinds = tuple(type(attributes.get(name)) for name in ("sampler", "batch_sampler"))
    try:
        length = len(dataset)  # type: ignore[arg-type]  # a stream may have none
    except Exception:  # noqa: BLE001  # as above, or a length of the user's that fails
        length = -1
    return (type(loader), type(dataset), length, kinds, *(attributes.get(name) for name in _SAME))
