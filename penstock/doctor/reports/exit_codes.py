"""The exit code of ``penstock doctor`` where the script's own is 0."""

from __future__ import annotations

from typing import Final

from penstock.doctor.judge.diagnosis import Diagnosis

__all__ = ["WAITS_TOO_LONG", "exit_code"]

WAITS_TOO_LONG: Final = 1


def exit_code(diagnosis: Diagnosis, fail_if_waiting: float | None) -> int:
    """The exit code that a limit of waiting asks for.

    Parameters
    ----------
    diagnosis : Diagnosis
        Of the script.
    fail_if_waiting : float, optional
        The greatest part of the time that may be waiting, 0..1; None: any.

    Returns
    -------
    int
        1 if the script waits longer, or if its waiting is no number; else 0. Of several ranks, the one that waits
        longest counts.
    """
    if fail_if_waiting is None:
        return 0
    of_ranks = (row.get("waiting") for row in diagnosis.ranks)
    waiting = [diagnosis.verdict.waiting, *(each for each in of_ranks if each is not None)]
    return 0 if all(each <= fail_if_waiting for each in waiting) else WAITS_TOO_LONG
