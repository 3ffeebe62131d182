"""Stores are written to object storage: equal to those that are written on this machine, whatever the network does."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock import transforms as T
from penstock.cli.app import app
from penstock.errors import ArgumentError, StoreError, StoreNotFoundError
from penstock.paths import COEFFICIENTS
from penstock.stores.remote import object_store as places
from penstock.stores.remote import upload as uploads
from penstock.stores.remote import writable_place
from penstock.stores.remote.storage_client import StorageOptions
from penstock.wording import format_bytes
from tests.conformance.kills import Folder, Run, State, run_after_each_kill
from tests.photographs import write_photographs
from tests.servers import web
from tests.servers.objects import ObjectServer
from tests.servers.web import running
from tests.stores.written import recordio_image, write_recordio

obstore = pytest.importorskip("obstore")
from obstore.exceptions import GenericError, NotFoundError  # noqa: E402  # where it is installed

NAMES = [".image.index", ".source", "data.mdb", "pages.xxh3"]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A server with an empty bucket ``b``; waits are short, and files have several parts."""
    monkeypatch.setattr(places, "_WAIT", (0.001, 0.002))
    monkeypatch.setattr(writable_place, "_PART_NBYTES", 1 << 16)
    monkeypatch.setattr(uploads, "_PART_NBYTES", 1 << 16)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "world" / "cache"))
    (tmp_path / "world" / "served" / "b").mkdir(parents=True)
    with running(ObjectServer(tmp_path / "world" / "served")) as found:
        yield found


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """A folder of photographs, some of them larger than a part."""
    return write_photographs(tmp_path / "photographs", per_class=1)


