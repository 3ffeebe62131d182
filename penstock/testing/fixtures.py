"""What the tests of a kind of stores are given: stores of five pictures, closed and open, for one test or for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.stores.base import Store
from penstock.testing.made_stores import MadeStore, StoreMaker

__all__ = ["StoreFixtures"]


class StoreFixtures:
    """The fixtures of :class:`.StoreTests`."""

    maker: ClassVar[StoreMaker]
    """How a store of the kind is made."""
    flips: ClassVar[int] = 48
    """How many bits of each file are flipped, one at a time."""

    @pytest.fixture(scope="class")
    @classmethod
    def store_maker(cls) -> StoreMaker:
        """Return how the store of each test is made; a subclass of several kinds overrides it with parameters."""
        return cls.maker

    @pytest.fixture
    def made(self, store_maker: StoreMaker, tmp_path: Path) -> MadeStore:
        """A store of five records, for one test, which may change it."""
        return MadeStore.make(store_maker, tmp_path)

    @pytest.fixture
    def opened(self, made: MadeStore) -> Iterator[Store]:
        """Yield the same, open; a test may close it."""
        with made.open() as store:
            yield store

    @pytest.fixture(scope="class")
    @classmethod
    def kept(cls, store_maker: StoreMaker, tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
        """A store for all tests that only read it."""
        return MadeStore.make(store_maker, tmp_path_factory.mktemp("kept"))

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, kept: MadeStore) -> Iterator[Store]:
        """Yield the same, open."""
        with kept.open() as opened:
            yield opened
