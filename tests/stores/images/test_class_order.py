"""How classes are numbered: as torchvision numbers them, or as ``classes=`` says; what is and what is not a class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import ArgumentError, StoreFormatError
from tests.pack.images import make_photos, picture

NAMES = st.text(
    st.characters(exclude_characters="/\0", codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8
).filter(lambda name: not name.startswith(".") and len(name.encode()) < 200)


def put(root: Path, *names: str) -> Path:
    """Write a picture under each name."""
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture(number))
    return root


def numbered(root: Path, **options: Any) -> dict[str, int]:
    """The label of each record, by key."""
    with ps.open(root, **options) as store:
        return dict(zip(store.keys(), store.column("label").tolist(), strict=True))


def test_numbered_classes_follow_plain_order(tmp_path: Path) -> None:
    """Classes are numbered in plain string order ("10" before "2"), records inside a class stand in natural order."""
    put(tmp_path, *(f"{number}/{image}.jpg" for number in (0, 1, 2, 10) for image in (1, 2, 10)))

    with ps.open(tmp_path) as store:
        assert store.schema["label"].classes == ("0", "1", "10", "2")
        assert list(store.keys())[3:9] == ["1/1.jpg", "1/2.jpg", "1/10.jpg", "10/1.jpg", "10/2.jpg", "10/10.jpg"]
        assert store.column("label").tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.filterwarnings("ignore:the class folders .* differ only in spaces:UserWarning")
@settings(max_examples=settings().max_examples // 2)
@given(names=st.sets(NAMES, min_size=1, max_size=12))
def test_every_label_is_torchvisions(tmp_path_factory: pytest.TempPathFactory, names: set[str]) -> None:
    """Whatever the folders are called, classes and the label of each file are those of torchvision's ImageFolder."""
    datasets = pytest.importorskip("torchvision.datasets")
    root = tmp_path_factory.mktemp("photos")
    put(root, *(f"{name}/{image}.jpg" for name in names for image in ("1", "sub/2", "10")))

    theirs = datasets.ImageFolder(root)

    with ps.open(root) as store:
        assert list(store.schema["label"].classes) == theirs.classes
    assert numbered(root) == {path.removeprefix(f"{root}/"): label for path, label in theirs.samples}


def test_a_pack_numbers_as_the_folder_does(tmp_path: Path) -> None:
    """Packing keeps the folder's numbers."""
    put(tmp_path / "photos", *(f"{number}/{image}.jpg" for number in range(12) for image in range(2)))

    ps.pack(tmp_path / "photos", tmp_path / "p.lmdb")

    assert numbered(tmp_path / "p.lmdb") == numbered(tmp_path / "photos")


def test_given_classes_fix_names_and_numbers(tmp_path: Path) -> None:
    """``classes=`` numbers by its own order; a class without a folder, or with an empty one, keeps its number."""
    put(tmp_path, "dog/1.jpg", "cat/2.jpg", "cat/10.jpg")
    (tmp_path / "ant").mkdir()

    with ps.open(tmp_path, classes=["dog", "bee", "ant", "cat"]) as store:
        assert store.schema["label"].classes == ("dog", "bee", "ant", "cat")
        assert list(store.keys()) == ["cat/2.jpg", "cat/10.jpg", "dog/1.jpg"]
        assert store.column("label").tolist() == [3, 3, 0]
        assert store.read([2])[0].fields["label"] == 0


def test_a_validation_folder_without_a_class_keeps_the_numbers(tmp_path: Path) -> None:
    """With the training store's classes, a validation folder that lacks one labels as the training folder does."""
    train = put(tmp_path / "train", "ant/1.jpg", "bee/1.jpg", "cat/1.jpg")
    val = put(tmp_path / "val", "ant/7.jpg", "cat/7.jpg")
    with ps.open(train) as store:
        classes = list(store.schema["label"].classes)

    assert numbered(val, classes=classes) == {"ant/7.jpg": 0, "cat/7.jpg": 2}


def test_a_folder_that_is_not_in_classes_is_named(tmp_path: Path) -> None:
    """A folder of images that ``classes`` does not name is an error that names it; one without images is listed."""
    put(tmp_path, "ant/1.jpg", "bee/1.jpg", "cat/1.jpg")
    (tmp_path / "docs").mkdir()

    with pytest.raises(ArgumentError, match=r"it lacks the folders 'ant', 'cat'"):
        ps.open(tmp_path, classes=["bee", "dog"])

    with ps.open(tmp_path, classes=["ant", "bee", "cat"]) as store:
        assert [problem.key for problem in store.problems] == ["docs/"]


