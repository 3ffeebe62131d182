"""Writers of files on a disk that is full: an error of ours, and the same call resumes once there is space."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.stores.common.regular_file import replacing_file


@contextmanager
def limited_files(nbytes: int) -> Iterator[None]:
    """No file of this process may become larger, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve images of 100 kB."""
    rng = np.random.default_rng(5)
    (tmp_path / "photos").mkdir()
    for number in range(12):
        pixels = rng.integers(0, 256, (180, 190, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number:02}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize(("ending", "needs"), [("tar", ""), ("h5", "h5py"), ("parquet", "pyarrow")])
def test_a_full_disk_is_an_error_and_the_same_call_resumes(
    photos: Path, tmp_path: Path, ending: str, needs: str
) -> None:
    """The error says that the store cannot be written and what to do; later, the store equals an undisturbed one."""
    if needs:
        pytest.importorskip(needs)
    with limited_files(300_000), pytest.raises(ps.StoreError, match=r"cannot be written: .*free some space.*to resume"):
        ps.pack(photos, tmp_path / f"a.{ending}")

    ps.pack(photos, tmp_path / f"a.{ending}")
    ps.pack(photos, tmp_path / f"b.{ending}")

    with ps.open(tmp_path / f"a.{ending}") as resumed, ps.open(tmp_path / f"b.{ending}") as whole:
        assert len(resumed) == 12
        assert [bytes(record.fields["image"]) for record in resumed] == [
            bytes(record.fields["image"]) for record in whole
        ]
        assert list(resumed.keys()) == list(whole.keys())
    assert [path.name for path in tmp_path.iterdir() if ".partial" in path.name] == []


def test_others_may_read_a_file_that_is_replaced(tmp_path: Path) -> None:
    """An index beside shared data is read by those who may read the data: the umask decides, as for any file."""
    (tmp_path / "plain").touch()

    with replacing_file(tmp_path / "index") as file:
        file.write(b"content")

    assert (tmp_path / "index").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert sorted(each.name for each in tmp_path.iterdir()) == ["index", "plain"]


@pytest.mark.parametrize("nbytes", [0, 50, 4096, 100_000])
def test_a_copy_to_a_full_disk_is_an_error_that_names_it_and_may_be_made_again(
    photos: Path, tmp_path: Path, nbytes: int
) -> None:
    """Of a pack, a file and a folder: nothing half copied opens, and later the copy is made."""
    ps.pack(photos, tmp_path / "a.lmdb")
    ps.pack(photos, tmp_path / "a.tar")
    for source in (tmp_path / "a.lmdb", tmp_path / "a.tar", photos):
        copy = tmp_path / "copies" / source.name
        with limited_files(nbytes), pytest.raises(ps.StoreError, match=r"cannot be made: .*free some space") as caught:
            ps.copy(source, copy)
        assert str(copy) in str(caught.value)
        with pytest.raises(ps.StoreError):
            ps.open(copy)

        assert ps.copy(source, copy).records == 12


def test_a_pack_for_which_there_is_no_byte_is_an_error(photos: Path, tmp_path: Path) -> None:
    """Also where its first file, which locks it, cannot be written; that file does not stay."""
    with limited_files(0), pytest.raises(ps.StoreError, match=r"cannot be written: .*free some space"):
        ps.pack(photos, tmp_path / "a.lmdb")

    assert not (tmp_path / "a.lmdb").exists()
    assert ps.pack(photos, tmp_path / "a.lmdb").records == 12
