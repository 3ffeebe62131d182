"""Virtual datasets: where a file that they are a view of is missing, HDF5 gives its fill value; here it is an error."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError, StoreError, StoreFormatError

h5py = pytest.importorskip("h5py")

PIXELS = np.random.default_rng(0).integers(1, 256, (10, 6, 5, 3)).astype(np.uint8)
OPTIONS = {"channels": "RGB", "axes": "NHWC"}


def write_parts(folder: Path, name: str = "part{}.h5") -> None:
    """Two files of five records."""
    for number in range(2):
        with h5py.File(folder / name.format(number), "w") as file:
            rows = slice(5 * number, 5 * number + 5)
            file["images"], file["labels"] = PIXELS[rows], np.arange(10)[rows]


def write_view(path: Path, *names: str, dataset: str = "images") -> Path:
    """A file with a view of the images, or of the labels, of others."""
    source = PIXELS if dataset == "images" else np.arange(10)
    layout = h5py.VirtualLayout(shape=source.shape, dtype=source.dtype)
    for number, name in enumerate(names):
        layout[5 * number : 5 * number + 5] = h5py.VirtualSource(name, dataset, (5, *source.shape[1:]), source.dtype)
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset(dataset, layout, fillvalue=0)
        if dataset == "images":
            file["labels" if "labels" not in file else "others"] = np.arange(10)
    return path


def test_views_of_files_beside_are_read(tmp_path: Path) -> None:
    """Where all files are there, their records are read, and none is a problem."""
    write_parts(tmp_path)

    with ps.open(write_view(tmp_path / "all.h5", "part0.h5", "part1.h5"), **OPTIONS) as store:
        assert [np.array_equal(record.fields["image"], PIXELS[record.index]) for record in store] == [True] * 10
        assert store.problems == ()


def remove(path: Path) -> None:
    """Nothing is there."""
    path.unlink()


def spoil(path: Path) -> None:
    """No HDF5 file is there."""
    path.write_bytes(b"x" * 4000)


def empty(path: Path) -> None:
    """A file without the dataset is there."""
    with h5py.File(path, "w") as file:
        file["other"] = 1


def block(path: Path) -> None:
    """A FIFO is there, which nobody may open."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("change", [remove, spoil, empty, block])
def test_a_missing_source_is_an_error_with_its_name(tmp_path: Path, change: object) -> None:
    """Whatever is wrong with the file, the store is refused, not read as the fill value."""
    write_parts(tmp_path)
    path = write_view(tmp_path / "all.h5", "part0.h5", "part1.h5")
    assert callable(change)
    change(tmp_path / "part1.h5")

    with pytest.raises(StoreFormatError, match=r"dataset 'images' is a view of 'images' of part1\.h5, which"):
        ps.open(path, **OPTIONS)


def test_labels_and_keys_may_be_views_too(tmp_path: Path) -> None:
    """A column of fill values is no column of labels."""
    write_parts(tmp_path)
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file["images"] = PIXELS
    path = write_view(tmp_path / "all.h5", "part0.h5", "part1.h5", dataset="labels")
    assert ps.open(path, **OPTIONS).column("label").tolist() == list(range(10))
    (tmp_path / "part0.h5").unlink()

    with pytest.raises(
        StoreFormatError, match=r"dataset 'labels' is a view of 'labels' of part0\.h5, which is missing"
    ):
        ps.open(path, **OPTIONS)
    with ps.open(path, fields={"image": "images"}, **OPTIONS) as store:
        assert [problem.key for problem in store.problems] == ["labels"]
        assert np.array_equal(store[9].fields["image"], PIXELS[9])


