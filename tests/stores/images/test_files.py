"""The files store: order, classes, what is no image, and files that are not what they were."""

from __future__ import annotations

import errno
import os
import re
import socket
import threading
from pathlib import Path

import pytest

from penstock.errors import RecordIndexError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.images.store import FilesStore


def put(root: Path, *names: str) -> None:
    """Write files of some bytes (no decoder looks at them here)."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"bytes of " + name.encode())


def reasons(store: FilesStore) -> dict[str, str]:
    """What the store reports as no image."""
    return dict(store.problems)


def test_plain_order_of_classes_and_natural_order_of_files(tmp_path: Path) -> None:
    """Classes stand in plain string order, as torchvision numbers them; files in natural order: 2 before 10."""
    put(tmp_path, "c10/1.jpg", "c2/img10.jpg", "c2/img2.jpg", "c2/img1.jpg")

    store = FilesStore(tmp_path)

    assert list(store.keys()) == ["c10/1.jpg", "c2/img1.jpg", "c2/img2.jpg", "c2/img10.jpg"]
    assert store.schema["label"].classes == ("c10", "c2")


def test_nested_folders_belong_to_their_class(tmp_path: Path) -> None:
    """A folder inside a class folder adds to that class, after the class's own files."""
    put(tmp_path, "cats/b/2.jpg", "cats/a/1.jpg", "cats/z.jpg", "dogs/1.jpg")

    store = FilesStore(tmp_path)

    assert list(store.keys()) == ["cats/z.jpg", "cats/a/1.jpg", "cats/b/2.jpg", "dogs/1.jpg"]
    assert store.column("label").tolist() == [0, 0, 0, 1]


def test_flat_folder_is_one_class(tmp_path: Path) -> None:
    """Images directly in the folder are one class, named like the folder."""
    put(tmp_path / "holiday", "2.jpg", "10.jpg")

    store = FilesStore(tmp_path / "holiday")

    assert list(store.keys()) == ["2.jpg", "10.jpg"]
    assert store.schema["label"].classes == ("holiday",)
    assert store.column("label").tolist() == [0, 0]


def test_images_beside_class_folders_are_refused_by_name(tmp_path: Path) -> None:
    """Images both beside and inside class folders have no class: refused, with their names."""
    put(tmp_path, "cats/1.jpg", "stray1.jpg", "stray2.jpg")

    with pytest.raises(StoreFormatError, match=r"2 images .*'stray1.jpg', 'stray2.jpg'"):
        FilesStore(tmp_path)


def test_folder_without_images_is_refused(tmp_path: Path) -> None:
    """A folder without any image says so, and how much else is in it."""
    put(tmp_path, "notes.txt", "more/notes.txt")

    with pytest.raises(StoreFormatError, match=r"no image .*3 other entries, such as 'notes.txt' \(not an image"):
        FilesStore(tmp_path)
    put(tmp_path, "more/1.jp2")
    with pytest.raises(StoreFormatError, match=r"such as 'more/1.jp2' \(an image of a format that cannot be decoded"):
        FilesStore(tmp_path)


