"""Time per stage of a loader, as numbers and as a table; computed from a trace."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.trace import STAGES

__all__ = ["StageStats", "Stats"]


@dataclass(frozen=True, slots=True)
class StageStats:
    """One stage, summed over all workers.

    Parameters
    ----------
    stage : str
        One of :data:`penstock.trace.STAGES`.
    time_ns : int
        Nanoseconds spent in it.
    items : int
        Samples that passed it; batches, for ``wait``.
    share : float
        Part of the work of all stages but ``wait``, 0..1; for ``wait`` 0.
    """

    stage: str
    time_ns: int
    items: int
    share: float

    @property
    def us_per_item(self) -> float:
        """Microseconds for one sample (one batch, for ``wait``)."""
        return self.time_ns / self.items / 1000 if self.items else 0.0


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of a loader's counters since its construction.

    Parameters
    ----------
    stages : tuple of StageStats
        In the order a sample passes them.
    batches, samples : int
        Delivered so far.
    wait_ns : int
        Nanoseconds that the consumer waited for batches.
    left_out : int
        Samples that could not be built: with ``on_error="skip"``, and in streams, they are missing, and
        ``samples + left_out`` were drawn; with "replace" another one stands in for each, which ``samples`` counts.
    """

    stages: tuple[StageStats, ...]
    batches: int
    samples: int
    wait_ns: int
    left_out: int = 0

    @classmethod
    def of(cls, total: dict[str, tuple[int, int]], batches: int, samples: int, left_out: int = 0) -> Stats:
        """Stats from a :meth:`penstock.trace.Trace.total`."""
        work = sum(time_ns for stage, (time_ns, _) in total.items() if stage != "wait") or 1
        stages = (
            StageStats(stage, *total[stage], share=0.0 if stage == "wait" else total[stage][0] / work)
            for stage in STAGES
        )
        return cls(tuple(stages), batches, samples, total["wait"][0], left_out)

    def __getitem__(self, stage: str) -> StageStats:
        return self.stages[STAGES.index(stage)]

    def __str__(self) -> str:
        lost = f" ({self.left_out} left out)" if self.left_out else ""
        first = f"{self.batches} batches, {self.samples} samples{lost}; waited {self.wait_ns / 1e9:.3f} s for them"
        lines = [first, ""]
        lines.append(f"{'stage':<10}{'time':>12}{'items':>10}{'per item':>14}{'share':>8}")
        for s in self.stages:
            share = "" if s.stage == "wait" else f"{s.share:.0%}"
            lines.append(f"{s.stage:<10}{s.time_ns / 1e9:>10.3f} s{s.items:>10}{s.us_per_item:>11.1f} us{share:>8}")
        return "\n".join(lines)
