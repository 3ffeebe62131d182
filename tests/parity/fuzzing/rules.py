"""Differences between two events that are meant, by name, each with its reason and the place where users are told."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from tests.parity.fuzzing.execute import Event

__all__ = ["RULES", "Difference", "Rule", "Verdict", "is_own", "is_raised"]

Verdict = Literal["same", "extra", "stop", ""]
"""What two events are: the same; the second is one more, which torch's run does not have; the rest is not compared."""


@dataclass(frozen=True)
class Difference:
    """The first events that differ.

    Parameters
    ----------
    at : int
        Place in penstock's run.
    theirs, ours : tuple
        The events.
    """

    at: int
    theirs: Event
    ours: Event

    @property
    def signature(self) -> str:
        """What kind of difference it is, for a shrinker that has to stay with it."""
        return f"{_kind(self.theirs)} | {_kind(self.ours)}"


def _kind(event: Event) -> str:
    if event[0] == "raised":
        return f"raised {event[1]} {event[2][0]} {re.sub(r'[0-9]+', '0', event[3])[:60]}"
    return " ".join(str(part) for part in event[:3] if isinstance(part, str) and len(part) < 20)


@dataclass(frozen=True)
class Rule:
    """A difference between two events that is meant.

    Parameters
    ----------
    name, reason : str
        What it is called, and why it is so.
    judge : callable
        ``judge(program, theirs, ours, before)``: the verdict, "" if this rule says nothing. ``before`` are the events
        of penstock's run up to here.
    told : str
        What docs/from-torch.md says of it.
    """

    name: str
    reason: str
    judge: Callable[[dict[str, Any], Event, Event, list[Event]], Verdict]
    told: str


def is_raised(event: Event) -> bool:
    """Whether it is an error that came."""
    return bool(event[0] == "raised")


def is_own(event: Event) -> bool:
    """Whether it is an error of penstock's."""
    return is_raised(event) and "PenstockError" in event[2]


def _length_after_index_error(_: dict[str, Any], theirs: Event, ours: Event, before: list[Event]) -> Verdict:
    del before
    if ours[0] == "data" and ours[2] == "len" and is_raised(theirs) and "IndexError" in theirs[2]:
        return "extra"
    if ours[:2] == ("wrapper", "len") and is_raised(theirs) and "IndexError" in theirs[2]:
        return "extra"
    return ""


def _own_words(_: dict[str, Any], theirs: Event, ours: Event, before: list[Event]) -> Verdict:
    del before
    if not (is_raised(theirs) and is_own(ours)) or theirs[4] != ours[4] or theirs[5] != ours[5]:
        return ""
    return "same" if theirs[2][0] in ours[2] else ""


def _refused_first(_: dict[str, Any], theirs: Event, ours: Event, before: list[Event]) -> Verdict:
    del before
    if not is_raised(ours) or ours[2][0] != "AssertionError" or "needs num_workers > 0" not in ours[3]:
        return ""
    sampled = theirs[0] in {"sampler", "data"}
    return "stop" if sampled or (is_raised(theirs) and "DataLoaderIter requires" in theirs[3]) else ""


def _plain_end(_: dict[str, Any], theirs: Event, ours: Event, before: list[Event]) -> Verdict:
    del before
    ended = theirs[0] == ours[0] == "ended" and theirs[1] == ours[1]
    return "same" if ended and not ours[2] and theirs[2].startswith("user:") else ""


def _rows_index(program: dict[str, Any], theirs: Event, ours: Event, before: list[Event]) -> Verdict:
    del before
    if not _has_rows(program.get("dataset", {})):
        return ""
    if (
        is_raised(theirs)
        and is_raised(ours)
        and theirs[4:] == ours[4:]
        and theirs[2][0] in {"IndexError", "TypeError"}
        and ours[2][0] == "IndexError"
    ):
        return "same"
    return "stop" if theirs[0] in {"raised", "batch"} and _odd_indices(program.get("sampler")) else ""


def _has_rows(node: dict[str, Any]) -> bool:
    return node.get("kind") == "tensors" or any(
        map(_has_rows, [*node.get("parts", ()), *([node["of"]] if "of" in node else ())])
    )


def _odd_indices(node: Any) -> bool:
    """Whether a sampler gives something else than numbers, or an empty batch."""
    if not isinstance(node, dict):
        return False
    indices = node.get("indices", [])
    named = [next(iter(batch.values())) if isinstance(batch, dict) else batch for batch in indices]
    flat = [index for batch in named for index in (batch if isinstance(batch, list) else [batch])]
    return [] in indices or any(isinstance(index, (bool, str, float)) for index in flat) or _odd_indices(node.get("of"))


