"""Servers that go away and come back, in the middle of an epoch too; passwords, which no text shows."""

from __future__ import annotations

import logging
import pickle
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError, StoreError
from penstock.stores.location import Location
from penstock.stores.mongo.connection import MongoConnection
from tests.servers.mongo_server import MongoServer
from tests.stores.mongo.collections_of_documents import Documents, make_jpeg, open_database

pymongo = pytest.importorskip("pymongo")

PASSWORD = "s3cr3t/pass:word"
ESCAPED = "s3cr3t%2Fpass%3Aword"
NOWHERE = "127.0.0.1:9"


@pytest.fixture
def documents(tmp_path: Path) -> Iterator[Documents]:
    """A database on a server of its own, which a test may kill."""
    with MongoServer(tmp_path / "server") as server, open_database(server) as opened:
        yield opened
        if server.process is None:
            server.start()


def insert_numbered(documents: Documents, count: int) -> None:
    """Documents whose label is their number."""
    documents.insert([{"_id": i, "image": make_jpeg(i % 8), "label": i} for i in range(count)])


class Numbers(ps.Dataset[Any]):
    """A user's dataset over a store: the label of each record."""

    def __init__(self, url: str) -> None:
        self.store = ps.open(url)

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> int:
        record = self.store[index]
        assert record.fields["image"] == make_jpeg(index % 8)
        return int(record.fields["label"])


def make_loader(url: str, kind: str) -> ps.DataLoader:
    """A loader that reads in worker processes, or in threads; look-ahead is short."""
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 3, "num_workers": 2, "prefetch_factor": 1}
    if kind == "threads":
        dataset = ps.StoreDataset(url, transform=[T.Decode(), T.Resize((8, 8))])
        return ps.DataLoader(dataset, workers="threads", **options)
    return ps.DataLoader(Numbers(url), workers="processes", **options)


def read_labels(batch: Any) -> list[int]:
    """The labels of a batch."""
    if isinstance(batch, dict):
        batch = batch["label"]
    labels: list[int] = np.asarray(batch[1] if isinstance(batch, tuple) else batch).tolist()
    return labels