def test_a_view_of_a_view_and_of_its_own_file_is_followed(tmp_path: Path) -> None:
    """What is missing two views away is missing; a view of the same file is no loop without end."""
    write_parts(tmp_path)
    write_view(tmp_path / "inner.h5", "part0.h5", "part1.h5")
    with h5py.File(tmp_path / "outer.h5", "w") as file:
        layout = h5py.VirtualLayout(shape=PIXELS.shape, dtype="u1")
        layout[:] = h5py.VirtualSource("inner.h5", "images", PIXELS.shape)
        file.create_virtual_dataset("images", layout)
        layout = h5py.VirtualLayout(shape=PIXELS.shape, dtype="u1")
        layout[:] = h5py.VirtualSource(".", "images", PIXELS.shape)
        file.create_virtual_dataset("again", layout)
        file["labels"] = np.arange(10)
    found = ps.open(tmp_path / "outer.h5", fields={"image": "again"}, **OPTIONS)
    assert np.array_equal(found[7].fields["image"], PIXELS[7])
    (tmp_path / "part1.h5").unlink()

    for image in ("images", "again"):
        with pytest.raises(StoreFormatError, match=rf"dataset '{image}' is a view of .*part1\.h5, which is missing"):
            ps.open(tmp_path / "outer.h5", fields={"image": image}, **OPTIONS)


def test_a_view_that_loops_ends(tmp_path: Path) -> None:
    """Two files that are views of each other are no endless search."""
    for name, other in (("a.h5", "b.h5"), ("b.h5", "a.h5")):
        with h5py.File(tmp_path / name, "w") as file:
            layout = h5py.VirtualLayout(shape=PIXELS.shape, dtype="u1")
            layout[:] = h5py.VirtualSource(other, "images", PIXELS.shape)
            file.create_virtual_dataset("images", layout)
            file["labels"] = np.arange(10)

    assert len(ps.open(tmp_path / "a.h5", **OPTIONS)) == 10


def test_files_that_are_named_by_a_number_must_be_there_up_to_the_last_one(tmp_path: Path) -> None:
    """HDF5 fills the gap that a missing file of such a sequence leaves."""
    write_parts(tmp_path, "f%{}.h5")
    (tmp_path / "f%1.h5").rename(tmp_path / "f%2.h5")
    shape, unlimited = PIXELS.shape, h5py.h5s.UNLIMITED
    with h5py.File(tmp_path / "all.h5", "w") as file:
        space = h5py.h5s.create_simple((0, *shape[1:]), (unlimited, *shape[1:]))
        space.select_hyperslab((0, 0, 0, 0), (unlimited, 1, 1, 1), (5, 1, 1, 1), (5, *shape[1:]))
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_virtual(space, b"f%%%b.h5", b"images", h5py.h5s.create_simple((5, *shape[1:])))
        whole = h5py.h5s.create_simple((0, *shape[1:]), (unlimited, *shape[1:]))
        h5py.h5d.create(file.id, b"images", h5py.h5t.NATIVE_UINT8, whole, creation)

    with pytest.raises(StoreFormatError, match=r"f%1\.h5, which is missing"):
        ps.open(tmp_path / "all.h5", **OPTIONS)
    (tmp_path / "f%2.h5").rename(tmp_path / "f%1.h5")
    assert np.array_equal(ps.open(tmp_path / "all.h5", **OPTIONS)[9].fields["image"], PIXELS[9])


def test_a_source_that_changes_while_the_store_is_open_is_noticed(tmp_path: Path) -> None:
    """Its records would be those of another file, or the fill value; the digest is another one, too."""
    write_parts(tmp_path)
    path = write_view(tmp_path / "all.h5", "part0.h5", "part1.h5")

    with ps.open(path, **OPTIONS) as store:
        before = store.digest()
        store.read([0])
        (tmp_path / "part1.h5").unlink()
        with pytest.raises(StoreError, match=r"part1\.h5 was replaced or changed"):
            store.read([7])
    write_parts(tmp_path)
    assert ps.open(path, **OPTIONS).digest() != before


