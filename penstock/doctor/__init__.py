"""What is slow in a training script, and what is wrong in its loader.

::

    penstock doctor TRAIN.py     commands.py ─exec──> run.py: the script as __main__, its loaders watched ─┐
    penstock.doctor.watch()      block.py ─────────────────────────────────────────────────────────────────┤
                                                                                                           v
    text, JSON, HTML  <── reports <── Diagnosis <── analysis: verdict, model, trials <────────────── Recording

    penstock.torch.check()       checking.py: a rule is one function in rules/

This package imports nothing before a name is used: ``run.py`` must not import NumPy or torch before the script does,
since the script may set variables (``OMP_NUM_THREADS``) that are read when they are imported.

Where to find what:

- what is measured of a machine, its processes, devices and disks: ``machine/``
- how loaders, steps and ranks are watched: ``watching/``
- how a change of a loader is tried: ``trials/``
- which traps ``check`` and the doctor know: ``checks/``
- how the doctor comes to its verdict and its advice: ``judge/``
- what it prints, writes and shows: ``judge/text_report.py``, ``reports/``
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from penstock.wording import list_public_names

if TYPE_CHECKING:
    from penstock.doctor.block import WatchReport, watch
    from penstock.doctor.checks.checking import RULES, check
    from penstock.doctor.checks.findings import Finding, Report
    from penstock.doctor.judge.text_report import Diagnosis
    from penstock.doctor.judge.tuning import Tuning, tune

__all__ = ["RULES", "Diagnosis", "Finding", "Report", "Tuning", "WatchReport", "check", "tune", "watch"]

_HOMES: Final = {
    "RULES": "checks.checking",
    "check": "checks.checking",
    "tune": "judge.tuning",
    "Diagnosis": "judge.text_report",
    "Finding": "checks.findings",
    "Report": "checks.findings",
    "Tuning": "judge.tuning",
    "WatchReport": "block",
    "watch": "block",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list_public_names(globals(), __all__)