@pytest.mark.parametrize("kind", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_an_epoch_survives_a_kill_of_the_server(
    documents: Documents, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The server is killed in mid-epoch and started again: every record arrives exactly once."""
    insert_numbered(documents, 200)
    seen: Counter[int] = Counter()
    restart: threading.Timer | None = None
    with caplog.at_level(logging.WARNING, "penstock"):
        for number, batch in enumerate(make_loader(f"{documents.url()}?serverSelectionTimeoutMS=100", kind)):
            if number == 4:
                documents.server.kill()
                restart = threading.Timer(0.7, documents.server.start)
                restart.start()
            seen.update(read_labels(batch))
    assert restart is not None
    restart.join()

    assert seen == Counter(range(200))
    if kind == "threads":
        assert f"{documents.server.host} does not answer; trying again for 60 s" in caplog.text
        assert f"{documents.server.host} answers again" in caplog.text


def test_a_server_that_stays_away_is_an_error(documents: Documents) -> None:
    """After reconnect_timeout the error names host, store, key and index; when the server is back, the store reads."""
    insert_numbered(documents, 3)
    with ps.open(documents.url(), reconnect_timeout=0.4) as store:
        documents.server.kill()
        with pytest.raises(StoreError, match=f"{documents.server.host} did not answer for 0.4 s") as caught:
            store.read([2, 1])
        assert caught.value.where == {"store": store.url, "key": "2", "index": 2}
        documents.server.start()

        assert read_again(store, 2).fields["label"] == 2


def read_again(store: ps.Store, index: int) -> ps.Record:
    """The record, once the server answers within the store's patience."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return store.read([index])[0]
        except StoreError:
            assert time.monotonic() < deadline, "the server that is back is not asked again"


def test_closing_ends_the_wait_for_a_server(documents: Documents) -> None:
    """close() in another thread ends a read that waits for the server."""
    insert_numbered(documents, 3)
    store = ps.open(documents.url())
    documents.server.kill()
    closing = threading.Timer(0.3, store.close)
    closing.start()

    with pytest.raises(StoreError, match="this store is closed"):
        store.read([0])
    closing.join()


def collect_texts(error: BaseException) -> str:
    """What a person may see of an error: message, chain, traceback, pickle."""
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(error.__cause__) + repr(error.__context__)
    return shown + repr(pickle.dumps(error))


def assert_no_secret(*texts: str) -> None:
    """Neither the password, nor its encoded form, nor a part of it that can be recognised."""
    for text in texts:
        for secret in (PASSWORD, ESCAPED, "s3cr3t", "t0ken"):
            assert secret not in text


@pytest.mark.parametrize(
    "url",
    [
        f"mongodb://ann:{ESCAPED}@{NOWHERE}/pets/photos?serverSelectionTimeoutMS=50",
        f"gridfs://ann:{ESCAPED}@{NOWHERE}/pets/fs?serverSelectionTimeoutMS=50",
        f"mongodb://ann:s3cr3t@pw@{NOWHERE}/pets/photos",
        f"mongodb://ann:s3cr3t:pw@{NOWHERE}/pets/photos",
        f"mongodb://ann:{ESCAPED}@{NOWHERE}/pets/photos?authMechanismProperties=AWS_SESSION_TOKEN:t0ken&tls=maybe",
        f"mongodb://ann:{ESCAPED}@{NOWHERE}/pets/photos?tls=true&tlsCertificateKeyFilePassword=t0ken&w=-3",
        f"mongodb://ann:{ESCAPED}@{NOWHERE}/pe$ts/photos?authSource=a",
        f"mongodb://ann:{ESCAPED}@{NOWHERE}/pets",
        f"mongodb://ann:{ESCAPED}@:bad:port:/pets/photos",
        f"mongodb+srv://ann:{ESCAPED}@localhost/pets/photos",
        f"mongodb://ann:{ESCAPED}@{NOWHERE}/pets/photos?authMechanism=NONSENSE",
    ],
)
def test_no_text_holds_the_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Errors of every kind, with their causes, tracebacks and pickles, logs and warnings hide user's secrets."""
    with caplog.at_level(logging.DEBUG, "penstock"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises((StoreError, ArgumentError)) as caught:
            ps.open(url, reconnect_timeout=0.2)

    assert_no_secret(collect_texts(caught.value), caplog.text, *(str(each.message) for each in seen))


def test_an_open_store_shows_no_password(documents: Documents, caplog: pytest.LogCaptureFixture) -> None:
    """repr, url, options, pickle and errors of a store with a password hide it, and a pickle connects with it."""
    insert_numbered(documents, 3)
    query = "authMechanism=PLAIN&authSource=$external"
    url = f"mongodb://ann:{ESCAPED}@{documents.server.host}/{documents.database.name}/photos?{query}"
    with caplog.at_level(logging.DEBUG, "penstock"), ps.open(url, reconnect_timeout=2) as store:
        pickled = pickle.dumps(store)
        texts = [repr(store), store.url, repr(store.options), store.description, repr(pickled), repr(store.location)]
        with pickle.loads(pickled) as again:
            assert again.read([1])[0].fields["label"] == 1
            assert again.location.credentials == f"ann:{ESCAPED}"
            documents.server.kill()
            with pytest.raises(StoreError) as caught:
                again.read([2])
            texts.append(collect_texts(caught.value))
        store.prefetch([0])
        with pytest.raises(StoreError) as caught:
            store.read([0])
        texts.append(collect_texts(caught.value))

    assert_no_secret(*texts, caplog.text)


def test_refused_passwords_are_not_repeated(documents: Documents) -> None:
    """A refusal of the server is an error at once: it is not an absence."""
    url = f"mongodb://ann:{ESCAPED}@{documents.server.host}/{documents.database.name}/photos"

    with pytest.raises(StoreError, match=f"{documents.server.host} refused: .*authentication") as caught:
        ps.open(url)

    assert_no_secret(collect_texts(caught.value))


def test_causes_with_a_secret_are_left_out() -> None:
    """An error of pymongo that repeats the URL is neither shown nor chained."""
    url = f"mongodb://ann:{ESCAPED}@{NOWHERE}/pets/photos?tlsCertificateKeyFilePassword=t0ken"
    connection = MongoConnection(Location.from_url(url), 0)

    def fail(database: Any) -> None:
        raise pymongo.errors.OperationFailure(f"no access to {url} with {PASSWORD}", 13)

    with pytest.raises(StoreError, match=r"no access to mongodb://ann:\*\*\*@.*Password=\*\*\* with \*\*\*") as caught:
        connection.run(fail)
    connection.close()

    assert caught.value.__cause__ is None
    assert_no_secret(collect_texts(caught.value))


@pytest.mark.parametrize(
    ("error", "is_repeated"),
    [
        (pymongo.errors.AutoReconnect("gone"), True),
        (pymongo.errors.NetworkTimeout("slow"), True),
        (pymongo.errors.ServerSelectionTimeoutError("none"), True),
        (pymongo.errors.NotPrimaryError("stepped down"), True),
        (pymongo.errors.CursorNotFound("cursor 7 not found", 43), True),
        (pymongo.errors.OperationFailure("interrupted at shutdown", 11600), True),
        (pymongo.errors.OperationFailure("not authorised", 13), False),
        (pymongo.errors.DuplicateKeyError("E11000", 11000), False),
        (pymongo.errors.ConfigurationError("wrong"), False),
    ],
)
def test_only_absences_are_repeated(error: Exception, *, is_repeated: bool) -> None:
    """A call is repeated while the server is away or restarts; any other refusal is raised at once."""
    connection = MongoConnection(Location.from_url(f"mongodb://{NOWHERE}/pets/photos"), 30)
    calls = 0

    def work(database: Any) -> int:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise error
        return calls

    if is_repeated:
        assert connection.run(work) == 3
    else:
        with pytest.raises(StoreError, match="refused"):
            connection.run(work)
        assert calls == 1
    connection.close()
