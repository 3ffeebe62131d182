"""Files that are damaged, replaced, or no files: a store raises errors of ours, and gives no other store's record."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import PenstockError, StoreError
from penstock.stores.base import Store
from penstock.testing.fixtures import StoreFixtures
from penstock.testing.made_stores import KEYS, LABELS, MadeStore

__all__ = ["DamageTests"]


def files_of(made: MadeStore) -> list[Path]:
    """Return the files of a store, without the pictures that it was made of."""
    found = [path for root in made.list_paths() for path in ([root] if root.is_file() else sorted(root.rglob("*")))]
    files = [path for path in found if path.is_file() and path.stat().st_size]
    return [path for path in files if made.folder / "photos" not in path.parents]


Damage = tuple[Path, str, bytes]
"""A file of a store, what is done to it in words, and its content then."""


def find_wrong(made: MadeStore) -> str:
    """Open a damaged store, and ask it for everything, a record at a time.

    Returns the traceback of an exception that is none of ours, or, where the format has checksums, which record is not
    what was written; an empty text if nothing is wrong.
    """
    try:
        with made.open() as store:
            for index in range(min(len(store), len(KEYS))):
                with contextlib.suppress(PenstockError):
                    fields = store.read([index])[0].fields
                    is_right = made.is_picture(fields.get("image"), index) and fields["label"] == LABELS[index]
                    if made.maker.checks and not is_right:
                        return f"record {index} must be what was written, or raise an error: the format has checksums"
            for ask in (lambda: list(store.keys()), lambda: store.column("label"), store.fingerprint, store.digest):
                with contextlib.suppress(PenstockError):
                    ask()
    except PenstockError:
        pass
    except Exception:  # noqa: BLE001  # whatever it is, the test reports it
        return f"damage must be raised as a PenstockError (see `ContainerStore.damage`), got\n{traceback.format_exc()}"
    return ""


def _send_each(made: MadeStore, damages: list[Damage], pipe: Connection) -> None:
    """Damage one file of the store at a time, and send for each what is wrong."""
    for path, _, content in damages:
        whole = path.read_bytes()
        path.write_bytes(content)
        for index in made.folder.rglob("*.index.npz"):  # what an opening has made
            index.unlink()
        try:
            answer = find_wrong(made)
        finally:
            path.write_bytes(whole)
        pipe.send(answer)


def read_elsewhere(made: MadeStore, damages: list[Damage]) -> list[str]:
    """Return what a process of its own finds wrong for each damage, until it ends or dies."""
    receive, send = multiprocessing.Pipe(duplex=False)
    context: Any = multiprocessing.get_context("fork" if made.maker.survives_fork else "forkserver")
    process = context.Process(target=_send_each, args=(made, damages, send))
    process.start()
    send.close()
    answers: list[str] = []
    with receive, contextlib.suppress(EOFError):
        while len(answers) < len(damages):
            answers.append(receive.recv())
    process.join()
    return answers


def check_damages(made: MadeStore, damages: list[Damage]) -> None:
    """Read the store with each damage; a process that a library ends is followed by one for the other damages."""
    left, wrong = damages, []
    while left:
        whole = {path: path.read_bytes() for path in {path for path, *_ in left}}
        answers = read_elsewhere(made, left)
        if len(answers) < len(left):
            answers.append("" if made.maker.may_crash else "reading it ended the process")
        wrong += [(*damage[:2], answer) for damage, answer in zip(left, answers, strict=False) if answer]
        left = left[len(answers) :]
        for path, content in whole.items():
            path.write_bytes(content)
    for path, what, answer in wrong[:1]:
        pytest.fail(f"{path.name}, {what}: {answer}\n{len(wrong)} of {len(damages)} damages failed; this is the first")


def read_all(get_store: Callable[[], Store], made: MadeStore) -> None:
    """Read every record from the last to the first, each of which must be the one of its index."""
    store = get_store()
    for index in reversed(range(len(KEYS))):
        assert made.is_picture(store.read([index])[0].fields["image"], index)


def block(path: Path) -> None:
    """Make a FIFO; who opens it waits for a writer."""
    os.mkfifo(path)


def circle(path: Path) -> None:
    """Make a link to itself, which cannot be opened."""
    path.symlink_to(path.name)


def leave_out(path: Path) -> None:
    """Put nothing there."""


def uses_of(store: Store) -> list[Callable[[], object]]:
    """Return what may be asked of an open store, each as a function."""
    last = [len(store) - 1]
    columns = [name for name, field in store.schema.fields.items() if field.kind in {"label", "int", "text"}]
    return [
        store.fingerprint,
        store.digest,
        *(lambda name=name: store.column(name) for name in columns),
        lambda: store.blobs("image", last) if store.schema.fields["image"].is_blob else None,
        lambda: list(store.keys()),
        lambda: store.read(last),
        lambda: pickle.loads(pickle.dumps(store)).close(),
    ]


def store_error(use: Callable[[], object]) -> PenstockError | None:
    """Return the error of ours that a use of a store raises; another one ends the test."""
    try:
        use()
    except PenstockError as error:
        return error
    return None


class DamageTests(StoreFixtures):
    """The tests of files that are not, or no longer, those of the store."""

    def test_a_store_that_is_replaced_while_open_is_refused(self, made: MadeStore) -> None:
        """After the files were replaced, reading raises soon: no index gives the record of another store."""
        store = made.open()
        store.read([0])
        (made.folder / "photos" / "cats" / "2.jpg").unlink()
        made.remake()

        with pytest.raises(StoreError):
            read_all(lambda: store, made)

    def test_pickled_store_does_not_become_another(self, made: MadeStore) -> None:
        """A store that changed since it was pickled is refused, or the record is: no index gives another."""
        with made.open() as store:
            pickled = pickle.dumps(store)
        (made.folder / "photos" / "cats" / "2.jpg").unlink()
        made.remake()

        with pytest.raises(StoreError) as caught:
            read_all(lambda: pickle.loads(pickled), made)
        assert "changed since it was pickled" in caught.value.message or caught.value.where["key"] == made.keys[0]

    def test_truncated_files_raise_errors_of_ours(self, made: MadeStore) -> None:
        """Each file that is cut off raises an error that can be caught, or gives the whole records; nothing crashes."""
        damages = []
        for path in files_of(made):
            whole = path.read_bytes()
            damages += [
                (path, f"{share} of it", whole[: int(share * len(whole))]) for share in (0, 0.1, 0.5, 0.9, 0.999)
            ]

        check_damages(made, damages)

    def test_flipped_bits_raise_errors_of_ours(self, made: MadeStore) -> None:
        """A flipped bit raises an error that can be caught, or gives records; with checksums, the right ones."""
        rng = np.random.default_rng(0)
        damages = []
        for path in files_of(made):
            whole = path.read_bytes()
            for at in rng.integers(0, len(whole), self.flips).tolist():
                damaged = bytearray(whole)
                damaged[at] ^= 1 << int(rng.integers(8))
                damages.append((path, f"byte {at}", bytes(damaged)))

        check_damages(made, damages)

    @pytest.mark.parametrize("put", [block, circle, Path.mkdir, leave_out])
    def test_what_the_system_refuses_is_an_error_of_ours(self, made: MadeStore, put: Callable[[Path], object]) -> None:
        """Whatever lies in place of a file, before or after the store was opened, an error names the store."""
        paths = made.list_paths()
        if not paths:
            pytest.skip("it is not at a path")
        path = paths[-1]
        files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
        largest = max(files, key=lambda each: (each.stat().st_size, each))

        with made.open() as store:
            assert [store_error(use) for use in uses_of(store)] == [None] * len(uses_of(store))
        with made.open() as store:
            largest.unlink()
            put(largest)
            errors = [store_error(use) for use in uses_of(store)]
        with contextlib.suppress(PenstockError), made.open() as store:  # perhaps of another kind now
            for use in uses_of(store):
                store_error(use)

        assert [error for error in errors if error is not None and not error.where["store"]] == []