def read_files(folder: Path) -> dict[str, bytes]:
    """The bytes of each file below a folder, by name."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_a_pack_at_a_url_has_the_bytes_of_one_on_this_machine(
    server: ObjectServer, photographs: Path, tmp_path: Path
) -> None:
    """Its data file, which makes it visible, is sent last; nothing is left on this machine."""
    ps.pack(photographs, tmp_path / "local.lmdb")

    report = ps.pack(photographs, "s3://b/photos.lmdb", storage_options=server.options)

    assert read_files(server.root / "b" / "photos.lmdb") == read_files(tmp_path / "local.lmdb")
    assert sorted(server.written[1:]) == [f"b/photos.lmdb/{name}" for name in NAMES]
    assert server.written[-1] == "b/photos.lmdb/data.mdb"
    assert report.store == "s3://b/photos.lmdb"
    assert report.indexed is not None
    assert report.indexed.path == "s3://b/photos.lmdb/.image.index"
    assert not list((tmp_path / "world" / "cache" / "penstock" / "uploads").iterdir())
    assert not (server.root / "b" / "photos.lmdb.upload").exists()


def test_coefficients_in_object_storage_give_crops_and_files(
    server: ObjectServer, photographs: Path, tmp_path: Path
) -> None:
    """Batches of crops are those of a pack of files on this machine, and so is each file."""
    options: dict[str, Any] = {"storage_options": server.options}
    ps.pack(photographs, tmp_path / "files.lmdb")
    ps.pack(photographs, "s3://b/kept.lmdb", transcode="coefficients", shard_size="100kB", **options)
    crop = [T.Decode(), T.RandomResizedCrop(32), T.ToLayout("CHW")]

    with ps.open("s3://b/kept.lmdb", **options) as store, ps.open(tmp_path / "files.lmdb") as local:
        assert {bytes(blob[:4]) for blob in store.blobs("image", range(len(store)))} == {COEFFICIENTS}
        for ours, theirs in zip(store, local, strict=True):
            assert (ours.key, bytes(ours.fields["image"])) == (theirs.key, bytes(theirs.fields["image"]))
        batches = [
            list(ps.DataLoader(ps.StoreDataset(each, ("image", "label"), crop), 5, shuffle=True, seed=2))
            for each in (store, local)
        ]
    for (ours, labels), (theirs, expected) in zip(*batches, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(labels, expected)


def test_a_finished_pack_is_used_as_it_is_and_another_is_refused(
    server: ObjectServer, photographs: Path, tmp_path: Path
) -> None:
    """As on this machine; ``overwrite`` replaces it, and a reader of the old one notices."""
    options: dict[str, Any] = {"storage_options": server.options}
    ps.pack(photographs, "s3://b/photos.lmdb", **options)
    server.written.clear()

    again = ps.pack(photographs, "s3://b/photos.lmdb", **options)

    assert again.reused
    assert [name for name in server.written if not name.endswith(".upload")] == []
    other = write_photographs(tmp_path / "other", per_class=2)
    with pytest.raises(ArgumentError, match=r"s3://b/photos.lmdb exists, and is not of this source .*--overwrite"):
        ps.pack(other, "s3://b/photos.lmdb", **options)
    with ps.open("s3://b/photos.lmdb", cache_size=0, **options) as store:
        report = ps.pack(other, "s3://b/photos.lmdb", overwrite=True, **options)
        with pytest.raises(StoreError, match="it was replaced while it was open; open it again"):
            store.read(range(len(store)))
    with ps.open("s3://b/photos.lmdb", **options) as store:
        assert len(store) == report.records == 2 * again.records


@pytest.mark.parametrize("fault", ["503", "500", "reset"])
def test_faults_while_writing_pass(server: ObjectServer, photographs: Path, tmp_path: Path, fault: str) -> None:
    """Every third request that writes fails, and what is there is right."""
    ps.pack(photographs, tmp_path / "local.lmdb")
    server.write_faults = ["", "", fault] * 40
    server.faults = ["", "", "503", "", "", "wrong"] * 20

    ps.pack(photographs, "s3://b/photos.lmdb", storage_options=server.options)

    assert read_files(server.root / "b" / "photos.lmdb") == read_files(tmp_path / "local.lmdb")


@pytest.mark.parametrize("code", ["404 NoSuchUpload", "400 InvalidPart"])
def test_a_lost_answer_to_the_end_of_an_upload_is_no_error(
    server: ObjectServer, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """The request is repeated, and servers say that its parts are not there any more: the object is sent anew."""
    ps.pack(photographs, tmp_path / "local.lmdb")
    put, errors = obstore.put, [code] * 3
    known = NotFoundError if code.startswith("404") else GenericError

    def put_and_lose(*args: Any, **options: Any) -> Any:
        written = put(*args, **options)
        if errors:
            raise known(f"Error performing POST, status: {errors.pop()}")
        return written

    monkeypatch.setattr(obstore, "put", put_and_lose)

    ps.copy(tmp_path / "local.lmdb", "s3://b/photos.lmdb", storage_options=server.options)

    assert not errors
    assert read_files(server.root / "b" / "photos.lmdb") == read_files(tmp_path / "local.lmdb")


def test_an_object_that_was_written_wrong_is_sent_again(
    server: ObjectServer, photographs: Path, tmp_path: Path
) -> None:
    """Bytes are read back and compared; a place that stays wrong is an error that names the object."""
    ps.pack(photographs, tmp_path / "local.lmdb")
    server.damages = 3

    ps.copy(tmp_path / "local.lmdb", "s3://b/one.lmdb", storage_options=server.options)

    assert read_files(server.root / "b" / "one.lmdb") == read_files(tmp_path / "local.lmdb")
    server.damages = 1000
    with pytest.raises(StoreError, match=r"what is there is not what was sent, 4 times .*s3://b/two.lmdb/"):
        ps.copy(tmp_path / "local.lmdb", "s3://b/two.lmdb", storage_options=server.options)
    assert not (server.root / "b" / "two.lmdb" / "data.mdb").exists()


def test_what_forbids_writing_is_said_before_anything_is_packed(
    server: ObjectServer, photographs: Path, tmp_path: Path
) -> None:
    """No bucket, no permission, a web server, options without a URL: one sentence, without a secret."""
    with pytest.raises(StoreNotFoundError, match="there is no bucket 'nowhere'"):
        ps.pack(photographs, "s3://nowhere/photos.lmdb", storage_options=server.options)
    server.write_faults = ["403"]
    with pytest.raises(StoreError, match="writing is not allowed") as caught:
        ps.pack(photographs, "s3://b/photos.lmdb", storage_options=server.options)
    assert "a-secret" not in str(caught.value)
    with pytest.raises(ArgumentError, match="nothing is written to web servers"):
        ps.pack(photographs, "https://example.org/photos.lmdb")
    with pytest.raises(ArgumentError, match="storage_options are those of a URL"):
        ps.pack(photographs, tmp_path / "local.lmdb", storage_options=server.options)
    assert server.written == []


def test_conversion_and_merge_write_to_urls(server: ObjectServer, photographs: Path, tmp_path: Path) -> None:
    """With their proof and report."""
    options: dict[str, Any] = {"storage_options": server.options}
    ps.pack(photographs, tmp_path / "a.lmdb")

    report = ps.convert(tmp_path / "a.lmdb", "s3://b/c.lmdb", **options)
    again = ps.convert(tmp_path / "a.lmdb", "s3://b/c.lmdb", **options)
    merged = ps.merge(
        [ps.open("s3://b/c.lmdb", **options), tmp_path / "a.lmdb"], "s3://b/m.lmdb", prefix=["x", "y"], **options
    )

    assert (report.store, report.ok, again.store_digest) == ("s3://b/c.lmdb", True, report.store_digest)
    with ps.open("s3://b/m.lmdb", **options) as store:
        assert len(store) == merged.records == 2 * report.records
    assert not list((tmp_path / "world" / "cache" / "penstock" / "uploads").iterdir())


def test_a_container_has_its_other_fields_there_too(server: ObjectServer, photographs: Path, tmp_path: Path) -> None:
    """Those of its sidecar pack: read by this process and by workers, taken away with a container that needs none."""
    options: dict[str, Any] = {"storage_options": server.options}
    ps.pack(photographs, tmp_path / "a.lmdb")
    url = "s3://b/c.tar"
    assert ps.convert(tmp_path / "a.lmdb", url, **options).ok

    with ps.open(url, **options) as there, ps.open(tmp_path / "a.lmdb") as here:
        assert (list(there.keys()), there.schema) == (list(here.keys()), here.schema)
        for a, b in zip(there, here, strict=True):
            assert (bytes(a.fields["image"]), a.fields["label"]) == (bytes(b.fields["image"]), b.fields["label"])
        loader = ps.DataLoader(ps.StoreDataset(there, fields=["label"]), 4, num_workers=1, workers="processes")
        assert sum(int(batch[0].sum()) for batch in loader) == here.column("label").sum()
    (find_sidecar(server.root / "b") / "data.mdb").write_bytes(b"not a pack" * 1000)
    with pytest.raises(StoreError, match=r"fields\.lmdb"):
        ps.open(url, cache=tmp_path / "other", **options)


def find_sidecar(bucket: Path) -> Path:
    """The folder of the one sidecar pack in a bucket."""
    (found,) = bucket.rglob("*fields.lmdb")
    return found


class Sent(Folder):
    """What this machine and the server have, each time that the server has written an object."""

    calls = frozenset()

    def read(self) -> State:
        """The files, without those that are fetched from the server."""
        return {name: held for name, held in super().read().items() if not name.startswith("cache/penstock/remote")}


@pytest.mark.parametrize("what", ["pack", pytest.param("copy", marks=pytest.mark.slow)])
def test_a_run_that_is_killed_after_any_object_sends_nothing_twice(
    server: ObjectServer, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The same call again sends what is missing, and the bytes are those of one run."""
    monkeypatch.setattr(uploads, "_FILES_AT_ONCE", 1)  # so that all is at rest when an object is written
    ps.pack(photographs, tmp_path / "local.lmdb")
    url, bucket = "s3://b/photos.lmdb", server.root / "b" / "photos.lmdb"

    def run(this: Run) -> int:
        there = set(read_files(bucket))
        server.written.clear()
        server.on_write = lambda _: this.look()
        if what == "pack":
            ps.pack(photographs, url, storage_options=server.options, workers=1)
        else:
            ps.copy(tmp_path / "local.lmdb", url, storage_options=server.options)
        assert not there & {name.removeprefix("b/photos.lmdb/") for name in server.written}
        return len(there)

    found = run_after_each_kill(Sent(tmp_path / "world"), run, only_once=True)

    assert set(found) == set(range(len(NAMES) + 1))
    assert read_files(bucket) == read_files(tmp_path / "local.lmdb")


