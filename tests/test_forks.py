"""What a forked child has anew."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from types import ModuleType

import pytest

from penstock import system
from penstock.trace import Trace
from penstock.transforms.decoding import image_formats
from penstock.workers.threads import ThreadBackend
from tests.faulty import held, run_forked


class Owner:
    """Something with a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.renewed = 0
        system.watch(self)

    def renew_in_child(self) -> None:
        """As the protocol has it."""
        self.lock = threading.Lock()
        self.renewed += 1


def _take(owner: Owner) -> None:
    with owner.lock:
        assert owner.renewed == 1


def test_a_child_has_its_own_and_the_parent_keeps_its() -> None:
    """Called once in the child, never in the parent."""
    owner = Owner()
    before = owner.lock

    with held(owner.lock):
        run_forked(_take, owner)

    assert owner.lock is before
    assert owner.renewed == 0


def test_what_is_watched_may_die() -> None:
    """Watching keeps nothing alive."""
    gone = weakref.ref(Owner())
    gc.collect()

    assert gone() is None


def _forget(backend: ThreadBackend) -> None:
    backend._finalizer()  # as the collector calls it


def test_threads_that_a_child_does_not_have_are_not_stopped_there() -> None:
    """A backend that is collected in the child, whose lock a thread of the parent held, blocks nothing."""
    backend = ThreadBackend(1)

    with held(backend._shared.signals.lock):
        run_forked(_forget, backend)

    backend.close()


def _be_quiet() -> None:
    with warnings.catch_warnings():
        warnings.resetwarnings()  # so that the filter must be put in again, which takes the lock
        with image_formats.quiet():
            pass


def test_pillow_is_silenced_in_a_child() -> None:
    """Whichever thread of the parent was about to do so."""
    with held(image_formats._lock):
        run_forked(_be_quiet)


def _trace(trace: Trace) -> None:
    thread = threading.Thread(target=trace.add, args=("read", 5))
    thread.start()
    thread.join(60)
    assert trace.total()["read"][0] == 5


def test_a_trace_is_written_to_in_a_child() -> None:
    """Whichever thread of the parent was reading it."""
    trace = Trace()

    with held(trace._lock):
        run_forked(_trace, trace)


def test_a_library_is_used_before_a_fork_only_in_the_child() -> None:
    """In the process that uses it, it is one that forked children cannot use; there it was used before the fork."""
    system.note_use("Ferry")

    assert system.libraries_without_fork() == ["Ferry"]
    assert not system.used_before_fork("Ferry")
    assert not system.used_before_fork("another")
    run_forked(_look_at_libraries)


def test_jax_is_a_library_without_fork_once_it_has_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it starts no thread: its devices do."""
    bridge = ModuleType("jax._src.xla_bridge")
    bridge.__dict__["_backends"] = {}
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)

    imported = system.libraries_without_fork()
    bridge.__dict__["_backends"]["cpu"] = object()

    assert (imported, system.libraries_without_fork()) == ([], ["JAX"])


def _look_at_libraries() -> None:
    assert system.used_before_fork("Ferry")
    assert system.libraries_without_fork() == []
