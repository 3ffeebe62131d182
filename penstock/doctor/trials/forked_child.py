"""Runs a function in a forked child process, which is killed when it has ended, or after some seconds.

::

    this process                                child: leads a process group
      read_child ── fork ──────────────────────>  work(send)
      lines until the last one, or too late  <─pipe─  send(...), one line of JSON each
      kills the group

What the function prints goes nowhere, what it changes is lost, and what it raises is told: it may run the user's
dataset. The child stays in the script's session: Linux may share processors equally among sessions, and a trial is to
get what the script gets. An alarm ends it if its parent has died.

torch's workers put batches into files in ``/dev/shm`` that they name after themselves and unlink at once. A worker that
is killed in between leaves its file, which would take memory until the machine restarts: it is removed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import math
import multiprocessing
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from penstock.system import libraries_without_fork

__all__ = ["find_members", "kill_group", "read_child", "run_in_child"]

_logger = logging.getLogger(__name__)
_END: Final = "end"
"""Begins the last line; why the function failed follows, or nothing."""
_TEXT: Final = 300
_PIECE: Final = 1 << 16
_MOST_ALARM_S: Final = 3600
_PROC: Final = Path("/proc")
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # where the system keeps shared memory

Send = Callable[..., None]
"""Sends values that JSON can express as one line."""


def run_in_child(function: Callable[[], object], limit_s: float) -> Any:
    """Call ``function`` in a child process.

    ``function``: returns numbers, text, lists and dicts, which JSON can express. ``limit_s``: most seconds. Returns its
    result; None if it raised or did not end in time, and where no process can be forked, or this one has used a library
    that does not work in a forked child.
    """
    if libraries_without_fork() or limit_s <= 0:
        _logger.debug("no child process: libraries that cannot be forked: %s", libraries_without_fork())
        return None
    lines, error = read_child(lambda send: send(function()), limit_s)
    if error or not lines:
        _logger.debug("a function in a child process gave no result: %s", error)
        return None
    return lines[0][0]


def read_child(
    work: Callable[[Send], None], limit_s: float, at_end: Callable[[int], None] = lambda _: None
) -> tuple[list[list[object]], str]:
    """Call ``work`` in a child process, and collect what it sends.

    Parameters
    ----------
    work : callable
        Called with a function that sends its arguments, which JSON can express.
    limit_s : float
        Most seconds.
    at_end : callable
        Called with the group of the child and its workers, before they are killed.

    Returns
    -------
    list of list of object
        What was sent until ``work`` or the time ended.
    str
        What ``work`` has raised, or why there is no child; else empty.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        return [], "this system cannot fork a process"
    with tempfile.TemporaryDirectory(prefix="pymp-", ignore_cleanup_errors=True) as folder:
        receiver, sender = os.pipe()
        process = multiprocessing.get_context("fork").Process(target=_run, args=(work, limit_s, receiver, sender))
        process.daemon = False
        # Workers make sockets in such a folder, and are killed before they remove it: theirs and the child's is this.
        process._config["tempdir"] = folder  # type: ignore[attr-defined]  # noqa: SLF001  # of BaseProcess
        try:
            process.start()
        except (OSError, AssertionError) as error:
            os.close(receiver)
            return [], f"no child process could be started: {error}"
        finally:
            os.close(sender)
        assert process.pid is not None, "it was started"
        try:
            content = _receive(receiver, time.monotonic() + limit_s)
            at_end(process.pid)
        finally:
            os.close(receiver)
            kill_group(process.pid)  # with what it may have started
            process.join()
            process.close()
    whole = content[: content.rfind(b"\n") + 1]
    lines = [json.loads(line) for line in whole.splitlines()]
    return ([*lines[:-1]], str(lines[-1][1])) if lines and lines[-1][0] == _END else (lines, "")


def _receive(receiver: int, deadline: float) -> bytes:
    """Return what the child sends, until its last line, or the time ends.

    Workers have its pipe too: it is not closed.
    """
    content = bytearray()
    last = json.dumps([_END])[:-1].encode()
    while (left := deadline - time.monotonic()) > 0 and select.select([receiver], [], [], left)[0]:
        piece = os.read(receiver, _PIECE)
        content += piece
        begin = content.rfind(b"\n", 0, len(content) - 1) + 1
        if not piece or (content.endswith(b"\n") and content.startswith(last, begin)):
            break
    return bytes(content)


def _run(work: Callable[[Send], None], limit_s: float, receiver: int, sender: int) -> NoReturn:
    """Run ``work`` in the child, send what it finds to the parent, and wait to be killed."""

    def send(*values: object) -> None:
        message = memoryview(json.dumps(values).encode() + b"\n")
        while message:
            message = message[os.write(sender, message) :]

    try:
        os.setpgid(0, 0)
        os.close(receiver)
        _separate(min(limit_s, _MOST_ALARM_S))
        work(send)
        send(_END, "")
    except BaseException as error:  # noqa: BLE001  # the user's code may raise anything: it is reported
        with contextlib.suppress(OSError):
            send(_END, _describe_error(error)[:_TEXT])
    finally:
        time.sleep(_MOST_ALARM_S)  # until the parent kills the group, or the alarm ends it
        os._exit(0)  # without the script's exit handlers


def _separate(limit_s: float) -> None:
    """End after some seconds, also if the parent has died; ignore Ctrl-C; print nothing; do without its threads."""
    gc.freeze()  # finalizers of the parent's garbage may wait for its threads, or close what both share
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(math.ceil(limit_s) + 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.stdout = sys.stderr = os.fdopen(nowhere, "w", encoding="utf-8")
    warnings.simplefilter("ignore")  # where they are errors, that of many workers would end a trial
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # threads of OpenMP do not survive a fork


def _describe_error(error: BaseException) -> str:
    """Return one line: the last one of a worker's traceback says why, but for the place that penstock's loader adds."""
    lines = f"{type(error).__name__}: {error}".strip().splitlines()
    return next((line for line in reversed(lines) if not line.startswith(("[", " "))), lines[-1])


# Process groups.


def find_members(group: int) -> list[int]:
    """Processes of the group, zombies too."""
    members = []
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended, or belongs to another user
            if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) == group:
                members.append(int(folder.name))
    return members


def kill_group(leader: int, shared_memory: Path = _SHARED_MEMORY) -> None:
    """Kill a child process, which may lead a group, with all processes of that group; the caller waits for the child.

    Shared memory files of torch that belong to the group are removed.
    """
    _signal_group(leader, signal.SIGSTOP)  # no process starts another one, or makes a file, while they are listed
    members = find_members(leader)
    _signal_group(leader, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(leader, signal.SIGKILL)  # the group may not have begun yet
    names = {str(member) for member in members}
    for path in shared_memory.glob("torch_*_*_*"):
        if path.name.split("_")[1] in names:
            with contextlib.suppress(OSError):
                path.unlink()


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
