"""What the suite does in child processes: a store across a fork, and stores with damaged files."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.testing.made_stores import KEYS, LABELS, MadeStore

__all__ = ["Damage", "check_damages", "files_of", "in_child"]


def in_child(work: Callable[[], bool]) -> bytes:
    """Run ``work`` in a forked child; gives the text of what it returned, or of what it raised."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(work()).encode()
        except BaseException as error:  # noqa: BLE001  # the parent compares and shows it
            answer = repr(error).encode()
        os.write(send, answer)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def files_of(made: MadeStore) -> list[Path]:
    """The files of a store, the pictures that it was made of not counted."""
    found = [path for root in made.list_paths() for path in ([root] if root.is_file() else sorted(root.rglob("*")))]
    is_store = [path.is_file() and path.stat().st_size > 0 for path in found]
    return [
        path
        for path, is_one in zip(found, is_store, strict=True)
        if is_one and made.folder / "photos" not in path.parents
    ]


def read_damaged(made: MadeStore) -> bool:
    """Open a damaged store and ask it for everything, a record at a time; what is raised must be an error of ours.

    Returns whether what was given without an error is what was written, where the format has checksums.
    """
    try:
        store = made.open()
    except PenstockError:
        return True
    with store:
        for index in range(min(len(store), len(KEYS))):
            try:
                record = store.read([index])[0]
                image = record.fields.get("image")
                if made.maker.checks and not (
                    made.is_picture(image, index) and record.fields["label"] == LABELS[index]
                ):
                    return False
            except PenstockError:
                pass
        for question in (lambda: list(store.keys()), lambda: store.column("label"), store.fingerprint, store.digest):
            with contextlib.suppress(PenstockError):
                question()
    return True


Damage = tuple[Path, str, bytes]
"""A file of a store, what is done to it in words, and its content then."""


def read_each_damage(made: MadeStore, damages: list[Damage], send: Callable[[bytes], object]) -> None:
    """Read the store with one file damaged at a time, and send for each what :func:`read_damaged` says."""
    for path, _, content in damages:
        whole = path.read_bytes()
        path.write_bytes(content)
        for index in made.folder.rglob("*.index.npz"):  # what an opening has made
            index.unlink()
        try:
            answer = b"1" if read_damaged(made) else b"0"
        finally:
            path.write_bytes(whole)
        send(answer)


def _send_each(made: MadeStore, damages: list[Damage], pipe: Connection) -> None:
    read_each_damage(made, damages, pipe.send_bytes)


def read_elsewhere(made: MadeStore, damages: list[Damage]) -> bytes:
    """What :func:`read_each_damage` sends from a process of its own, until it ends or dies."""
    receive, send = multiprocessing.Pipe(duplex=False)
    context: Any = multiprocessing.get_context("fork" if made.maker.survives_fork else "forkserver")
    process = context.Process(target=_send_each, args=(made, damages, send))
    process.start()
    send.close()
    answers = b""
    with receive, contextlib.suppress(EOFError):
        while len(answers) < len(damages):
            answers += receive.recv_bytes()
    process.join()
    return answers


def check_damages(made: MadeStore, damages: list[Damage]) -> None:
    """Read the store with each damage; a process that a library ends is followed by one for the other damages."""
    left = damages
    while left:
        whole = {path: path.read_bytes() for path in {path for path, *_ in left}}
        answers = read_elsewhere(made, left)
        died = left[len(answers) :][:1]
        wrong = [damage[:2] for damage, answer in zip(left, answers, strict=False) if answer != ord("1")]
        assert not wrong
        assert made.maker.may_crash or not died, died[0][:2]
        left = left[len(answers) + 1 :]
        for path, content in whole.items():
            path.write_bytes(content)
