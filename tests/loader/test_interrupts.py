"""A cell of a notebook that is interrupted leaves no worker, though IPython keeps its traceback."""

from __future__ import annotations

import multiprocessing
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock as ps
from penstock.loader import interrupts
from penstock.loader.iteration import LoaderIterator


class Shell:
    """What is used of IPython's: variables, and a hook behind each cell."""

    def __init__(self) -> None:
        self.user_ns: dict[str, object] = {}
        self.hooks: list[Callable[[Any], None]] = []
        self.events = self

    def register(self, event: str, hook: Callable[[Any], None]) -> None:
        """As ``shell.events.register``."""
        assert event == "post_run_cell"
        self.hooks.append(hook)

    def run(self, cell: Callable[[], None]) -> BaseException | None:
        """Run a cell, and keep its error, as IPython does."""
        error: BaseException | None = None
        try:
            cell()
        except BaseException as raised:  # noqa: BLE001  # as IPython
            error = raised
        for hook in self.hooks:
            hook(types.SimpleNamespace(error_in_exec=error))
        return error


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell that this program seems to run in."""
    made = Shell()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: made))
    interrupts._of_this_cell.clear()
    yield made
    interrupts._of_this_cell.clear()


def make_loader(**more: Any) -> ps.DataLoader[Any]:
    """A loader with two worker processes."""
    return ps.DataLoader(list(range(40)), 4, num_workers=2, workers="processes", seed=1, **more)


def interrupt_while_waiting(loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body of a cell that is interrupted while it waits for its second batch."""
    for _ in loader:
        monkeypatch.setattr(LoaderIterator, "_advance", interrupted)


def interrupted(iterator: Any) -> None:
    """In place of waiting; the traceback keeps the iterator by this frame, as by those of waiting."""
    assert not iterator.finished
    raise KeyboardInterrupt


@pytest.mark.parametrize("more", [{}, {"persistent_workers": True}], ids=str)
def test_an_interrupted_loop_leaves_no_worker(shell: Shell, more: dict[str, Any]) -> None:
    """The processes have ended while the error is kept, and the loader gives its next epoch."""
    loader = make_loader(**more)

    with pytest.MonkeyPatch.context() as patch:
        error = shell.run(lambda: interrupt_while_waiting(loader, patch))

    assert isinstance(error, KeyboardInterrupt)
    assert error.__traceback__ is not None
    assert multiprocessing.active_children() == []
    assert len(list(loader)) == 10
    loader.close()


def test_other_errors_and_held_iterators_are_left_alone(shell: Shell) -> None:
    """An iterator in a variable goes on, also that of an earlier cell; so does one behind another error."""
    loader = make_loader()
    shell.run(lambda: shell.user_ns.update(earlier=iter(loader)))

    def hold_and_interrupt() -> None:
        shell.user_ns["held"] = iter(loader)
        raise KeyboardInterrupt

    shell.run(hold_and_interrupt)
    failed: list[Any] = []

    def fail() -> None:
        failed.append(iter(loader))
        raise ValueError

    shell.run(fail)

    for iterator in (shell.user_ns["earlier"], shell.user_ns["held"], failed[0]):
        assert isinstance(iterator, Iterator)
        assert len(list(iterator)) == 10


def assert_whole(loader: Any) -> None:
    """The body of a cell."""
    assert len(list(loader)) == 3


def test_the_shell_is_hooked_once(shell: Shell) -> None:
    """Each epoch is one more iterator, not one more hook."""
    loader = ps.DataLoader([1, 2, 3])

    for _ in range(3):
        shell.run(lambda: assert_whole(loader))

    assert len(shell.hooks) == 1
    assert list(interrupts._of_this_cell) == []
