"""What a session is to reach, and whether it did. Goals are judged from ``session.json`` alone.

A goal is a dict: ``name``, ``wanted`` and ``found`` (texts), and ``reached``: True, False, or None where no stage has
measured it. A rehearsal reaches nothing: its figures are the processor's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["judge"]

OURS: Final = "penstock, decode on the device"
RIVAL: Final = "DALI"
AT_4_CORES: Final = "T1, 4 cores"
COPIED: Final = "float32, prefetch"

Found = tuple[str, bool]


def judge(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The goals of a session.

    Parameters
    ----------
    record : dict
        What ``session.json`` holds: ``stages`` and ``rehearsed``.
    """
    figures = {name: stage.get("figures", {}) for name, stage in record["stages"].items()}
    judged = []
    for name, wanted, measure in GOALS:
        try:
            found, reached = measure(figures)
        except (KeyError, ValueError, TypeError, IndexError):
            found, reached = "not measured", None
        if record["rehearsed"]:
            found, reached = f"{found} (rehearsed)", None
        judged.append({"name": name, "wanted": wanted, "found": found, "reached": reached})
    return judged


def _pixels(figures: dict[str, Any]) -> Found:
    parts = {name: part for name, part in figures["pixels"].items() if isinstance(part, dict)}
    if not parts:
        raise KeyError("pixels")
    complete = "context_is_whole" in figures["pixels"]
    images, different = (sum(part[key] for part in parts.values()) for key in ("images", "different"))
    wrong = sum(len(part["examples"]) for part in parts.values())
    text = f"{different} values of {images} images differ" + ("" if complete else "; not all parts ran")
    return text, complete and images > 0 and different == 0 and wrong == 0


def _context(figures: dict[str, Any]) -> Found:
    damaged = figures["pixels"]["damaged batches"]
    is_whole = bool(figures["pixels"]["context_is_whole"])
    return f"{damaged['damaged']} damaged images in batches, {damaged['different']} faults", (
        is_whole and damaged["damaged"] > 0 and damaged["different"] == 0
    )


def _against_rival(kind: str, least: float) -> Callable[[dict[str, Any]], Found]:
    def measure(figures: dict[str, Any]) -> Found:
        found = figures["loaders"][AT_4_CORES]
        rivals = {name: each[kind]["median"] for name, each in found.items() if name.startswith(RIVAL) and kind in each}
        best = max(rivals, key=lambda name: rivals[name])
        ours = found[OURS][kind]["median"]
        ratio = ours / rivals[best]
        return f"{ratio:.2f} x ({ours:,.0f} against {rivals[best]:,.0f} images/s of {best})", ratio >= least

    return measure


def _waits(figures: dict[str, Any]) -> Found:
    waits = figures["training"][OURS]["waits"]["median"]
    return f"{waits:.2%}", waits < 0.02


def _hidden(figures: dict[str, Any]) -> Found:
    hidden = figures["training"][COPIED]["hidden"]["median"]
    return f"{hidden:.1%}", hidden >= 0.95


GOALS: Final[tuple[tuple[str, str, Callable[[dict[str, Any]], Found]], ...]] = (
    ("T1 with 4 processor cores, against the fastest of DALI", "3 x", _against_rival("rate", 3)),
    ("T1 for a second of the processor, against DALI", "10 x", _against_rival("per_processor_s", 10)),
    ("Values that differ from the processor's", "0", _pixels),
    ("Batches with damaged images leave CUDA's context whole", "no fault", _context),
    ("A step of ResNet-50 waits for data, 4 processor cores", "< 2 %", _waits),
    ("Copies from page-locked memory that prefetch hides", ">= 95 %", _hidden),
)