def test_missing_folder_is_not_found(tmp_path: Path) -> None:
    """A folder that is not there is a FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        FilesStore(tmp_path / "nothing")


def test_hidden_entries_are_not_looked_at(tmp_path: Path) -> None:
    """Names that begin with a dot are neither records nor problems, files or folders."""
    put(tmp_path, "cats/1.jpg", "cats/.2.jpg", "cats/.cache/3.jpg", ".git/HEAD", ".DS_Store")

    store = FilesStore(tmp_path)

    assert list(store.keys()) == ["cats/1.jpg"]
    assert store.problems == ()


def test_hidden_folders_of_images_do_not_shift_classes_silently(tmp_path: Path) -> None:
    """A hidden folder with images, a class for torchvision, is refused unless the classes are named."""
    put(tmp_path, "cats/1.jpg", "dogs/1.jpg", ".cache/deep/3.JPG", ".git/HEAD")

    with pytest.raises(StoreFormatError, match=r"hidden folder '\.cache', .*classes=\['cats', 'dogs'\]"):
        FilesStore(tmp_path)
    left_out = FilesStore(tmp_path, classes=["cats", "dogs"])
    counted = FilesStore(tmp_path, classes=[".cache", "cats", "dogs"])

    assert list(left_out.keys()) == ["cats/1.jpg", "dogs/1.jpg"]
    assert list(counted.keys()) == [".cache/deep/3.JPG", "cats/1.jpg", "dogs/1.jpg"]
    assert counted.column("label").tolist() == [0, 1, 2]


@pytest.mark.parametrize("other", ["cat ", "\u00e9t\u00e9"])
def test_classes_that_differ_in_spaces_or_encoding_are_warned_of(tmp_path: Path, other: str) -> None:
    """They are two classes, as for torchvision, and look like one; classes that are named are not warned of."""
    names = sorted([other, "cat", "e\u0301te\u0301"])
    put(tmp_path, *(f"{name}/1.jpg" for name in names))

    with pytest.warns(UserWarning, match="are two classes"):
        store = FilesStore(tmp_path)

    assert store.schema["label"].classes == tuple(names)
    assert len(FilesStore(tmp_path, classes=names)) == 3


@pytest.mark.parametrize(("suffix", "advice"), [(".mp4", "ffmpeg -i a.mp4"), (".WAV", 'ps.pack(({"audio": path}')])
def test_folders_of_video_and_audio_say_what_can_be_done(tmp_path: Path, suffix: str, advice: str) -> None:
    """They are not decoded: frames are extracted, or the files are packed as bytes."""
    put(tmp_path, f"a/1{suffix}", f"b/2{suffix}", "README.txt")

    with pytest.raises(StoreFormatError, match=re.escape(advice)):
        FilesStore(tmp_path)


def test_other_files_are_listed(tmp_path: Path) -> None:
    """What is no image by its name, and a folder without images that is no class, is listed with the reason."""
    put(tmp_path, "cats/1.JPG", "cats/notes.txt", "README", "dogs/list.csv")

    store = FilesStore(tmp_path, classes=["cats"])

    assert list(store.keys()) == ["cats/1.JPG"]
    assert set(reasons(store)) == {"README", "cats/notes.txt", "dogs/list.csv", "dogs/"}
    assert reasons(store)["dogs/"] == "a folder without images"
    assert store.unreadable == ()


def test_what_may_be_an_image_is_told_apart(tmp_path: Path) -> None:
    """Links to nowhere, and special files and odd bytes under an image's name, may be images: the rest is not."""
    put(tmp_path, "cats/1.jpg", "cats/notes.txt", "labels.csv", "Thumbs.db", "desktop.ini")
    (tmp_path / "cats" / "gone.jpg").symlink_to("nowhere.jpg")
    (tmp_path / "cats" / "more").symlink_to("nowhere")
    os.mkfifo(tmp_path / "cats" / "pipe.jpg")
    os.mkfifo(tmp_path / "cats" / "pipe")
    for name in (b"bad\xff.jpg", b"bad\xff.txt"):
        (tmp_path / "cats" / os.fsdecode(name)).write_bytes(b"x")

    store = FilesStore(tmp_path)

    unreadable = {problem.key for problem in store.unreadable}
    assert unreadable == {"cats/gone.jpg", "cats/more", "cats/pipe.jpg", "cats/bad\\udcff.jpg"}
    others = {"cats/notes.txt", "labels.csv", "Thumbs.db", "desktop.ini", "cats/pipe", "cats/bad\\udcff.txt"}
    assert {problem.key for problem in store.problems} == unreadable | others


def test_images_of_formats_that_are_not_read_are_told_apart(tmp_path: Path) -> None:
    """A photograph of a format that is not read is not ignored: it is named as an image, with what to do."""
    put(tmp_path, "cats/1.ppm", "cats/2.AVIF", "cats/2.heic", "cats/2.jxl", "cats/3.psd", "cats/4.jp2", "cats/5.pdf")

    store = FilesStore(tmp_path)

    assert list(store.keys()) == ["cats/1.ppm", "cats/2.AVIF", "cats/2.heic", "cats/2.jxl"]
    assert [problem.key for problem in store.unreadable] == ["cats/3.psd", "cats/4.jp2"]
    assert "convert it" in store.unreadable[0].reason


def test_special_files_are_never_opened(tmp_path: Path) -> None:
    """A FIFO (opening it would block for ever) and a socket are listed, not opened."""
    put(tmp_path, "cats/1.jpg")
    os.mkfifo(tmp_path / "cats" / "pipe.jpg")
    here = Path.cwd()
    os.chdir(tmp_path / "cats")  # the path of a socket must be short
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("socket.jpg")
        listener.close()
    finally:
        os.chdir(here)

    store = FilesStore(tmp_path)

    assert list(store.keys()) == ["cats/1.jpg"]
    assert reasons(store)["cats/pipe.jpg"] == "a FIFO, which is never opened"
    assert reasons(store)["cats/socket.jpg"] == "a socket, which is never opened"


def test_symbolic_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    """People link data sets together: links to regular files and to folders count as what they lead to."""
    put(tmp_path / "elsewhere", "1.jpg", "dogs/2.jpg")
    put(tmp_path / "photos", "cats/3.jpg")
    (tmp_path / "photos" / "cats" / "1.jpg").symlink_to(tmp_path / "elsewhere" / "1.jpg")
    (tmp_path / "photos" / "dogs").symlink_to(tmp_path / "elsewhere" / "dogs")

    store = FilesStore(tmp_path / "photos")

    assert list(store.keys()) == ["cats/1.jpg", "cats/3.jpg", "dogs/2.jpg"]
    assert store.read([2])[0].fields["image"] == b"bytes of dogs/2.jpg"


