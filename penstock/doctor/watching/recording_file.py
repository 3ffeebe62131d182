"""A recording as a file: what other ranks send to rank 0. It holds numbers and text only; nothing is pickled.

::

    rank-1.npz      events, steps.wait_ns, steps.step_ns ...     arrays
                    text                                         everything else, as JSON
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from penstock.doctor.watching.recording import LoaderSettings, ProcessUsage, Recording, StepTimes

__all__ = ["load_recording", "save_recording"]

_TEXTS = ("dropped", "machine", "device", "rank", "world_size", "command", "ended", "warm_up", "others", "draw_ns")


def save_recording(recording: Recording, path: Path) -> None:
    """Write a recording; ``path`` ends with ``.npz``."""
    text = {
        **{name: getattr(recording, name) for name in _TEXTS},
        "settings": asdict(recording.settings),
        "usage": [asdict(process) for process in recording.usage],
        "keys": list(recording.keys.items()),
    }
    arrays = {f"steps.{part.name}": getattr(recording.steps, part.name) for part in fields(StepTimes)}
    np.savez(path, events=recording.events, text=np.array(json.dumps(text, default=str)), **arrays)


def load_recording(path: Path) -> Recording:
    """Read what :func:`save_recording` has written.

    Raises
    ------
    OSError, ValueError, KeyError
        If the file is no such file.
    """
    with np.load(path, allow_pickle=False) as stored:
        text: dict[str, Any] = json.loads(str(stored["text"]))
        steps = StepTimes(**{part.name: stored[f"steps.{part.name}"] for part in fields(StepTimes)})
        events = stored["events"]
    return Recording(
        LoaderSettings(**text["settings"]),
        steps,
        events,
        usage=[ProcessUsage(**process) for process in text["usage"]],
        keys={int(index): str(key) for index, key in text["keys"]},
        **{name: text[name] for name in _TEXTS},
    )
