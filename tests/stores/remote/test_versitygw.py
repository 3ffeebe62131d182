"""An independent server of S3's protocol, versitygw: packs are written to it, copied, read, verified, replaced."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import StoreError, StoreNotFoundError
from penstock.pack import verify
from tests.servers.go_programs import build_go
from tests.servers.starting import PATIENCE_S, hold_port

obstore = pytest.importorskip("obstore")
S3Store = pytest.importorskip("obstore.store").S3Store
pytestmark = pytest.mark.slow


@pytest.fixture(name="options")
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The ``storage_options`` of its clients; its one bucket is a folder."""
    program = build_go("versitygw")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "buckets" / "bucket").mkdir(parents=True)
    (tmp_path / "meta").mkdir()
    keys = ["--access", "a-key", "--secret", "a-secret"]
    folders = ["--sidecar", str(tmp_path / "meta"), str(tmp_path / "buckets")]
    with hold_port() as held, (tmp_path / "log").open("wb") as log:
        address = ("127.0.0.1", held.getsockname()[1])
        command = [program, "--port", "{}:{}".format(*address), *keys, "posix", *folders]
        with subprocess.Popen(command, stdout=log, stderr=log) as server:
            try:
                wait_for(server, address, tmp_path / "log")
                given = {"region": "us-east-1", "access_key_id": "a-key", "secret_access_key": "a-secret"}
                yield {"endpoint": "http://{}:{}".format(*address), **given}
            finally:
                server.kill()


def wait_for(server: subprocess.Popen[bytes], address: tuple[str, int], log: Path) -> None:
    """Wait until a server listens, which does not say when."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with socket.socket() as probe:
            if not probe.connect_ex(address):
                return
        said = log.read_text(errors="replace")[-2000:]
        assert server.poll() is None, f"versitygw ended: {said}"
        assert time.monotonic() < deadline, f"versitygw does not listen at {address} after {PATIENCE_S} s: {said}"
        time.sleep(0.05)


@pytest.fixture(name="images")
def draw(tmp_path: Path) -> Path:
    """Sixty pictures of noise in two classes."""
    generator = np.random.default_rng(0)
    for number in range(60):
        path = tmp_path / "images" / f"{number % 2}" / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    return tmp_path / "images"


@pytest.mark.parametrize("sharded", [False, True])
def test_packs_go_there_and_come_back(options: dict[str, Any], images: Path, tmp_path: Path, sharded: bool) -> None:
    """Written, verified, read in a shuffled order by workers, copied to this machine: the same bytes."""
    url = "s3://bucket/set/photos.lmdb"
    given: dict[str, Any] = {"storage_options": options}
    sizes: dict[str, Any] = {"shard_size": 200_000} if sharded else {}
    ps.pack(images, tmp_path / "local.lmdb", **sizes)
    report = ps.pack(images, url, **sizes, **given)

    assert report.records == 60
    assert ps.pack(images, url, **sizes, **given).reused
    assert verify(url, **given).ok
    with ps.open(url, cache=tmp_path / "cache", **given) as store, ps.open(tmp_path / "local.lmdb") as local:
        assert (len(store), store.fingerprint()) == (60, local.fingerprint())
        loader = ps.DataLoader(ps.StoreDataset(store, fields=["label"]), 8, shuffle=True, num_workers=2)
        assert sum(int(batch[0].sum()) for batch in loader) == 30
        for here, there in zip(local, store, strict=True):
            assert bytes(here.fields["image"]) == bytes(there.fields["image"])
    ps.copy(url, tmp_path / "copied.lmdb", **given)
    with ps.open(tmp_path / "copied.lmdb") as store:
        assert sum(1 for _ in store) == 60


def test_folders_and_shards_are_listed(options: dict[str, Any], images: Path, tmp_path: Path) -> None:
    """A folder of images, and tar shards by a pattern."""
    ps.pack(images, tmp_path / "photos.tar")
    names = {f"images/{path.relative_to(images)}": path for path in images.rglob("*.png")}
    names |= {f"photos-{number}.tar": tmp_path / "photos.tar" for number in range(2)}
    bucket = S3Store("bucket", client_options={"allow_http": True}, **options)
    for name, path in names.items():
        obstore.put(bucket, name, path.read_bytes())
    given: dict[str, Any] = {"storage_options": options, "cache": tmp_path / "cache"}

    with ps.open("s3://bucket/images", **given) as folder, ps.open(images) as local:
        assert list(folder.keys()) == list(local.keys())
        assert bytes(folder[7].fields["image"]) == bytes(local[7].fields["image"])
    with ps.open("s3://bucket/photos-*.tar", **given) as shards:
        assert len(shards) == 120


def test_what_is_wrong_is_said(options: dict[str, Any], images: Path, tmp_path: Path) -> None:
    """No bucket, no object, a wrong key, a pack that was replaced while it was open."""
    given: dict[str, Any] = {"cache": tmp_path / "cache", "cache_size": 0}
    with pytest.raises(StoreNotFoundError, match=r"no bucket|no object"):
        ps.open("s3://other/photos.lmdb", storage_options=options, **given)
    with pytest.raises(StoreNotFoundError, match="no object"):
        ps.open("s3://bucket/photos.lmdb", storage_options=options, **given)
    with pytest.raises(StoreError, match=r"not allowed|cannot be read"):
        ps.open("s3://bucket/photos.lmdb", storage_options={**options, "secret_access_key": "wrong"}, **given)
    url = "s3://bucket/photos.lmdb"
    ps.pack(images, url, storage_options=options)
    with ps.open(url, storage_options=options, **given) as store:
        Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(images / "0" / "00.png")
        ps.pack(images, url, storage_options=options, overwrite=True)
        with pytest.raises(StoreError, match="replaced while it was open"):
            store.read(range(60))
