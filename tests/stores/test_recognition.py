"""Kinds of stores are excluded by a few bytes and names, before they are imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.stores import STORES
from penstock.stores.hdf5.store import Hdf5Store
from penstock.stores.recordio.format import MAGIC_BYTES
from tests.stores.written import recordio_image, write_recordio


def list_imported(path: Path) -> set[str]:
    """The modules of ``penstock.stores`` that opening a store imports, in a process of its own."""
    program = (
        "import sys; from penstock.stores import open; open(sys.argv[1]);"
        "print(*(name.removeprefix('penstock.stores.') for name in sys.modules if name.startswith('penstock.stores.')))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("packed", [False, True])
def test_opening_imports_no_kind_that_cannot_be_there(tmp_path: Path, packed: bool) -> None:
    """A pack and a folder of images are opened without the modules of formats that are files or servers."""
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(folder / "a.png")
    if packed:
        ps.pack(folder, tmp_path / "photos.lmdb")

    imported = list_imported(tmp_path / "photos.lmdb" if packed else folder)

    families = {name.partition(".")[0] for name in imported}
    assert ("lmdb_pack.store" in imported) == packed
    assert ("images.store" in imported) != packed
    assert not families & {"recordio", "hdf5", "mongo"}
    assert not imported & {"lmdb.layout", "shards.beton", "shards.mds", "arrow.lance", "arrow.files"}
    assert not packed or not imported & {"tar.store", "tfrecord.store", "arrow.parquet"}


def test_a_file_of_each_magic_may_be_of_its_kind(tmp_path: Path) -> None:
    """The bytes compared are those of the formats; other files are excluded."""
    contents = {"recordio": MAGIC_BYTES + bytes(8), "lmdb": bytes(16) + b"\xde\xc0\xef\xbe" + bytes(8)}
    for kind, content in contents.items():
        (tmp_path / kind).write_bytes(content)

    assert all(STORES.row(kind).may_be_at(str(tmp_path / kind)) for kind in contents)
    assert not STORES.row("recordio").may_be_at(str(tmp_path / "lmdb"))
    assert not STORES.row("lmdb").may_be_at(str(tmp_path / "recordio"))


def test_recognising_a_fifo_does_not_wait(tmp_path: Path) -> None:
    """A FIFO is no container, and no kind opens it to wait for a writer."""
    os.mkfifo(tmp_path / "fifo")

    assert not Hdf5Store.recognises(str(tmp_path / "fifo"))
    with pytest.raises(ps.StoreFormatError, match="neither a folder of images nor a pack"):
        ps.open(tmp_path / "fifo")


@pytest.mark.parametrize(
    ("name", "advice"),
    [("a.csv", "it is a table: pack it first"), ("a.XLSX", "save it as CSV UTF-8"), ("a.json", "--format coco")],
)
def test_a_file_that_is_packed_first_is_refused_with_the_way(name: str, advice: str, tmp_path: Path) -> None:
    """Also where options of a table are given: a spreadsheet is none."""
    (tmp_path / name).write_text("a,b")

    with pytest.raises(ps.StoreFormatError, match=advice):
        ps.open(tmp_path / name)
    with pytest.raises(ps.PenstockError, match=r"has no rows|CSV UTF-8|--format coco"):
        ps.pack(tmp_path / name, tmp_path / "p.lmdb", root=tmp_path)


def test_a_folder_that_contains_a_container_is_refused_with_its_name(tmp_path: Path) -> None:
    """A folder with a container and a README, but without images: the error says what to open."""
    (tmp_path / "photos").mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "photos" / "a.png")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "README.md").write_text("photos")
    write_recordio(tmp_path / "set" / "größe.rec", [recordio_image((tmp_path / "photos" / "a.png").read_bytes())])

    with pytest.raises(ps.StoreFormatError, match=r"'größe\.(rec|idx)' in it looks like a store of kind 'recordio'"):
        ps.open(tmp_path / "set")


@pytest.mark.parametrize("name", ["a.beton", "a.rec", "a.TFRECORD", "a.tar.gz", "a.zip/"])
def test_nothing_is_written_under_the_name_of_another_format(tmp_path: Path, name: str) -> None:
    """An ending of a format that is not written is refused, unless the kind is given; the error lists the others."""
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a.png")
    path = os.path.join(tmp_path, "out", name)  # noqa: PTH118  # a Path has no slash at its end

    with pytest.raises(ps.ArgumentError, match=r"are not written; .*\.lmdb, \.mdb, .*or give the kind: lmdb://"):
        ps.pack(tmp_path, path)
    assert not (tmp_path / "out").exists()
    assert ps.pack(tmp_path, f"lmdb://{tmp_path.parent}/{tmp_path.name}-{name}").records == 1