def test_a_copy_has_the_same_bytes_in_every_direction(server: ObjectServer, photographs: Path, tmp_path: Path) -> None:
    """To a URL, between URLs, back, on this machine, and from a web server; the files beside a pack come along."""
    options: dict[str, Any] = {"storage_options": server.options}
    ps.pack(photographs, tmp_path / "a.lmdb")
    with web.serving(tmp_path) as pages:
        steps = [("a.lmdb", "s3://b/x.lmdb"), ("s3://b/x.lmdb", "s3://b/deep/y.lmdb"), ("s3://b/deep/y.lmdb", "z.lmdb")]
        steps += [("z.lmdb", "here.lmdb"), (f"{pages.url}/a.lmdb", "w.lmdb")]
        for src, dst in steps:
            ends = [each if "://" in each else tmp_path / each for each in (src, dst)]
            report = ps.copy(*ends, **(options if "s3://" in src + dst else {}))
            again = ps.copy(*ends, **(options if "s3://" in src + dst else {}))

            path = server.root / "b" / dst.removeprefix("s3://b/") if "://" in dst else tmp_path / dst
            assert read_files(path) == read_files(tmp_path / "a.lmdb")
            assert (report.copied_nbytes, again.copied_nbytes) == (report.nbytes, 0)
            assert (report.records, report.files) == (again.records, 4)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("ending", ["tar", "rec"])
