"""What the absence of each stage brings: measured where the stage could be given back from memory, else as observed.

A loader whose sample, or a part of it, costs nothing was measured against the loader as it is. The part that a stage
takes of the loader's time is one less the inverse of that ratio; augmentation is what reading and decoding leave of a
sample. A stage that could not be given back has the part that was observed: of the sample if that was measured, else
of the time that the script waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.doctor.judge.diagnosis import Absence
from penstock.doctor.trials.turns import Measured
from penstock.doctor.watching.recording import WORK_STAGES

__all__ = ["find_absences"]

_IN_SAMPLE: Final = ("read", "decode", "augment")
_MOST_PART: Final = 0.99


def find_absences(
    times: Mapping[str, float], gain_limit: float, measured: Mapping[str, Measured], *, is_serial: bool
) -> dict[str, Absence]:
    """Return what the absence of each stage brings.

    ``times``: nanoseconds of a batch in each stage, as observed. ``gain_limit``: what a loader that costs nothing
    gains, as a factor. ``measured``: speeds of the loader without "sample", "read", "decode", "collate" or
    "transport", divided by its own; ``is_serial``: with the trainer, which waits while a batch is built.
    """
    most = max(gain_limit, 1.0)
    whole = max(sum(times.values()), 1.0) / ((1 - 1 / most) if is_serial and most > 1 else 1.0)
    parts = {stage: times.get(stage, 0.0) / whole for stage in WORK_STAGES}
    found = {stage: max(1 - 1 / max(ratio.median, 1e-9), 0.0) for stage, ratio in measured.items()}
    if "sample" in found:
        observed = sum(parts[stage] for stage in _IN_SAMPLE) or 1.0
        for stage in ("read", "decode"):
            parts[stage] = min(found.get(stage, found["sample"] * parts[stage] / observed), found["sample"])
        parts["augment"] = max(found["sample"] - parts["read"] - parts["decode"], 0.0)
    parts |= {stage: part for stage, part in found.items() if stage in parts}
    known = {*found, *(_IN_SAMPLE if "sample" in found else ())} & parts.keys()
    left = max(1 - sum(parts[stage] for stage in known), 0.0)
    scale = min(left / max(sum(part for stage, part in parts.items() if stage not in known), 1e-9), 1.0)
    parts = {stage: part if stage in known else part * scale for stage, part in parts.items()}
    is_measured = {"augment": measured.get("sample")} | dict(measured)
    return {
        stage: Absence(stage, min(1 / (1 - min(part, _MOST_PART)), most), part, is_measured.get(stage))
        for stage, part in parts.items()
        if part > 0 or stage in found
    }