def _kept_type(program: dict[str, Any], theirs: Event, ours: Event, before: list[Event]) -> Verdict:
    del before
    if not (is_raised(theirs) and is_raised(ours) and program.get("loader", {}).get("num_workers")):
        return ""
    if theirs[4] != ours[4] or theirs[5] != ours[5]:
        return ""
    return "same" if theirs[2] == ours[2] or (theirs[2][0] == "RuntimeError" and theirs[4]) else ""


def _begun_wrongly(_: dict[str, Any], theirs: Event, ours: Event, before: list[Event]) -> Verdict:
    begun = any(is_raised(event) and event[4] == ["user:init"] for event in before)
    return "stop" if begun or (is_raised(theirs) and theirs[2][0] == "UnboundLocalError" and is_raised(ours)) else ""


def _loose(_: dict[str, Any], theirs: Event, ours: Event, before: list[Event]) -> Verdict:
    del before
    if theirs[0] != "batch" or ours[0] != "batch" or theirs[2] != ours[2]:
        return ""
    return "same" if "loose" in theirs[1] and theirs[1].replace("loose", "()") == ours[1] else ""


_ADVANCING: Final = frozenset({"next", "rest", "peek", "len_walk"})


def _older_iterator(program: dict[str, Any], theirs: Event, ours: Event, before: list[Event]) -> Verdict:
    del theirs, ours
    if not program.get("loader", {}).get("persistent_workers"):
        return ""
    done = [event[1] for event in before if event[0] == "op"]
    newest, walks = -1, []
    for number, op in enumerate(program.get("ops", [])[: done[-1] + 1 if done else 0]):
        if op["do"] in {"iter", "epoch"}:
            newest = number
            walks += [number] if op["do"] == "iter" else []
        elif op["do"] == "drop" and walks:
            walks.pop(op.get("walk", 0) % len(walks))
        elif op["do"] in _ADVANCING and walks and walks[op.get("walk", 0) % len(walks)] != newest:
            return "stop"
    return ""


def _copied_in_use(_: dict[str, Any], theirs: Event, ours: Event, before: list[Event]) -> Verdict:
    del ours, before
    return "stop" if is_raised(theirs) and theirs[1] == "copy" and "NotImplementedError" in theirs[2] else ""


RULES: Final = (
    Rule(
        "older-iterators-go-on",
        "an iterator of a persistent loader that is not its newest goes on where it was; torch has reset it",
        _older_iterator,
        "an older iterator that is asked for more goes on where it was",
    ),
    Rule(
        "copies-of-loaders-in-use",
        "a loader can be pickled and copied while its persistent workers are there",
        _copied_in_use,
        "can be pickled and copied while its persistent workers are there",
    ),
    Rule(
        "worker-that-cannot-begin",
        "every batch of a worker whose worker_init_fn or iter(dataset) has raised is that error; torch raises it once",
        _begun_wrongly,
        "`worker_init_fn` or `iter(dataset)` has raised",
    ),
    Rule(
        "loose-tensors",
        "a tensor from a worker has nothing between its elements; torch sends what lies there, too",
        _loose,
        "has no gaps between its elements",
    ),
    Rule(
        "length-after-index-error",
        "an IndexError is given a note that tells len(dataset)",
        _length_after_index_error,
        "a note with `len(dataset)`",
    ),
    Rule(
        "own-words",
        "an error of penstock's is a subclass of the one that torch raises, and has a text of its own",
        _own_words,
        "penstock's own ones are subclasses of it",
    ),
    Rule(
        "refused-first",
        "a timeout without workers is refused before iter() opens the sampler or draws a random number",
        _refused_first,
        "before it opens the sampler or draws a random number",
    ),
    Rule(
        "plain-end",
        "the StopIteration at the end of an epoch has no value; torch passes on the one of a stream without batches",
        _plain_end,
        "It has no value",
    ),
    Rule(
        "index-of-rows",
        "rows of tensors are copied by NumPy: its texts for an index outside differ; True, '1' and 1.0 are no index "
        "of a row, and a batch of no rows is no error",
        _rows_index,
        "`True`, `'1'` and `1.0` are no index of a row",
    ),
    Rule(
        "kept-type",
        "an exception from a worker keeps its type and attributes; torch makes a RuntimeError of what it cannot "
        "rebuild, and the texts around the user's own differ",
        _kept_type,
        "The exception keeps its type",
    ),
)
