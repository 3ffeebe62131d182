"""Files of a store as numbered sources of bytes: each is opened once, and keeps no descriptor."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.stores.common.mapped_files import MappedFiles


@pytest.fixture
def files(tmp_path: Path) -> MappedFiles:
    """Three files, of which the last one is empty."""
    for name, content in (("a", b"0123456789"), ("b", b"abc"), ("c", b"")):
        (tmp_path / name).write_bytes(content)
    return MappedFiles([tmp_path / name for name in "abc"])


def test_bytes_of_a_file_are_read_without_a_descriptor(files: MappedFiles, tmp_path: Path) -> None:
    """A view stays readable when its file is deleted; nothing of this process leads to the file."""
    view = files.view(0, 2, 3)
    (tmp_path / "a").unlink()

    assert (bytes(view), bytes(files.whole(0)), bytes(files.whole(2))) == (b"234", b"0123456789", b"")
    assert view.readonly
    assert not [link for link in Path("/proc/self/fd").iterdir() if str(link.resolve()).startswith(str(tmp_path))]


@pytest.mark.parametrize(("offset", "nbytes"), [(-1, 2), (8, 3), (2, -1)])
def test_a_range_outside_its_file_is_refused(files: MappedFiles, offset: int, nbytes: int) -> None:
    """The error names the file, for a view and for ranges."""
    for read in (files.view, files.ranges):
        with pytest.raises(ValueError, match="must be inside a, which has 10"):
            read(0, offset, nbytes)


def test_announced_ranges_outside_their_files_are_left_out(files: MappedFiles) -> None:
    """What is announced is only a hint: nothing is refused, and what waits for it is called at once."""
    assert files.announce([(0, 0, 10), (1, 2, 2), (1, -1, 1), (2, 0, 0)]) >= 0
    assert files.source(1).submit(lambda: 5).result() == 5


def test_a_file_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """A folder cannot be mapped; the error is that of the system."""
    with pytest.raises(OSError, match="regular file"):
        MappedFiles([tmp_path]).source(0)
