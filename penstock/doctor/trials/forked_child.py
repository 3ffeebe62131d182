"""Runs one function in a forked child process that is killed after some seconds.

What the function prints goes nowhere, what it changes is lost, and what it raises gives no result: it may run the
user's dataset.
"""

from __future__ import annotations

import functools
import gc
import json
import logging
import math
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, Final, NoReturn

from penstock.doctor.trials.process_group import kill_group
from penstock.forks import libraries_without_fork

__all__ = ["begin_child", "collect_from_child", "run_in_child"]

_logger = logging.getLogger(__name__)
_LENGTH_BYTES: Final = 8
_PIECE: Final = 1 << 16


def collect_from_child(
    work: Callable[[Callable[[bytes], None]], None],
    limit_s: float,
    is_whole: Callable[[bytearray], bool] = lambda _: False,
) -> bytes:
    """Call ``work`` in a child process, and collect what it sends.

    Parameters
    ----------
    work : callable
        Called with a function that sends bytes.
    limit_s : float
        Most seconds.
    is_whole : callable
        Whether the bytes so far are all; workers that the child starts have its pipe too, and may keep it open.

    Returns
    -------
    bytes
        What was sent until it was whole, or the child or the time ended; empty where no process can be forked, or this
        one has used a library that does not work in a forked child.
    """
    libraries = libraries_without_fork()
    if not hasattr(os, "fork") or libraries or limit_s <= 0:
        _logger.debug("no child process: libraries that cannot be forked: %s, limit: %s s", libraries, limit_s)
        return b""
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        os.close(receiver)
        _run(work, limit_s, sender)
    os.close(sender)
    begun, content = time.monotonic(), b""
    try:
        content = _receive(receiver, begun + limit_s, is_whole)
    finally:
        seconds = time.monotonic() - begun
        os.close(receiver)
        kill_group(child)  # with what it may have started
        _, status = os.waitpid(child, 0)
        _logger.debug("a child process: %d bytes in %.3f s, status %#x", len(content), seconds, status)
    return content


def run_in_child(function: Callable[[], Any], limit_s: float) -> Any:
    """Call ``function`` in a child process.

    Parameters
    ----------
    function : callable
        Returns numbers, text, lists and dicts, which JSON can express.
    limit_s : float
        Most seconds.

    Returns
    -------
    object
        Its result; None if it raised or did not end in time, and where no process can be forked.
    """

    def send_result(send: Callable[[bytes], None]) -> None:
        text = json.dumps(function()).encode()
        send(len(text).to_bytes(_LENGTH_BYTES, "little") + text)

    def is_whole(buffer: bytearray) -> bool:
        return len(buffer) >= _LENGTH_BYTES + int.from_bytes(buffer[:_LENGTH_BYTES], "little")

    content = collect_from_child(send_result, limit_s, is_whole)
    try:
        return json.loads(content[_LENGTH_BYTES:])
    except ValueError:
        _logger.debug("a function in a child process gave no result")
        return None


def _run(work: Callable[[Callable[[bytes], None]], None], limit_s: float, sender: int) -> NoReturn:
    """The child's whole life."""
    try:
        gc.freeze()  # finalizers of the parent's garbage may wait for its threads, or close what both share
        os.setsid()
        begin_child(limit_s)
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
        work(functools.partial(_send, sender))
    finally:
        os._exit(0)  # without the script's exit handlers


def begin_child(limit_s: float) -> None:
    """In a child: end after some seconds, also if the parent has died, ignore Ctrl-C, and print nothing."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(math.ceil(limit_s) + 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.stdout = sys.stderr = os.fdopen(nowhere, "w", encoding="utf-8")
    warnings.simplefilter("ignore")  # where they are errors, that of many workers would end a trial


def _send(sender: int, content: bytes) -> None:
    message = memoryview(content)
    while message:
        message = message[os.write(sender, message) :]


def _receive(receiver: int, deadline: float, is_whole: Callable[[bytearray], bool]) -> bytes:
    """What the child sends, until it is whole, or the child or the time ends."""
    buffer = bytearray()
    while (left := deadline - time.monotonic()) > 0 and select.select([receiver], [], [], left)[0]:
        piece = os.read(receiver, _PIECE)
        buffer += piece
        if not piece or is_whole(buffer):
            break
    return bytes(buffer)
