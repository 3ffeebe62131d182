"""Documents on the test server, as other programs write them."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.servers.mongo_server import MongoServer, get_server

_numbers = itertools.count()


def new_id() -> Any:
    """The next ObjectId in order: pymongo's own go back with the clock, and stores are in the order of their ids."""
    return pytest.importorskip("bson").ObjectId(next(_numbers).to_bytes(12, "big"))


def make_jpeg(seed: int, height: int = 8, width: int = 8) -> bytes:
    """A small JPEG file, another one for each seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


@dataclass(frozen=True)
class Documents:
    """A database of its own on a server, and pymongo's client of the test."""

    server: MongoServer
    database: Any

    def url(self, collection: str = "photos", kind: str = "mongodb") -> str:
        """The URL of a collection."""
        return f"{kind}://{self.server.host}/{self.database.name}/{collection}"

    def insert(self, documents: list[dict[str, Any]], collection: str = "photos") -> list[Any]:
        """Insert documents, with new ids where they have none; gives their ids."""
        documents = [{"_id": new_id(), **document} for document in documents]
        ids: list[Any] = self.database[collection].insert_many(documents).inserted_ids
        return ids


@contextmanager
def open_database(server: MongoServer | None = None) -> Iterator[Documents]:
    """A new database on a server, by default the one of this process; dropped at the end."""
    pymongo = pytest.importorskip("pymongo")
    server = server or get_server()
    client: Any = pymongo.MongoClient(server.host, serverSelectionTimeoutMS=5000, tz_aware=True)
    with client:
        database = client[f"d{os.getpid()}_{next(_numbers)}"]
        yield Documents(server, database)
        with contextlib.suppress(pymongo.errors.AutoReconnect):  # a server that the test killed
            client.drop_database(database.name)