def test_circles_of_links_are_listed(tmp_path: Path) -> None:
    """A link to a folder above, a link to itself and a link to nowhere end the walk there, listed."""
    put(tmp_path, "cats/1.jpg")
    (tmp_path / "cats" / "up").symlink_to(tmp_path)
    (tmp_path / "cats" / "self.jpg").symlink_to("self.jpg")
    (tmp_path / "cats" / "gone.jpg").symlink_to("nowhere.jpg")

    store = FilesStore(tmp_path)

    assert list(store.keys()) == ["cats/1.jpg"]
    assert set(reasons(store)) == {"cats/up/", "cats/self.jpg", "cats/gone.jpg"}
    assert "contains it" in reasons(store)["cats/up/"]


def test_name_that_is_not_utf8_is_listed(tmp_path: Path) -> None:
    """A file whose name is not UTF-8 is listed, its name spelt out."""
    put(tmp_path, "cats/1.jpg")
    (tmp_path / "cats" / os.fsdecode(b"bad\xff.jpg")).write_bytes(b"x")

    store = FilesStore(tmp_path)

    assert reasons(store) == {"cats/bad\\udcff.jpg": "a name that is not UTF-8"}


def test_vanished_file_is_named(tmp_path: Path) -> None:
    """A file that vanished since the folder was listed is an error with store, key and index."""
    put(tmp_path, "cats/1.jpg", "cats/2.jpg")
    store = FilesStore(tmp_path)
    (tmp_path / "cats" / "2.jpg").unlink()

    with pytest.raises(StoreNotFoundError, match="vanished") as caught:
        store.read([1])

    assert caught.value.where == {"store": store.url, "key": "cats/2.jpg", "index": 1}


def test_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that may not be read is an error with its name and the system's reason."""
    put(tmp_path, "cats/1.jpg")
    store = FilesStore(tmp_path)

    def refuse(*_: object) -> int:  # as root, who runs tests in containers, may read everything
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(StoreError, match="Permission denied") as caught:
        store.read([0])
    assert caught.value.where["key"] == "cats/1.jpg"


def test_file_replaced_by_a_fifo_does_not_block(tmp_path: Path) -> None:
    """A FIFO that took a file's place is refused at once, where opening it could wait for ever."""
    put(tmp_path, "cats/1.jpg")
    store = FilesStore(tmp_path)
    (tmp_path / "cats" / "1.jpg").unlink()
    os.mkfifo(tmp_path / "cats" / "1.jpg")

    with pytest.raises(StoreError, match="FIFO"):
        store.read([0])


def test_growing_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that grows between its size being asked and its end being reached is refused, not cut."""
    put(tmp_path, "cats/1.jpg")
    store = FilesStore(tmp_path)
    real_fstat = os.fstat

    def fstat_then_grow(file: int) -> os.stat_result:
        seen = real_fstat(file)
        with (tmp_path / "cats" / "1.jpg").open("ab") as grown:
            grown.write(b"more")
        return seen

    monkeypatch.setattr(os, "fstat", fstat_then_grow)

    with pytest.raises(StoreError, match="changed while it was read"):
        store.read([0])


def test_empty_file_is_a_record(tmp_path: Path) -> None:
    """An empty file is read as no bytes; judging it is packing's affair."""
    put(tmp_path, "cats/1.jpg")
    (tmp_path / "cats" / "1.jpg").write_bytes(b"")

    assert FilesStore(tmp_path).read([0])[0].fields["image"] == b""


def test_digest_sees_sizes_and_times(tmp_path: Path) -> None:
    """The digest changes with a file's size or time of change and with a file that may be an image; not with others."""
    put(tmp_path, "cats/1.jpg")
    first = FilesStore(tmp_path).digest()
    os.utime(tmp_path / "cats" / "1.jpg", ns=(1, 1))
    second = FilesStore(tmp_path).digest()
    (tmp_path / "cats" / "1.jpg").write_bytes(b"other")
    os.utime(tmp_path / "cats" / "1.jpg", ns=(1, 1))
    third = FilesStore(tmp_path).digest()
    (tmp_path / "cats" / "gone.jpg").symlink_to("nowhere")
    fourth = FilesStore(tmp_path).digest()
    put(tmp_path, "cats/notes.txt")

    assert len({first, second, third, fourth}) == 4
    assert FilesStore(tmp_path).digest() == fourth


def test_reading_past_the_end_says_what_there_is(tmp_path: Path) -> None:
    """An index outside names the store's size."""
    put(tmp_path, "cats/1.jpg")

    with pytest.raises(RecordIndexError, match="store of 1 record "):
        FilesStore(tmp_path).read([1])


def test_deep_nesting_needs_no_stack(tmp_path: Path) -> None:
    """Hundreds of nested folders are walked without recursion."""
    folder = tmp_path / "cats"
    folder.mkdir()
    here = Path.cwd()
    os.chdir(folder)
    try:
        for _ in range(400):
            Path("d").mkdir()
            os.chdir("d")
        Path("1.jpg").write_bytes(b"x")
    finally:
        os.chdir(here)

    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(len(FilesStore(tmp_path))))
    thread.start()
    thread.join()

    assert found == [1]
