"""Checks which sub-folders of a folder of images are classes, and says what to do with a folder without images.

Called by :func:`penstock.stores.images.listing.list_folder`; why so: ``docs/decisions/0015-*``.
"""

from __future__ import annotations

import contextlib
import os
import unicodedata
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from penstock.errors import ArgumentError, PenstockError, StoreFormatError
from penstock.stores.fields.record_names import quote_names
from penstock.stores.images.annotation_files import FoundAnnotations
from penstock.stores.images.trees import FolderTree, LocalTree
from penstock.stores.writing import Skipped

__all__ = [
    "SOUND_SUFFIXES",
    "advise_classes",
    "advise_without_images",
    "refuse_empty",
    "refuse_hidden",
    "refuse_unnamed",
    "warn_of_meanings",
    "warn_of_similar",
]

SOUND_SUFFIXES: Final = frozenset({".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a"})
"""Endings, in lower case, of sounds: a table's column of such paths is one of files."""

_VIDEO_SUFFIXES: Final = frozenset({".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"})

_SPLITS: Final = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})
_ANNOTATION_FOLDERS: Final = frozenset({"annotations", "labels"})
_PACKED: Final = (
    'they are packed with their images: penstock.pack(src, dst, format="auto"), or penstock pack SRC DST --format auto'
)
_FEW_CLASSES: Final = 5
_PROBED_ENTRIES: Final = 20
_ONE: Final = ("folder", "it")
_SEVERAL: Final = ("folders", "them")


def refuse_empty(empty: dict[str, str], found: Sequence[str], annotations: FoundAnnotations | None, url: str) -> None:
    """Refuse folders that may be classes and contain no images: leaving one out would renumber the others.

    ``empty``: the folders, and why each could not be listed; an empty text where it has no image. ``found``: the
    folders with images. ``annotations``: those that lie there. ``url``: the store, for errors.
    """
    if not empty:
        return
    reasons = "".join(f" ({reason})" for reason in sorted({*empty.values()} - {""}))
    folders, them = _ONE if len(empty) == 1 else _SEVERAL
    if annotations is not None:
        raise StoreFormatError(
            f"there is no image in the {folders} {quote_names(sorted(empty))}{reasons}, and {annotations}: "
            f"{annotations.advise()}; {advise_classes(found)} opens the images alone, each folder as a class",
            store=url,
        )
    has_annotations = any(name.lower() in _ANNOTATION_FOLDERS for name in empty)
    advice = f"If these are annotations, {_PACKED}. " if has_annotations else ""
    raise StoreFormatError(
        f"there is no image in the {folders} {quote_names(sorted(empty))}{reasons}. {advice}In a folder of classes "
        f"each folder is a class and must contain images. Remove {them}, or name the classes: {advise_classes(found)} "
        f"leaves {them} out; a class in the list keeps its number, with or without images",
        store=url,
    )


def refuse_unnamed(found: Iterable[str], classes: tuple[str, ...], url: str) -> None:
    """Refuse folders of images that are not among the classes that were given."""
    if unnamed := sorted(set(found) - set(classes)):
        raise ArgumentError(
            f"classes must name every folder that contains images, got {quote_names(classes)}; it lacks the "
            f"{'folder' if len(unnamed) == 1 else 'folders'} {quote_names(unnamed)}",
            store=url,
        )


def refuse_hidden(
    tree: FolderTree, names: Iterable[str], found: Sequence[str], suffixes: Collection[str], url: str
) -> None:
    """Refuse hidden folders with images beside the classes: torchvision counts each, and numbers others after it."""
    hidden = sorted(each for each in names if _has_image(tree, each, suffixes))
    if hidden:
        names, (folder, them) = quote_names(hidden), _ONE if len(hidden) == 1 else _SEVERAL
        raise StoreFormatError(
            f"there are images in the hidden {folder} {names}, and torchvision counts {them} among the classes. Remove "
            f"{them}, or name the classes: {advise_classes(found)} leaves {them} out, and a list with {names} reads "
            f"{them}",
            store=url,
        )