def test_a_file_is_copied_with_what_lies_beside_it(
    server: ObjectServer, photographs: Path, tmp_path: Path, ending: str
) -> None:
    """A container with a sidecar pack, and an index of another ending, there and back."""
    if ending == "rec":
        images = (path.read_bytes() for path in sorted(photographs.rglob("*.jpg")))
        write_recordio(tmp_path / "photos.rec", (recordio_image(image, 1, n) for n, image in enumerate(images)))
    else:
        ps.convert(photographs, tmp_path / f"photos.{ending}")
    expected = {name: each for name, each in read_files(tmp_path).items() if name.startswith("photos.")}

    ps.copy(tmp_path / f"photos.{ending}", f"s3://b/p.{ending}", storage_options=server.options)
    ps.copy(f"s3://b/p.{ending}", tmp_path / "back" / f"photos.{ending}", storage_options=server.options)

    for name, content in read_files(tmp_path / "back").items():
        assert name.endswith(".npz") or content == expected.pop(name)  # the index is made anew
    assert all(name.endswith(".npz") for name in expected)
    assert ps.open(tmp_path / "back" / f"photos.{ending}").schema == ps.open(tmp_path / f"photos.{ending}").schema


def test_another_store_is_replaced_only_with_overwrite(server: ObjectServer, photographs: Path, tmp_path: Path) -> None:
    """Files of the old store that the new one lacks are removed; other files below a path are not."""
    ps.pack(photographs, tmp_path / "a.lmdb")
    ps.pack(write_photographs(tmp_path / "other", per_class=2), tmp_path / "b.lmdb", index="none")
    for dst in ("s3://b/x.lmdb", tmp_path / "x.lmdb"):
        options: dict[str, Any] = {"storage_options": server.options} if isinstance(dst, str) else {}
        ps.copy(tmp_path / "a.lmdb", dst, **options)

        with pytest.raises(ArgumentError, match=r"x.lmdb exists, and its records are others; overwrite=True"):
            ps.copy(tmp_path / "b.lmdb", dst, **options)
        ps.copy(tmp_path / "b.lmdb", dst, overwrite=True, **options)

        path = server.root / "b" / "x.lmdb" if isinstance(dst, str) else tmp_path / "x.lmdb"
        assert read_files(path) == read_files(tmp_path / "b.lmdb")


