"""URLs of places that are not read, or not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.cli import main
from penstock.errors import ArgumentError
from penstock.paths import FolderListings, find_named_file, refuse_remote
from penstock.stores.tar.stream import TarStream

URLS = [
    "https://ann:secret@host/photos.csv?signature=secret",
    "S3://ann:secret@bucket/{000..009}.tar",
    Path("gs://ann:secret@bucket/photos"),
]
_REFUSED = r"places are not (read|written) here|no user and password|must all be paths"
USES: dict[str, Callable[[str | Path], object]] = {
    "open": ps.open,
    "open several": lambda url: ps.open(["a.tar", url]),
    "stream": lambda url: TarStream(str(url)),
    "pack": lambda url: ps.pack(url, "p.lmdb"),
    "root": lambda url: ps.pack("table.csv", "p.lmdb", root=url),
    "destination": lambda url: ps.pack([b"x"], url),
    "annotations": lambda url: ps.pack("photos", "p.lmdb", annotations=url),
    "images": lambda url: ps.pack(url, "p.lmdb", format="coco"),
}


@pytest.mark.parametrize("url", URLS, ids=["https", "S3", "Path"])
@pytest.mark.parametrize("use", USES)
def test_remote_places_are_refused_without_secrets(use: str, url: str | Path) -> None:
    """The error says that they are not read there, or not with a password; it shows neither password nor query."""
    with pytest.raises(ArgumentError, match=_REFUSED) as caught:
        USES[use](url)
    assert "secret" not in str(caught.value)
    is_writable = use == "destination" and isinstance(url, str)
    assert ("storage_options" in str(caught.value)) >= is_writable
    assert ("written" in str(caught.value)) == (use == "destination" and not is_writable)


def test_the_command_line_refuses_remote_places(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a traceback, password or query."""
    monkeypatch.setattr("sys.argv", ["penstock", "info", "ftps://ann:secret@host/a.tar?token=secret"])

    with pytest.raises(SystemExit):
        main()
    printed = "".join(capsys.readouterr())

    assert "remote places are not read here" in printed
    assert "secret" not in printed


@pytest.mark.parametrize("given", ["mongodb://ann:pw@host/x", "lmdb://p.lmdb", "s3/x", "a/s3:/x", 7, None, ["a", b"b"]])
def test_other_paths_and_urls_are_left(given: object) -> None:
    """Schemes of stores, paths, and what is no path, are for others to judge."""
    refuse_remote(given)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a/1.jpg", "a/1.jpg"),
        (" .\\a\\1.JPG ", "a/1.jpg"),
        ("C:\\x\\a\\1.jpg", "a/1.jpg"),
        ("/x/a/1.jpg", "a/1.jpg"),
        ("\\\\host\\share\\2.jpg", "2.jpg"),
        ("x/a/1.jpg", None),
        ("1.jpg", None),
        ("a", None),
        ("", None),
        ("C:\\", None),
        ("a/\0.jpg", None),
        ("/" + "x/" * 1_000_000 + "2.jpg", None),
        ("/" + "x/" * 2000 + "2.jpg", "2.jpg"),
    ],
)
def test_a_path_of_another_system_names_a_file(text: str, found: str | None, tmp_path: Path) -> None:
    """A relative path is whole; of an absolute one the longest end that is a file is taken."""
    (tmp_path / "a").mkdir()
    for name in ("a/1.jpg", "2.jpg"):
        (tmp_path / name).touch()

    expected = None if found is None else tmp_path / found

    assert find_named_file(tmp_path, text) == expected
    assert find_named_file(tmp_path, text, FolderListings()) == expected