def warn_of_similar(classes: Iterable[str]) -> None:
    """Warn of classes whose names differ only in spaces, or in how characters are encoded."""
    seen: dict[str, str] = {}
    for name in classes:
        other = seen.setdefault(unicodedata.normalize("NFC", " ".join(name.split())), name)
        if other != name:
            warnings.warn(
                f"the class folders {other!r} and {name!r} differ only in spaces or in the encoding of their "
                "characters, and are two classes; rename one if they are meant to be one",
                stacklevel=5,  # who calls `penstock.open`
            )


def warn_of_meanings(annotations: FoundAnnotations | None, classes: Sequence[str], images: Sequence[str]) -> None:
    """Warn of annotations, which are not read; or of folders that are rarely classes: splits, and one of others."""
    below = {name.split("/")[1] if name.count("/") > 1 else "" for name in images} if len(classes) == 1 else {""}
    if annotations is not None:
        message = (
            f"{annotations}, which are not read: the label of an image is the folder that it is in. "
            f"{annotations.advise()}; {advise_classes(classes)} says that the images alone are meant"
        )
    elif len(classes) > 1 and _SPLITS.issuperset(name.lower() for name in classes):
        message = (
            f"the classes are called as splits are, {quote_names(classes)}: if classes are the folders in them, open "
            f"or pack each alone, such as {classes[0]}/; classes=[...] (--classes) says that these are the classes"
        )
    elif len(below - {""}) > 1 and "" not in below:
        message = (
            f"the only class is the folder {classes[0]!r}, and all images lie in folders in it, such as "
            f"{quote_names(sorted(below)[:_FEW_CLASSES])}: if these are the classes, open or pack {classes[0]}/; "
            f"{advise_classes(classes)} says that it is the class"
        )
    else:
        return
    warnings.warn(message, stacklevel=5)  # who calls `penstock.open`


def advise_without_images(tree: FolderTree, entries: Sequence[Skipped], suffixes: Mapping[str, int]) -> str:
    """Say what to do with a folder without images but with a container, videos or sounds: the end of a sentence.

    ``tree``: the folder. ``entries``: what is in it. ``suffixes``: number of files of each ending, in lower case.
    """
    from penstock import stores  # only where the folder is refused

    root = tree.root if isinstance(tree, LocalTree) else None
    for key, _ in entries[:_PROBED_ENTRIES] if root is not None else ():
        with contextlib.suppress(PenstockError, OSError):
            kind, _ = stores.find(f"{root}/{key}")
            if kind.kind != "files":
                return f"; {key!r} in it looks like a store of kind {kind.kind!r}: give its path"
    suffix = max(suffixes, key=suffixes.__getitem__, default="")
    if suffix not in _VIDEO_SUFFIXES | SOUND_SUFFIXES:
        return ""
    what = "video" if suffix in _VIDEO_SUFFIXES else "audio"
    frames = f"extract the frames, a folder for each (ffmpeg -i a{suffix} a/%06d.jpg), or " if what == "video" else ""
    return (
        f". {suffix} is {what}, which is not decoded: {frames}pack the files as bytes: "
        f'ps.pack(({{"{what}": path}} for path in sorted(Path(folder).rglob("*{suffix}"))), "{what}.lmdb")'
    )


def advise_classes(found: Sequence[str]) -> str:
    """Return how the classes of a folder are named: an argument, and the option of the command line."""
    option = f"--classes {','.join(found)}" if len(found) <= _FEW_CLASSES else "--classes"
    return f"classes=[{quote_names(found)}] ({option})"


def _has_image(tree: FolderTree, folder: str, suffixes: Collection[str]) -> bool:
    """Return whether a file below a folder is an image by its name."""
    return any(os.path.splitext(name)[1].lower() in suffixes for name in tree.iter_names(folder))  # noqa: PTH122  # names of a text