def test_a_flat_folder_is_one_of_the_classes(tmp_path: Path) -> None:
    """A folder without sub-folders is the class of its name; if ``classes`` does not name it, that is said."""
    put(tmp_path / "dog", "1.jpg")

    assert numbered(tmp_path / "dog", classes=["cat", "dog"]) == {"1.jpg": 1}
    with pytest.raises(ArgumentError, match="it lacks the folder 'dog'"):
        ps.open(tmp_path / "dog", classes=["cat"])


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ("cats", "must be a sequence of names, got 'cats'"),
        ([], "at least one name"),
        ([1, 2], "must be a sequence of names, got 1"),
        (["cats", "dogs", "cats"], "got 'cats' twice"),
        ({"cats": 1, "dogs": 0}, "in the order of their numbers"),
    ],
)
def test_classes_that_mean_nothing_are_refused(tmp_path: Path, classes: object, said: str) -> None:
    """One text, no name, names that are no texts, one name twice, and a mapping: each is refused with the reason."""
    photos = make_photos(tmp_path / "photos", 2)

    with pytest.raises(ArgumentError, match=said):
        ps.open(photos, classes=classes)


def test_names_may_come_from_an_array(tmp_path: Path) -> None:
    """Any sequence of names is taken, also NumPy's."""
    photos = make_photos(tmp_path / "photos", 2)

    with ps.open(photos, classes=np.array(["dogs", "cats"])) as store:
        assert store.schema["label"].classes == ("dogs", "cats")
        assert {type(name) for name in store.schema["label"].classes} == {str}


def test_an_empty_class_folder_is_refused(tmp_path: Path) -> None:
    """A folder without an image would change the numbers of those behind it: it is named, as in torchvision."""
    datasets = pytest.importorskip("torchvision.datasets")
    put(tmp_path, "ant/1.jpg", "cat/1.jpg")
    (tmp_path / "bee").mkdir()
    (tmp_path / "ant" / "nothing").mkdir()

    with pytest.raises(FileNotFoundError, match="bee"):
        datasets.ImageFolder(tmp_path)
    with pytest.raises(StoreFormatError, match=r"no image in the folder 'bee'.*classes=\["):
        ps.open(tmp_path)


