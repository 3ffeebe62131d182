"""How a store is opened and closed, and goes to other threads and processes."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from PIL import Image

from penstock import stores
from penstock.errors import StoreError, StoreNotFoundError
from penstock.stores import STORES
from penstock.stores.base import Store
from penstock.testing.fixtures import StoreFixtures
from penstock.testing.made_stores import KEYS, MadeStore

__all__ = ["LifetimeTests", "in_child"]

CHILD_TIMEOUT_S: Final = 60.0
"""How long a forked child may take for one record."""


def in_child(work: Callable[[], bool]) -> bytes:
    """Run ``work`` in a forked child; return the text of what it returned, or of what it raised."""
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
        has_answered = bool(select.select([pipe], [], [], CHILD_TIMEOUT_S)[0])
        if not has_answered:
            os.kill(child, signal.SIGKILL)  # or it would wait for ever, for a lock or a thread of its parent
        answer = pipe.read() if has_answered else b"no answer of the forked child: does a library not support fork?"
    os.waitpid(child, 0)
    return answer


def run_in_threads(count: int, work: Callable[[int], None]) -> None:
    """Call ``work`` with the number of each of several threads, which begin together; raise what it raises."""
    begin = threading.Barrier(count)

    def work_with_others(number: int) -> None:
        begin.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work_with_others, range(count)))


class LifetimeTests(StoreFixtures):
    """The tests of opening, closing, pickling, forks and threads."""

    def test_no_kind_is_excluded_that_recognises_a_store(self, made: MadeStore) -> None:
        """What excludes a kind without importing it agrees with the kind itself, for the stores of every kind."""
        paths = made.list_paths()
        if not paths:
            pytest.skip("it is not at a path")
        path = str(paths[0])

        recognised = {name for name in STORES if STORES.get(name).recognises(path)}

        assert recognised <= {name for name in STORES if STORES.row(name).may_be_at(path)}

    def test_url_opens_the_same_store(self, store: Store, kept: MadeStore) -> None:
        """The URL is understood by open(), with the same options."""
        with stores.open(store.url, **kept.maker.options) as again:
            assert again.url == store.url
            assert list(again.keys()) == kept.keys

    def test_pickled_store_reads_the_same(self, store: Store, kept: MadeStore) -> None:
        """A store survives pickling, as its URL."""
        with pickle.loads(pickle.dumps(store)) as again:
            assert kept.is_picture(again.read([2])[0].fields["image"], 2)

    def test_pickled_store_reads_the_same_in_a_spawned_process(self, made: MadeStore) -> None:
        """A process that shares nothing with this one opens the store that it is given."""
        with made.open() as store:
            path = made.folder / "pickled"
            path.write_bytes(pickle.dumps(store))
            expected = [memoryview(record.fields["image"]).nbytes for record in store.read(range(len(KEYS)))]
        program = (
            "import pickle, pathlib\n"
            f"store = pickle.loads(pathlib.Path({str(path)!r}).read_bytes())\n"
            "print([memoryview(record.fields['image']).nbytes for record in store.read(range(len(store)))])\n"
        )

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

        assert done.stdout.strip() == str(expected)

    def test_closed_store_refuses(self, opened: Store) -> None:
        """A closed store says that it is closed, whatever it is asked."""
        opened.close()

        questions: list[Callable[[], object]] = [
            lambda: opened.read([0]), opened.keys, lambda: opened.column("label"), lambda: pickle.dumps(opened)
        ]  # fmt: skip
        for question in questions:
            with pytest.raises(StoreError, match="closed"):
                question()

    def test_closing_twice_is_harmless(self, opened: Store) -> None:
        """close() may be called again."""
        opened.close()
        opened.close()

    def test_views_outlive_the_store(self, opened: Store, made: MadeStore) -> None:
        """A blob that someone still holds stays readable after the store is closed: a mistake must not crash."""
        blob = opened.read([1])[0].fields["image"]

        opened.close()
        gc.collect()

        assert made.is_picture(blob, 1)

    def test_same_store_opens_twice(self, made: MadeStore) -> None:
        """Two stores on one path work side by side, and closing one leaves the other."""
        first, second = made.open(), made.open()

        first.close()

        assert made.is_picture(second.read([0])[0].fields["image"], 0)
        second.close()

    def test_threads_read_at_once(self, store: Store, kept: MadeStore) -> None:
        """Many threads reading one store each get the right bytes."""

        def read(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(50):
                indices = rng.integers(0, len(KEYS), 4)
                for index, record in zip(indices, store.read(indices), strict=True):
                    assert kept.is_picture(record.fields["image"], index)

        run_in_threads(8, read)

    def test_threads_open_and_close_at_once(self, made: MadeStore) -> None:
        """Opening and closing one path from many threads never fails."""

        def visit(_: int) -> None:
            for _ in range(made.rounds):
                with made.open() as store:
                    assert made.is_picture(store.read([1])[0].fields["image"], 1)

        run_in_threads(4, visit)

    def test_store_works_across_a_fork(self, opened: Store, made: MadeStore) -> None:
        """A store opened before a fork reads right in the child, or says that it cannot; and in the parent later."""
        opened.read([0])

        answer = in_child(lambda: made.is_picture(opened.read([4])[0].fields["image"], 4))

        if made.maker.survives_fork:
            assert answer == b"True"
        else:
            assert answer.startswith(b"StoreError(")
            assert b"does not support fork" in answer
        assert made.is_picture(opened.read([3])[0].fields["image"], 3)

    def test_views_work_across_a_fork(self, opened: Store, made: MadeStore) -> None:
        """A blob read before a fork stays readable in the child, also after the child has read by itself."""
        blob = opened.read([0])[0].fields["image"]

        def look() -> bool:
            with contextlib.suppress(*([] if made.maker.survives_fork else [StoreError])):
                opened.read([1])
            gc.collect()
            return made.is_picture(blob, 0)

        assert in_child(look) == b"True"

    def test_opening_leaks_no_descriptors(self, made: MadeStore) -> None:
        """Opening, reading and closing twenty times leaves as many descriptors open as before."""
        made.open().close()
        gc.collect()
        before = len(list(Path("/proc/self/fd").iterdir()))

        for _ in range(20):
            with made.open() as store:
                store.read([0])

        gc.collect()
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_asking_leaves_the_folder_as_it_is(self, made: MadeStore) -> None:
        """len(), repr(), schema, keys and pickling change no file of the store."""

        def look() -> dict[str, bytes]:
            return {str(path): path.read_bytes() for path in sorted(made.folder.rglob("*")) if path.is_file()}

        with made.open() as store:
            before = look()
            len(store), repr(store), store.schema, list(store.keys()), pickle.dumps(store), store.fingerprint()

            assert look() == before

    def test_repr_says_what_it_is(self, opened: Store) -> None:
        """repr() names the store and its fields, and that it is closed once it is."""
        before = repr(opened)
        opened.close()

        assert opened.url in before
        assert "5 records" in before
        assert "closed" in repr(opened)

    def test_missing_store_is_not_found(self, kept: MadeStore, store: Store, tmp_path: Path) -> None:
        """Opening a path where nothing is raises StoreNotFoundError."""
        maker = kept.maker
        url = f"{store.location.scheme}://{tmp_path / 'nothing'}" if maker.missing is None else maker.missing(tmp_path)

        with pytest.raises(StoreNotFoundError):
            stores.open(url, **maker.options)

    def test_digest_is_that_of_the_records(self, made: MadeStore) -> None:
        """The digest is stable, and another one as soon as a record differs."""
        with made.open() as store:
            before = store.digest()
            assert store.digest() == before
        file = made.folder / "photos" / "dogs" / "1.jpg"
        with Image.open(file) as image:
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(file)
        made.remake()

        with made.open() as store:
            assert store.digest() != before

    def test_fingerprint_is_that_of_a_copy(self, made: MadeStore) -> None:
        """The fingerprint does not depend on when the store was written: written again, it is the same."""
        with made.open() as store:
            before = store.fingerprint()
            made.remake()

        with made.open() as store:
            assert store.fingerprint() == before
