"""The options of a run of a script by the doctor, as text for its process. Imports the standard library alone."""

from __future__ import annotations

import dataclasses
import json
import math

__all__ = ["RunOptions"]


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of ``penstock doctor`` that a run needs; see there."""

    steps: int = 100
    budget_s: float = 60.0
    most_s: float = 60.0
    trials: bool = True
    fix: bool = False
    write: bool = False
    json: str | None = None
    html: str | None = None
    fail_if_waiting: float | None = None
    github: bool = False
    tune: bool = False
    """Choose workers and prefetch for the loader, in the place of all reports; by ``penstock tune``."""
    memory_bytes: int | None = None
    """Most memory for workers and batches ahead, with ``tune``."""
    speed: str | None = None
    """A file for the samples per second, in the place of all reports; by ``--fix``."""
    skip_s: float = 0.0
    """Seconds of the steps at the beginning that do not count for ``speed``."""
    change: dict[str, object] = dataclasses.field(default_factory=dict)
    """Arguments of loaders that are set before they are iterated; as above."""
    sources: str | None = None
    """A file with sources that take the place of the script's own files; as above."""

    def describe_duration(self, steps: int, limit_s: float) -> str:
        """Say how long it takes, in a line: ``steps`` of the script, or ``limit_s`` seconds if they end first."""
        limit = "" if math.isinf(limit_s) else f", or {limit_s:g} s"
        tries = self.budget_s > 0 and (self.trials or self.tune)
        then = f", then tries changes for {self.budget_s:g} s or less" if tries else ""
        then += ", then runs the script again, as it is and with changes" if self.fix else ""
        return f"penstock doctor: watches {steps} steps{limit}{then}\n"

    def to_text(self) -> str:
        """Write the options as the first argument of this program."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> RunOptions:
        """Read the options from the first argument of this program."""
        return cls(**json.loads(text))