def test_a_killed_download_fetches_no_part_twice(
    server: ObjectServer, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that were written and noted are compared and not fetched again; a damaged one is."""
    ps.pack(photographs, tmp_path / "local.lmdb")
    ps.copy(tmp_path / "local.lmdb", "s3://b/x.lmdb", storage_options=server.options)
    noted = 0
    note = uploads.FileTarget.note

    def stop(self: uploads.FileTarget, name: str, entry: object) -> None:
        nonlocal noted
        note(self, name, entry)
        noted += 1
        if noted == 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(uploads.FileTarget, "note", stop)
        with pytest.raises(KeyboardInterrupt):
            ps.copy("s3://b/x.lmdb", tmp_path / "down.lmdb", storage_options=server.options)
    assert not (tmp_path / "down.lmdb").exists()

    report = ps.copy("s3://b/x.lmdb", tmp_path / "down.lmdb", storage_options=server.options)

    assert 0 < report.copied_nbytes < report.nbytes
    assert read_files(tmp_path / "down.lmdb") == read_files(tmp_path / "local.lmdb")
    assert not os.path.lexists(tmp_path / "down.lmdb.partial")


def test_a_pack_is_sent_shard_by_shard(server: ObjectServer, photographs: Path, tmp_path: Path) -> None:
    """Each with its seek tables, the manifest last; no more than the shard that is written lies on this machine."""
    options: dict[str, Any] = {"storage_options": server.options}
    ps.pack(photographs, tmp_path / "local.lmdb", shard_size="100KB")
    most = 0

    def count(_: str) -> None:
        nonlocal most
        folders = list((tmp_path / "world" / "cache" / "penstock" / "uploads").glob("*/*/*.lmdb"))
        most = max(most, len(folders))

    server.on_write = count
    ps.pack(photographs, "s3://b/photos.lmdb", shard_size="100KB", **options)
    server.on_write = None

    assert read_files(server.root / "b" / "photos.lmdb") == read_files(tmp_path / "local.lmdb")
    assert server.written[-1] == "b/photos.lmdb/manifest.json"
    assert most == 1
    assert sum(name.endswith("data.mdb") for name in server.written) > 2
    again = ps.pack(photographs, "s3://b/photos.lmdb", shard_size="100KB", **options)
    assert again.reused
    assert not list((tmp_path / "world" / "cache" / "penstock" / "uploads").iterdir())
    for dst in ("s3://b/copy.lmdb", tmp_path / "down.lmdb"):
        report = ps.copy("s3://b/photos.lmdb", dst, **options)
        path = server.root / "b" / "copy.lmdb" if isinstance(dst, str) else dst
        assert read_files(path) == read_files(tmp_path / "local.lmdb")
        assert report.records == again.records
    (server.root / "b" / "photos.lmdb" / "00001.lmdb" / "data.mdb").unlink()
    with pytest.raises(StoreNotFoundError, match=r"the shard 00001.lmdb, which its manifest names, is missing"):
        ps.copy("s3://b/photos.lmdb", tmp_path / "other.lmdb", **options)


def test_packs_below_a_url_are_joined_by_a_manifest(server: ObjectServer, photographs: Path, tmp_path: Path) -> None:
    """Several machines write packs below one URL; only the manifest is written when they are merged."""
    options: dict[str, Any] = {"storage_options": server.options}
    parts = []
    for name in sorted(each.name for each in photographs.iterdir())[:2]:
        classes = sorted(each.name for each in photographs.iterdir())
        for other in classes:
            (tmp_path / name / other).mkdir(parents=True)
        for image in (photographs / name).iterdir():
            (tmp_path / name / name / image.name).write_bytes(image.read_bytes())
        ps.pack(tmp_path / name, f"s3://b/all.lmdb/{name}.lmdb", classes=classes, **options)
        parts.append(ps.open(f"s3://b/all.lmdb/{name}.lmdb", **options))
    server.written.clear()

    report = ps.merge(parts, "s3://b/all.lmdb", **options)
    again = ps.merge(parts, "s3://b/all.lmdb", **options)

    assert [name for name in server.written if not name.endswith(".upload")] == ["b/all.lmdb/manifest.json"]
    assert (report.reused, again.reused) == (False, True)
    with ps.open("s3://b/all.lmdb", **options) as store:
        assert list(store.keys()) == [key for part in parts for key in part.keys()]  # noqa: SIM118  # a store is no mapping


@pytest.mark.parametrize("page", ["first", "middle", "last"])
def test_verify_says_which_page_of_an_object_is_damaged(
    server: ObjectServer, photographs: Path, tmp_path: Path, page: str
) -> None:
    """The bytes of the place are compared, and not those of the cache; answers that came wrong are no damage."""
    options: dict[str, Any] = {"storage_options": server.options}
    ps.pack(photographs, "s3://b/x.lmdb", **options)
    with ps.open("s3://b/x.lmdb", **options) as store:
        store.read(range(len(store)))  # the cache has all of it
    server.faults = ["", "wrong"] * 4
    assert ps.verify("s3://b/x.lmdb", **options).ok
    server.faults = []
    path = server.root / "b" / "x.lmdb" / "data.mdb"
    held, about = bytearray(path.read_bytes()), path.stat()
    at = {"first": 40, "middle": len(held) // 2, "last": len(held) - 100}[page]
    held[at] ^= 1
    path.write_bytes(held)
    local = ps.verify(path.parent)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))

    for cache in (None, tmp_path / "empty"):
        found = ps.verify("s3://b/x.lmdb", cache=cache, **options)

        assert found.problems == local.problems
        assert not found.ok


def test_commands_say_how_much_they_read(
    server: ObjectServer, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copy, verify, info and show of a URL; credentials are those of the environment."""
    for name, value in server.options.items():
        monkeypatch.setenv({"endpoint": "AWS_ENDPOINT_URL"}.get(name, f"AWS_{name.upper()}"), str(value))
    ps.pack(photographs, tmp_path / "a.lmdb")
    runner = CliRunner()

    copied = runner.invoke(app, ["copy", str(tmp_path / "a.lmdb"), "s3://b/a.lmdb"])
    outputs = [
        runner.invoke(app, [*command.split(), "s3://b/a.lmdb"])
        for command in ("verify", "info", f"show -n 2 --output {tmp_path / 'sheet.png'}")
    ]

    assert "4 files, " in copied.stderr
    assert "to copy from lmdb://" in copied.stderr
    assert "s3://b/a.lmdb: 13 records from lmdb://" in copied.stdout
    assert [output.exit_code for output in (copied, *outputs)] == [0] * 4
    assert " to read, whatever is in the cache" in outputs[0].stderr
    assert all(" to read, less what is in the cache" in output.stderr for output in outputs[1:])


def test_the_command_line_knows_sharded_packs_and_folders(
    server: ObjectServer, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sizes are those of all shards, and of all images; the cache lists a sharded pack once."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    runner, cache = CliRunner(), str(tmp_path / "folder")
    ps.pack(photographs, "s3://b/p.lmdb", shard_size=60_000)
    shutil.copytree(photographs, server.root / "b" / "images")
    shards = json.loads((server.root / "b" / "p.lmdb" / "manifest.json").read_text())["shards"]
    size = format_bytes(sum(shards["nbytes"]))

    warmed = runner.invoke(app, ["cache", "warm", "s3://b/p.lmdb", "--cache", cache])
    listed = runner.invoke(app, ["cache", "info", cache])
    shown = [
        runner.invoke(app, ["info", url]) for url in ("s3://b/p.lmdb", "s3://b/images", "s3://b/p.lmdb/00000.lmdb")
    ]
    cleared = runner.invoke(app, ["cache", "clear", "s3://b/p.lmdb", "--cache", cache])

    assert len(shards["names"]) > 2
    assert f"s3://b/p.lmdb: {size}, of which " in warmed.stdout
    assert ": 1 store, " in listed.stdout
    assert f" of {size} (100%)" in listed.stdout
    assert [each.exit_code for each in shown] == [0, 0, 0], shown
    assert all(" to read, less what is in the cache" in each.stderr for each in shown)
    assert "deleted 1 store, " in cleared.stdout
    assert not list(Path(cache).glob("*/about.json"))


def test_a_bucket_that_is_not_there_is_named(server: ObjectServer, photographs: Path) -> None:
    """By the URL that was given, before anything is read."""
    with pytest.raises(StoreNotFoundError, match="no bucket 'other'") as caught:
        ps.pack(photographs, "s3://other/p.lmdb", storage_options=server.options)
    assert caught.value.where["store"] == "s3://other/p.lmdb"


def test_a_place_that_does_not_answer_is_said_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """By reading, which is repeated for a second: what writes is repeated for minutes by the library."""
    monkeypatch.setattr(places, "_WAIT", (0.001, 0.002))
    options = {"endpoint": "http://127.0.0.1:9", "access_key_id": "a-key", "secret_access_key": "a-secret"}
    upload = uploads.Upload("s3://b/photos.lmdb", StorageOptions({**options, "region": "us-east-1"}))

    with pytest.raises(StoreError, match="it cannot be read, after 4 attempts: the connection was refused"):
        upload.check()
