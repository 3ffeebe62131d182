"""Where a store is: paths, URLs of servers, sidecar files, and text without passwords."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import ArgumentError, StoreError
from penstock.stores import find
from penstock.stores.images.store import FilesStore
from penstock.stores.location import Location

SERVER = "mongodb://ann:pass%2Fword@db1:27017,db2:27018/pets/photos?replicaSet=a&authToken=xyz&batch=5"


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is that of the current folder, and stays there when the current folder changes."""
    monkeypatch.chdir(tmp_path)
    location = Location.from_path("files", "photos/")

    monkeypatch.chdir("/")

    assert location.is_local
    assert location.local_path == tmp_path / "photos"
    assert str(location) == f"files://{tmp_path}/photos"
    assert os.fspath(location) == str(tmp_path / "photos")


def test_a_path_may_contain_what_a_url_gives_a_meaning(tmp_path: Path) -> None:
    """Question marks, percent signs, at signs and colons belong to the name of a folder."""
    name = "a?b=c%20d@e:80"
    (tmp_path / name).mkdir()
    (tmp_path / name / "1.jpg").write_bytes(b"\xff\xd8")

    with ps.open(tmp_path / name) as store, ps.open(store.url) as again:
        assert again.location == store.location
        assert again.location.local_path == tmp_path / name


def test_a_url_of_a_server_has_parts() -> None:
    """Scheme, host with port, path, query and credentials are taken apart, and joined again for the library."""
    location = Location.from_url(SERVER)

    assert (location.scheme, location.host, location.path) == ("mongodb", "db1:27017,db2:27018", "pets/photos")
    assert location.parameters == {"replicaSet": "a", "authToken": "xyz", "batch": "5"}
    assert not location.is_local
    assert location.exists()
    assert location.to_url() == SERVER


@pytest.mark.parametrize("text", ["mongodb:///pets", "mongodb://", "mongodb://ann:secret@/pets"])
def test_a_url_without_a_host_is_refused(text: str) -> None:
    """The URL of a server names a server; the error does not print the password."""
    with pytest.raises(ArgumentError, match="must name a host") as caught:
        Location.from_url(text)

    assert "secret" not in str(caught.value)


def test_no_text_has_a_password() -> None:
    """Neither str(), nor repr(), nor a pickle prints credentials; the library gets them also after pickling."""
    location = Location.from_url(SERVER)

    pickled = pickle.dumps(location)

    assert str(location) == "mongodb://db1:27017,db2:27018/pets/photos?replicaSet=a&authToken=***&batch=5"
    for text in (str(location), repr(location), f"{location}", pickled.decode("latin-1")):
        assert not any(secret in text for secret in ("ann", "pass%2Fword", "xyz"))
    assert pickle.loads(pickled) == location
    assert pickle.loads(pickled).to_url() == SERVER


def test_a_server_has_no_path_on_this_machine() -> None:
    """A store of files that is given a server says what it must be given."""
    with pytest.raises(ArgumentError, match="must be a path on this machine, got 'mongodb://db1"):
        FilesStore(Location.from_url(SERVER))


def test_sidecar_files_lie_in_a_folder_or_beside_a_file(tmp_path: Path) -> None:
    """A folder has hidden files in it, a file has files with its name and an ending."""
    (tmp_path / "train.h5").touch()

    assert Location.from_path("files", tmp_path).sidecar("image.index") == tmp_path / ".image.index"
    assert Location.from_path("hdf5", tmp_path / "train.h5").sidecar("label.npy") == tmp_path / "train.h5.label.npy"


def test_sidecar_files_of_a_server_lie_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each store of a server has a folder of its own, the same for every user name and password."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = Location.from_url(SERVER).sidecar("image.index")

    assert first.is_relative_to(tmp_path / "penstock")
    assert first == Location.from_url(SERVER.replace("ann:", "bob:")).sidecar("image.index")
    assert first != Location.from_url(SERVER.replace("pets", "cars")).sidecar("image.index")
    assert not first.parent.exists()


def test_locations_that_overlap(tmp_path: Path) -> None:
    """A folder overlaps with what is in it, by whatever link; servers overlap where host and path are equal."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    folder, inside, other = (Location.from_path("files", tmp_path / name) for name in ("a", "link/b", "c"))
    server = Location.from_url(SERVER)

    assert folder.overlaps(inside)
    assert inside.overlaps(folder)
    assert not folder.overlaps(other)
    assert not server.overlaps(folder)
    assert server.overlaps(Location.from_url("mongodb://db1:27017,db2:27018/pets/photos"))


def test_a_broken_link_exists(tmp_path: Path) -> None:
    """A broken link is something at the path: nothing is written over it."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    assert Location.from_path("lmdb", tmp_path / "link").exists()
    assert not Location.from_path("lmdb", tmp_path / "none").exists()


def test_a_location_is_opened(tmp_path: Path) -> None:
    """open() and find() take a location as it is, whatever lies there."""
    (tmp_path / "1.jpg").write_bytes(b"\xff\xd8")
    location = FilesStore.locate(tmp_path)

    assert find(location) == (FilesStore, location)
    with ps.open(location) as store:
        assert store.location is location
    with pytest.raises(StoreError):
        ps.open(Location.from_path("lmdb", tmp_path))
