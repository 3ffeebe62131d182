"""Every state that a killed process may leave, and a run that begins in each of them.

::

    run ──after each call that writes──> what lies there now: a state           a kill here leaves exactly this
    each state that is new ──> put it there ──> run again ──> its states ──> ... until no state is new

What a process has in its buffers is lost when it is killed, and no clean-up runs: what remains is what its files are
at that moment. So nothing is killed here; each moment of a run is recorded instead. A
file that grew between two moments is also tried half grown, unless by less than a page: no kill cuts
such a write short.
"""

from __future__ import annotations

import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import pytest

__all__ = ["Folder", "Held", "Run", "State", "World", "run_after_each_kill"]

_WRITES: Final = frozenset(
    {"__exit__", "begin", "close", "commit", "delete", "flush", "ftruncate", "mkdir", "open", "put", "pwrite", "remove"}
    | {"rename", "replace", "rmdir", "seek", "sendfile", "truncate", "unlink", "write", "writelines"}
)
_PAGE_NBYTES: Final = 4096


class Held(NamedTuple):
    """A file, or a collection; None as content: a folder."""

    content: bytes | tuple[bytes, ...] | None
    changed_ns: int = 0
    number: int = 0  # of its inode: a file that takes the place of another is never there by halves


State = Mapping[str, Held]
"""What is there, by name."""


class World(ABC):
    """Where a run writes."""

    calls: ClassVar[frozenset[str]]
    """Names of the functions of C that write, or after whose return it is known what was written.

    Without any, a run itself calls :meth:`Run.look`, and states between two looks are not made up.
    """

    @abstractmethod
    def read(self) -> State:
        """The state it is in."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Put it into a state."""


class Folder(World):
    """Everything below a folder."""

    calls = _WRITES

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> State:
        """The files and folders, by path."""
        state = {}
        for name, seen in self._list_entries():
            path = self.path / name
            state[name] = Held(None if path.is_dir() else path.read_bytes(), seen.st_mtime_ns, seen.st_ino)
        return state

    def restore(self, state: State) -> None:
        """Write the files anew."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        for name in sorted(state):
            path, held = self.path / name, state[name]
            if held.content is None:
                path.mkdir()
            else:
                assert isinstance(held.content, bytes), "a file"
                path.write_bytes(held.content)
        for name in sorted(state, reverse=True):
            os.utime(self.path / name, ns=(state[name].changed_ns, state[name].changed_ns))

    def _list_entries(self) -> Iterator[tuple[str, os.stat_result]]:
        folders = [""]
        while folders:
            folder = folders.pop()
            with os.scandir(self.path / folder) as entries:
                for entry in entries:
                    name = f"{folder}{entry.name}"
                    yield name, entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{name}/")


@dataclass
class Run:
    """One run, from one state on: it says what a kill must not take away, and collects the states."""

    world: World
    safe: int
    """How many records are safe by now; the run says it after each step."""
    states: list[tuple[State, int]] = field(default_factory=list)
    """Each with the number of records that were safe then."""

    def look(self) -> None:
        """Add the state that is there now, if it is another one; and the state half way to it."""
        state = self.world.read()
        before = self.states[-1][0] if self.states else {}
        if _contents(state) != _contents(before):
            if self.world.calls and (half := _halve(before, state)) is not None:
                self.states.append((half, self.states[-1][1] if self.states else 0))
            self.states.append((state, self.safe))

    def notice(self, frame: object, event: str, function: Any) -> None:
        """Look after each call that may have written; a profiling function."""
        del frame
        if event == "c_return" and function.__name__ in self.world.calls:
            self.look()


def run_after_each_kill(world: World, run: Callable[[Run], int], *, only_once: bool = False) -> list[int]:
    """Check that a run that is killed at any moment, however often, and begun again, leaves what one run leaves.

    Parameters
    ----------
    world : World
        Where it writes; what is there now is there before the first run.
    run : callable
        Called with a :class:`Run`; returns how many records it found safe, all of them if nothing was to be done. Then
        something that is needed no more may be left, such as a lock.
    only_once : bool
        Whether runs that begin in a state of the first one are not killed, too.

    Returns
    -------
    list of int
        What ``run`` returned, in the order of the states.
    """
    _, waiting = _record(world, run, 0)
    whole = _read_lasting(world)
    everything = run(Run(world, 0))
    tried: dict[object, int] = {}
    for state, safe in waiting:  # which grows
        content = _contents(state)
        if content not in tried:
            world.restore(state)
            try:
                if only_once:
                    tried[content] = run(Run(world, safe))
                else:
                    tried[content], states = _record(world, run, safe)
                    waiting += states
            except BaseException as error:
                error.add_note(f"after a kill that left {_name_state(state)}")
                raise
            found = _read_lasting(world)
            kept = {name: found.get(name) for name in whole} if tried[content] == everything else found
            differing = sorted(name for name in {*kept, *whole} if kept.get(name, 0) != whole.get(name, 0))
            if differing:
                pytest.fail(
                    f"{', '.join(differing)} differ from those of one run, after a kill that left {_name_state(state)}"
                )
        if tried[content] < safe:
            pytest.fail(
                f"{safe} records were safe, and {tried[content]} are, after a kill that left {_name_state(state)}"
            )
    return list(tried.values())


def _record(world: World, run: Callable[[Run], int], safe: int) -> tuple[int, list[tuple[State, int]]]:
    """Run, and record the states."""
    made = Run(world, safe, [(world.read(), safe)])
    before = sys.getprofile()
    sys.setprofile(made.notice)
    try:
        found = run(made)
    finally:
        sys.setprofile(before)
    made.look()
    return found, made.states


def _contents(state: State) -> tuple[tuple[str, object], ...]:
    return tuple(sorted((name, held.content) for name, held in state.items()))


def _read_lasting(world: World) -> dict[str, object]:
    """What is compared: not the indices, which only make reading faster and depend on times and threads."""
    return {name: content for name, content in _contents(world.read()) if not name.endswith((".index", ".index.npz"))}


def _halve(before: State, after: State) -> State | None:
    """The state before, and half of what was added to each file after it; None if none has grown."""
    numbers = {held.number for held in before.values()} - {0}
    grown = dict(before)
    for name, held in after.items():
        if held.number != before[name].number if name in before else held.number in numbers:
            continue  # it was replaced, or renamed
        old = before[name].content if name in before else held.content and held.content[:0]
        if old is None or held.content is None:
            grown[name] = held  # a folder
        elif len(held.content) - len(old) > (_PAGE_NBYTES if isinstance(old, bytes) else 1):
            added: Any = held.content[len(old) : (len(old) + len(held.content)) // 2]
            grown[name] = held._replace(content=old + added)
    return grown if _contents(grown) != _contents(before) else None


def _name_state(state: State) -> str:
    """Names and lengths."""
    return ", ".join(
        f"{name} ({'folder' if held.content is None else len(held.content)})" for name, held in sorted(state.items())
    )