@pytest.mark.parametrize("spoil", ["dangling", "forbidden"])
def test_a_class_that_cannot_be_listed_is_refused(tmp_path: Path, spoil: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to a disk that is not mounted, or a folder that may not be read, must not renumber the others."""
    put(tmp_path, "ant/1.jpg", "cat/1.jpg")
    if spoil == "dangling":
        (tmp_path / "bee").symlink_to("/nowhere/bee")
    else:
        put(tmp_path, "bee/1.jpg")
        refuse_folder(tmp_path / "bee", monkeypatch)

    with pytest.raises(StoreFormatError, match="'bee'"):
        ps.open(tmp_path)


def refuse_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one folder unreadable, also for root."""
    import os

    real: Callable[..., object] = os.scandir

    def scandir(path: object) -> object:
        if Path(str(path)) == folder:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


def test_folders_of_tools_are_no_classes(tmp_path: Path) -> None:
    """Hidden folders without images, and those that operating systems leave, are neither classes nor in their way."""
    put(tmp_path, "cat/1.jpg", ".git/HEAD", ".ipynb_checkpoints/3.ipynb", "cat/.ipynb_checkpoints/4.jpg")
    put(tmp_path, "__MACOSX/cat/5.jpg", "@eaDir/6.jpg", "cat/@eaDir/7.jpg", "cat/__MACOSX/8.jpg")

    with ps.open(tmp_path) as store:
        assert list(store.keys()) == ["cat/1.jpg"]
        assert store.schema["label"].classes == ("cat",)
        assert {problem.key for problem in store.problems} == {"__MACOSX/", "@eaDir/", "cat/@eaDir/", "cat/__MACOSX/"}


def test_links_to_the_folder_itself_are_no_classes(tmp_path: Path) -> None:
    """A link beside the classes that leads back to their folder is listed, and is no class without images."""
    put(tmp_path, "cat/1.jpg")
    (tmp_path / "all").symlink_to(tmp_path)

    with ps.open(tmp_path) as store:
        assert list(store.keys()) == ["cat/1.jpg"]
        assert [problem.key for problem in store.problems] == ["all/"]


def test_a_pack_keeps_its_classes(tmp_path: Path) -> None:
    """``classes`` of a pack must be those that it was packed with; others are refused, and both are named."""
    photos = make_photos(tmp_path / "photos", 4)
    ps.pack(photos, tmp_path / "p.lmdb", classes=["dogs", "ants", "cats"])

    with ps.open(tmp_path / "p.lmdb", classes=["dogs", "ants", "cats"]) as store:
        assert store.schema["label"].classes == ("dogs", "ants", "cats")
        assert store.column("label").tolist() == [2, 2, 0, 0]
    with pytest.raises(ArgumentError, match=r"its classes are 'dogs', 'ants', 'cats', not 'cats', 'dogs'"):
        ps.open(tmp_path / "p.lmdb", classes=["cats", "dogs"])


def test_packing_a_store_keeps_its_classes(tmp_path: Path) -> None:
    """A source that is open already has its classes: others are refused, with what to do."""
    photos = make_photos(tmp_path / "photos", 4)

    with ps.open(photos) as source, pytest.raises(ArgumentError, match="open the source with classes="):
        ps.pack(source, tmp_path / "p.lmdb", classes=["dogs", "cats"])

    assert not (tmp_path / "p.lmdb").exists()


def test_an_unknown_option_is_named(tmp_path: Path) -> None:
    """An option that a kind of store does not have is refused with those that it has."""
    photos = make_photos(tmp_path / "photos", 2)

    with pytest.raises(ArgumentError, match=r"no option 'check'.*classes"):
        ps.open(photos, check=True)


def test_folders_called_as_splits_are_a_warning(tmp_path: Path) -> None:
    """`train` and `val` are rarely classes: the classes are one folder below. Names that are given are believed."""
    put(tmp_path, "train/cat/1.jpg", "train/dog/1.jpg", "Val/cat/1.jpg")

    with pytest.warns(UserWarning, match="called as splits are, 'Val', 'train': .* pack each alone, such as Val/"):
        ps.open(tmp_path).close()

    assert numbered(tmp_path, classes=["Val", "train"])["Val/cat/1.jpg"] == 0
    assert numbered(tmp_path / "train") == {"cat/1.jpg": 0, "dog/1.jpg": 1}


def test_one_folder_of_folders_is_a_warning(tmp_path: Path) -> None:
    """The classes are often one folder below, as in an archive that was unpacked into a folder of its name."""
    put(tmp_path, "photos/cat/1.jpg", "photos/dog/1.jpg", "photos/dog/old/2.jpg")

    with pytest.warns(UserWarning, match=r"only class is the folder 'photos', .* 'cat', 'dog': .* pack photos/; .*"):
        ps.open(tmp_path).close()

    assert set(numbered(tmp_path, classes=["photos"]).values()) == {0}
    put(tmp_path, "photos/3.jpg")
    assert set(numbered(tmp_path).values()) == {0}


@pytest.mark.parametrize("name", ["train/_annotations.coco.json", "data.yaml", "train/1.xml"])
def test_annotations_that_are_not_read_are_a_warning(tmp_path: Path, name: str) -> None:
    """Its sub-folders would be classes, which is rarely meant. Names that are given are believed."""
    put(tmp_path, "train/1.jpg", "valid/2.jpg")
    (tmp_path / name).write_text("<annotation></annotation>")

    with pytest.warns(UserWarning, match=f"such as '{name}', which are not read: .*dst, format=") as found:
        ps.open(tmp_path).close()

    assert [each.filename for each in found] == [__file__]
    assert numbered(tmp_path, classes=["train", "valid"])["valid/2.jpg"] == 1


def test_a_folder_of_annotations_is_no_class(tmp_path: Path) -> None:
    """The error names the way to pack them, beside that to leave the folder out."""
    (put(tmp_path, "images/1.jpg") / "Annotations").mkdir()

    with pytest.raises(StoreFormatError, match=r"folder 'Annotations'\. If these are .* --format auto\. In"):
        ps.open(tmp_path)
