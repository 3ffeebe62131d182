"""The report of a conversion: counts, digests, and everything that is not the same on both sides."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from penstock.stores.base import Skipped
from penstock.stores.location import Location
from penstock.stores.problems import Problem
from penstock.wording import counted, escape_unprintable

__all__ = ["ConvertReport", "describe_problems"]

_SIDECAR: Final = "convert.json"
_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """The result of :func:`penstock.convert`.

    Parameters
    ----------
    source, store : str
        URLs of the source and of what was written.
    records : int
        Number of records that were written, read back and compared.
    source_digest, store_digest : str
        Hashes over keys and all fields of the records, in order, of either side as it was read back.
    renamed : tuple of (str, str)
        Keys that the container cannot have: key in the source, name in the container.
    sidecar : str
        Path of the sidecar pack; empty if there is none.
    beside : tuple of str
        Fields that are in the sidecar pack, because the format has no place for them, or not for their kind or classes.
    left_out : tuple of Skipped
        (key, reason) of the source's records and entries that were not written.
    duplicates : tuple of str
        Keys that several records of the source have.
    problems : tuple of Problem
        Differences between the sides; empty if the conversion succeeded.
    copied_s, elapsed_s : float
        Duration of the copying, and of everything.
    """

    source: str
    store: str
    records: int
    source_digest: str
    store_digest: str
    renamed: tuple[tuple[str, str], ...] = ()
    sidecar: str = ""
    beside: tuple[str, ...] = ()
    left_out: tuple[Skipped, ...] = ()
    duplicates: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    copied_s: float = 0.0
    elapsed_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether both sides are equal."""
        return not self.problems and self.source_digest == self.store_digest

    def with_times(self, copied_s: float, elapsed_s: float) -> ConvertReport:
        """Return the report with the durations."""
        return replace(self, copied_s=copied_s, elapsed_s=elapsed_s)

    def to_json(self) -> dict[str, object]:
        """Convert to dicts, lists, strings and numbers."""
        entry = asdict(self)
        entry["left_out"] = [{"key": each.key, "reason": each.reason} for each in self.left_out]
        return {"ok": self.ok, **entry}

    def lines(self) -> Iterator[str]:
        """The report as text, line by line."""
        yield f"{self.store}: {counted(self.records, 'record')} from {self.source}, in {self.elapsed_s:.1f} s"
        if self.ok:
            yield f"  compared   {counted(self.records, 'record')}, all fields equal, digest {self.store_digest}"
        else:
            yield f"  compared   {counted(len(self.problems), 'difference')}"
            yield from describe_problems(self.problems).split("\n")
        if self.sidecar:
            named = f"keys, {', '.join(self.beside)}" if self.beside else "keys"
            yield f"  sidecar    {self.sidecar}: {named}"
        if self.renamed:
            one, other = self.renamed[0]
            yield f"  renamed    {counted(len(self.renamed), 'key')}, such as {one!r} to {other!r}"
        if self.duplicates:
            named = ", ".join(map(repr, self.duplicates[:5]))
            yield f"  duplicates {counted(len(self.duplicates), 'key')} of several records: {named}"
        if self.left_out:
            yield f"  left out   {counted(len(self.left_out), 'entry')}"
            yield from (f"    {entry.key}: {entry.reason}" for entry in self.left_out[:_LISTED])

    def write(self, location: Location) -> None:
        """Keep the report beside the store, as JSON."""
        path = location.sidecar(_SIDECAR)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")

    @staticmethod
    def remove(location: Location) -> None:
        """Remove what :meth:`write` kept."""
        location.sidecar(_SIDECAR).unlink(missing_ok=True)


def describe_problems(problems: Sequence[Problem]) -> str:
    """Return one line for each of the first problems, and how many more there are."""
    lines = [f"    {escape_unprintable(str(problem))}" for problem in problems[:_LISTED]]
    if len(problems) > _LISTED:
        lines.append(f"    ... and {len(problems) - _LISTED:,} more")
    return "\n".join(lines)