def test_links_to_other_files_are_listed(tmp_path: Path) -> None:
    """They are not followed, whether the file is there or not."""
    write_parts(tmp_path)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["images"], file["labels"] = PIXELS, np.arange(10)
        file["gone"], file["part"] = h5py.ExternalLink("gone.h5", "x"), h5py.ExternalLink("part0.h5", "images")

    with ps.open(tmp_path / "a.h5", **OPTIONS) as store:
        assert [problem.key for problem in store.problems] == ["gone", "part"]
        assert "a link to another file, 'gone.h5', which is not read" in store.problems[0].reason


@pytest.mark.parametrize("nbytes", [None, 100, PIXELS.nbytes])
def test_a_view_of_values_in_external_storage_is_an_error_with_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int | None
) -> None:
    """HDF5 gives zeros where such a file is shorter, and looks for it in the current folder: it is never read."""
    monkeypatch.chdir(tmp_path)
    with h5py.File("part0.h5", "w") as file:
        file.create_dataset("images", PIXELS.shape, "u1", external=[("raw.bin", 0, PIXELS.nbytes)])
    if nbytes is not None:
        Path("raw.bin").write_bytes(PIXELS.tobytes()[:nbytes])
    with h5py.File("all.h5", "w") as file:
        layout = h5py.VirtualLayout(shape=PIXELS.shape, dtype="u1")
        layout[:] = h5py.VirtualSource("part0.h5", "images", PIXELS.shape)
        file.create_virtual_dataset("images", layout)
        file["labels"] = np.arange(10)

    with pytest.raises(StoreFormatError, match=r"a view of 'images' of part0\.h5, whose values are .*'raw\.bin'"):
        ps.open("all.h5", **OPTIONS)
    with pytest.raises(StoreFormatError, match=r"'images': its values are .*external storage: 'raw\.bin'"):
        ps.open("part0.h5", **OPTIONS)


def test_a_view_through_links_is_followed_in_its_folder(tmp_path: Path) -> None:
    """Links of the source may lead to files beside it; elsewhere, nowhere or in a circle they are an error."""
    write_parts(tmp_path)
    (tmp_path / "deep").mkdir()
    write_parts(tmp_path / "deep")
    os.mkfifo(tmp_path / "fifo.h5")
    targets = {"link0.h5": "part0.h5", "link1.h5": "part1.h5", "out.h5": "deep/part1.h5", "again.h5": "circle.h5"}
    for name, target in {**targets, "circle.h5": "again.h5", "wait.h5": "fifo.h5", "gone.h5": "none.h5"}.items():
        with h5py.File(tmp_path / name, "w") as file:
            file["other"] = h5py.ExternalLink(target, "/images")
            file["images"] = h5py.SoftLink("other")
    good = write_view(tmp_path / "all.h5", "link0.h5", "link1.h5")

    with ps.open(good, **OPTIONS) as store:
        assert np.array_equal(store[9].fields["image"], PIXELS[9])
    for name, reason in (
        ("out.h5", "a link to 'deep/part1.h5', which is not in this folder"),
        ("again.h5", "which leads back to itself"),
        ("wait.h5", "a link to 'images' of fifo.h5, which is missing"),
        ("gone.h5", "a link to 'images' of none.h5, which is missing"),
    ):
        with pytest.raises(StoreFormatError, match=reason):
            ps.open(write_view(tmp_path / f"all-{name}", "link0.h5", name), **OPTIONS)


def test_links_that_lead_nowhere_are_listed_and_named(tmp_path: Path) -> None:
    """Who states such a name is told what it is."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["labels"] = np.arange(10)
        file["soft"], file["loop"] = h5py.SoftLink("/nowhere"), h5py.SoftLink("loop")
        file["g/images"] = h5py.ExternalLink("gone.h5", "x")

    with ps.open(tmp_path / "a.h5") as store:
        assert sorted(str(problem.key) for problem in store.problems) == ["g/images", "loop", "soft"]
    for name, reason in (("soft", "leads nowhere: it has no 'nowhere'"), ("g/images", r"another file, 'gone\.h5'")):
        with pytest.raises(ArgumentError, match=f"got '{name}': it is a link to .*{reason}"):
            ps.open(tmp_path / "a.h5", fields={"image": name})
