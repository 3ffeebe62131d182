"""What every registered kind of files promises, of stores in object storage: the tests of the suite again."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from penstock.errors import StoreError
from penstock.testing import MadeStore, StoreMaker, StoreTests, write_photos
from tests.conformance.store_makers import MAKERS
from tests.servers.web import WebServer, serving

pytest.importorskip("obstore")

LEFT_OUT: Final = {"files", "mongodb", "gridfs"}
"""Kinds that are no files, or whose files are named by a listing."""
HERE: Final = {
    "test_no_kind_is_excluded_that_recognises_a_store",
    "test_missing_store_is_not_found",
    "test_asking_leaves_the_folder_as_it_is",
    "test_what_the_system_refuses_is_an_error_of_ours",
    "test_many_records_are_read_in_any_order",
}
"""Tests of what is on this machine."""
REPLACED: Final = {
    "test_a_store_that_is_replaced_while_open_is_refused",
    "test_pickled_store_does_not_become_another",
}
"""Another test below takes their place: what was fetched of the old store may be given."""
FORKED: Final = {
    "test_store_works_across_a_fork",
    "test_views_work_across_a_fork",
    "test_truncated_files_raise_errors_of_ours",
    "test_flipped_bits_raise_errors_of_ours",
    "test_opening_leaks_no_descriptors",
    "test_pickled_store_reads_the_same_in_a_spawned_process",
}
"""Tests that fork, or count descriptors: a client has threads and connections. See ``tests/stores/remote``."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """A server of the buckets in a folder, which the environment names."""
    with serving(tmp_path_factory.mktemp("served")) as found, pytest.MonkeyPatch.context() as patch:
        for name, value in found.environment.items():
            patch.setenv(name, value)
        yield found


def make_remote(maker: StoreMaker, server: WebServer, folder: Path) -> MadeStore:
    """Write a store of the pictures in a folder, which is a bucket."""
    contents = write_photos(folder / "photos")
    bucket = f"bucket-{len(list(server.root.iterdir()))}"
    (server.root / bucket).symlink_to(folder)

    def make(folder: Path) -> str:
        local = maker.make(folder)
        assert isinstance(local, str)
        return f"s3://{bucket}/{Path(local.rpartition('://')[2]).relative_to(folder)}"

    options = {**maker.options, "cache": server.root.parent / f"{bucket}-cache"}
    return MadeStore(make(folder), replace(maker, make=make, options=options), contents, folder, rounds=2)


class TestRemoteStores(StoreTests):
    """The suite for each kind of files, and each way in which one stores records."""

    @pytest.fixture(scope="class", params=sorted(MAKERS.keys() - LEFT_OUT))
    @classmethod
    def store_maker(cls, request: pytest.FixtureRequest) -> StoreMaker:
        """How a store of each kind is made."""
        if MAKERS[request.param].needs:
            pytest.importorskip(MAKERS[request.param].needs)
        return MAKERS[request.param]

    @pytest.fixture
    def made(self, store_maker: StoreMaker, tmp_path: Path, server: WebServer) -> MadeStore:
        """A store in a bucket, for one test, which may change it."""
        return make_remote(store_maker, server, tmp_path)

    @pytest.fixture(scope="class")
    @classmethod
    def kept(cls, store_maker: StoreMaker, tmp_path_factory: pytest.TempPathFactory, server: WebServer) -> MadeStore:
        """A store in a bucket, for all tests that only read it."""
        return make_remote(store_maker, server, tmp_path_factory.mktemp("kept"))

    @pytest.mark.parametrize("is_pickled", [False, True])
    def test_no_record_of_a_store_that_is_replaced_becomes_another(self, made: MadeStore, *, is_pickled: bool) -> None:
        """Each is that of the store that was opened, or an error that says that it was replaced."""
        opened = made.open()
        keys = list(opened.keys())
        (made.folder / "photos" / "cats" / "2.jpg").unlink()
        made.remake()

        errors = []
        for index, key in enumerate(keys):
            try:
                store = pickle.loads(pickle.dumps(opened)) if is_pickled else opened
                record = store.read([index])[0]
            except StoreError as error:
                errors.append(str(error))
            else:
                assert made.is_picture(record.fields["image"], index)
                assert record.key == key
        opened.close()
        gone = "replaced|no object at this URL|no store at this path|[Nn]ot found"  # Lance has names of its own
        assert all(re.search(gone, error) and str(made.url) in error for error in errors)
        with made.open() as store:
            assert len(store) == len(keys) - 1


for left_out in HERE | REPLACED | FORKED:
    setattr(TestRemoteStores, left_out, None)
