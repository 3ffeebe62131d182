"""What a cache folder has: shown, deleted, and fetched beforehand."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import StoreError
from penstock.stores.remote import cached_stores
from penstock.stores.remote.cache import CacheFolder
from penstock.stores.remote.cached_stores import clear, list_cached
from tests.servers.web import WebServer, serving
from tests.test_cli import run

pytest.importorskip("obstore")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    """A server of a pack of 120 images of 8 kB."""
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for number in range(120):
        pixels = rng.integers(0, 256, (50, 50, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number:03}.png")
    (tmp_path / "served").mkdir()
    ps.pack(tmp_path / "images", tmp_path / "served" / "photos.lmdb")
    with serving(tmp_path / "served") as found:
        yield found


def test_a_warmed_store_is_read_without_requests_for_its_records(server: WebServer, tmp_path: Path) -> None:
    """A second run fetches nothing; the copies are equal to the store; the list says that all of it is there."""
    url, cache = f"{server.url}/photos.lmdb", tmp_path / "cache"

    first = run("cache", "warm", url, "--cache", cache)
    asked = server.ranges
    with ps.open(url, cache=cache):
        opening = server.ranges - asked
    asked = server.ranges
    second = run("cache", "warm", url, "--cache", cache)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "are to be fetched" in first.stdout
    assert second.stdout.splitlines()[-1] == f"{url}: 0 bytes fetched"
    assert server.ranges - asked == opening
    with ps.open(url, cache=cache) as store, ps.open(server.root / "photos.lmdb") as local:
        asked = server.ranges  # to open it asks for the ends of each object
        pairs = zip(store.read(range(120)), local.read(range(120)), strict=True)
        assert all(bytes(a.fields["image"]) == bytes(b.fields["image"]) for a, b in pairs)
    assert server.ranges == asked
    (said,) = list_cached(cache)
    assert (said.url, said.store_nbytes) == (
        url,
        sum(f.stat().st_size for f in (server.root / "photos.lmdb").iterdir() if f.name in {"data.mdb", "pages.xxh3"}),
    )
    assert said.share > 0.9


def test_as_much_as_fits_is_fetched(server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What part that is, is said before and after; the rest of the store is not fetched."""
    monkeypatch.setattr(cached_stores, "_BATCH", 8)
    monkeypatch.setattr(cached_stores, "_AHEAD", 1)
    url, cache = f"{server.url}/photos.lmdb", tmp_path / "cache"

    said = run("cache", "warm", url, "--cache", cache, "--cache-size", "600 kB")

    assert said.returncode == 0, said.stderr
    assert "; the cache has room for" in said.stdout
    (share,) = re.findall(r"full: about (\d+)% of the records are in it", said.stdout)
    assert 20 < int(share) < 90
    (each,) = list_cached(cache)
    assert each.nbytes < 700_000 < each.store_nbytes


def test_the_list_has_no_secrets_and_is_json(server: WebServer, tmp_path: Path) -> None:
    """Bytes, part, version and last use of each store; a folder that does not exist has none."""
    cache = tmp_path / "cache"
    options = {"default_headers": {"authorization": "s3cret"}}
    with ps.open(f"{server.url}/photos.lmdb", cache=cache, storage_options=options) as store:
        store.read([60])

    text, report, nothing = (
        run("cache", "info", cache),
        run("cache", "info", cache, "--report", "json"),
        run("cache", "info", tmp_path / "none"),
    )

    assert (text.returncode, report.returncode, nothing.returncode) == (0, 0, 0)
    assert "s3cret" not in text.stdout + report.stdout
    found = json.loads(report.stdout)
    (each,) = found["stores"]
    assert each["url"] == f"{server.url}/photos.lmdb"
    assert 0 < each["nbytes"] == found["nbytes"] < each["store_nbytes"]
    assert 0 < each["share"] < 1
    assert f"{each['url']}  version {each['version']}: " in text.stdout
    assert "0 stores, 0 bytes" in nothing.stdout


def test_what_is_deleted_is_chosen(tmp_path: Path) -> None:
    """By URL with those below it, by age, or all; other files stay; without a choice nothing is deleted."""
    cache = CacheFolder(tmp_path / "cache", 10**9)
    urls = ["http://a/x", "http://a/x/00000.lmdb", "http://a/xy", "http://b"]
    for url in urls:
        folder = cache.make_folder(url, "1")
        (folder / "data").write_bytes(b"1" * 5000)
    old = cache.make_folder("http://b", "1")
    os.utime(old / "about.json", (time.time() - 8 * 86400,) * 2)
    (cache.path / "mine").mkdir()
    (cache.path / "mine" / "about.json").write_text("{}")
    (cache.path / ("0" * 32)).symlink_to(cache.path / "mine")

    refused = [run("cache", "clear", *given, "--cache", cache.path) for given in ((), ("http://a", "--all"))]
    refused.append(run("cache", "clear", "--older-than", "7 weeks", "--cache", cache.path))
    assert [each.returncode for each in refused] == [2, 2, 2]
    assert sorted(each.url for each in list_cached(cache.path)) == urls
    assert run("cache", "clear", "--older-than", "7d", "--cache", cache.path).returncode == 0
    assert sorted(each.url for each in list_cached(cache.path)) == urls[:3]
    assert sorted(each.url for each in clear(cache.path, "http://a/x/")) == urls[:2]
    assert "deleted 1 store" in run("cache", "clear", "--all", "--cache", cache.path).stdout
    assert (cache.path / "mine" / "about.json").exists()


def test_a_reader_keeps_what_it_has_when_the_cache_is_cleared(server: WebServer, tmp_path: Path) -> None:
    """Records that it had are the same, and the others are fetched."""
    with (
        ps.open(f"{server.url}/photos.lmdb", cache=tmp_path / "cache") as store,
        ps.open(server.root / "photos.lmdb") as local,
    ):
        views = store.blobs("image", range(60))
        assert len(clear(tmp_path / "cache")) == 1
        assert list_cached(tmp_path / "cache") == []
        assert [bytes(view) for view in views] == [bytes(view) for view in local.blobs("image", range(60))]
        assert [bytes(view) for view in store.blobs("image", range(120))] == [
            bytes(view) for view in local.blobs("image", range(120))
        ]


def test_copies_are_for_their_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are made with mode 0700; one that others may read is corrected, one of another user is refused."""
    cache = CacheFolder(tmp_path / "cache", 10**9)
    folder = cache.make_folder("http://a", "1")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (cache.path, folder)} == {0o700}
    folder.chmod(0o755)

    assert cache.make_folder("http://a", "1") == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    owner = folder.stat().st_uid
    if owner == 0:
        os.chown(folder, 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(StoreError, match=r"belongs to another user.*cache= names a folder of your own"):
        cache.make_folder("http://a", "1")
