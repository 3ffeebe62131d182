"""What a YOLO source says of itself: `data.yaml`, darknet's `obj.data`, or a list of classes.

YAML is parsed to texts, lists and mappings only, with limits on size, depth and aliases.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.annotations.numbers import parse_int
from penstock.annotations.records import RecordBuilder
from penstock.annotations.source import AnnotationSource, find_split
from penstock.errors import AnnotationError, ArgumentError
from penstock.registry import require
from penstock.sample import Value

__all__ = ["YoloDescription", "find_class_file", "find_description", "find_inside", "parse_yaml", "read_description"]

_SPLITS: Final = ("train", "val", "test")
_CLASS_FILES: Final = ("classes.txt", "obj.names", "_darknet.labels", "data.names", "classes.names")
_DESCRIBES: Final = re.compile(r"^\ufeff?(names|nc|train|classes)\s*[:=]", re.MULTILINE)
_MAX_CLASSES: Final = 1 << 16
_MAX_LENGTH: Final = 1 << 21
_MAX_ENTRIES: Final = 1000
"""Places of all splits together."""
_MAX_PARTS: Final = 64
"""Folders of a place in another, and its name."""
_MAX_DEPTH: Final = 32
_MAX_ALIASES: Final = 100


@dataclass(frozen=True, slots=True)
class YoloDescription:
    """What ``data.yaml`` or ``obj.data`` says."""

    file: Path | None = None  # where it stands; None if there is no such file
    names: Mapping[int, str] | None = None  # names of the classes by number
    base: str = ""  # the folder that the splits are relative to, as the file has it
    splits: Mapping[str, list[str]] = field(default_factory=dict)
    """Folders and lists of images by split, as the file has them."""
    kpt_shape: tuple[int, int] | None = None  # number of keypoints, and of numbers for each
    flip_idx: tuple[int, ...] | None = None  # the keypoint that each becomes when an image is flipped


def find_description(source: AnnotationSource) -> Path | None:
    """Return the file that describes a source: the one that was given, or one in its folder; None if there is none.

    Raises ArgumentError if there are several.
    """
    if source.path.is_file():
        return source.path if source.path.suffix.lower() in {".yaml", ".yml", ".data"} else None
    found = sorted(path for path in source.folder.iterdir() if path.suffix.lower() in {".yaml", ".yml"})
    found = [path for path in found if path.is_file() and _describes(source, path)]
    preferred = [path for path in found if path.stem.lower() in {"data", "dataset"}]
    if len(chosen := preferred or found) > 1:
        raise ArgumentError(f"give the path of one of {', '.join(path.name for path in chosen)}, not of their folder")
    if chosen:
        return chosen[0]
    darknet = (path for path in sorted(source.folder.glob("*.data")) if path.is_file() and _describes(source, path))
    return next(darknet, None)


def find_class_file(source: AnnotationSource) -> Path | None:
    """The list of classes of a source without a description: the one that lies highest."""
    if source.path.suffix.lower() == ".names" and source.path.is_file():
        return source.path
    found = [path for path in source.list_files(None, *_CLASS_FILES) if path.name.lower() in _CLASS_FILES]
    return min(found, key=lambda path: (len(path.parts), _CLASS_FILES.index(path.name.lower()), path), default=None)


def read_description(source: AnnotationSource, builder: RecordBuilder) -> YoloDescription:
    """Return what the source says of itself.

    Raises AnnotationError if the file cannot be read, or says something that has no meaning.
    """
    path = find_description(source)
    classes = source.classes
    try:
        if path is None:
            found = YoloDescription()
            classes = classes or find_class_file(source)
        elif path.suffix.lower() == ".data":
            found, listed = _read_darknet(source, path)
            classes = classes or listed or find_class_file(source)
        else:
            found = _read_yaml(source, path, builder)
        if classes is None:
            return found
        return YoloDescription(
            path, _read_classes(source, classes), found.base, found.splits, found.kpt_shape, found.flip_idx
        )
    except ValueError as error:
        if isinstance(error, AnnotationError | ArgumentError):
            raise
        raise AnnotationError(
            f"{source.relative(path or classes or source.root)}: {error}", source=str(source.root)
        ) from error


def _describes(source: AnnotationSource, path: Path) -> bool:
    try:
        return _DESCRIBES.search(source.read_text(path)) is not None
    except AnnotationError:
        return path.stem.lower() in {"data", "dataset"}


def _read_yaml(source: AnnotationSource, path: Path, builder: RecordBuilder) -> YoloDescription:
    content = parse_yaml(source.read_text(path))
    if not isinstance(content, dict):
        raise ValueError(f"it must be a mapping, got {type(content).__name__}")  # noqa: TRY004  # the file is wrong
    names = _read_names(content.get("names"))
    if content.get("nc"):
        count = parse_int(content["nc"], "nc")
        if names is None and 0 <= count <= _MAX_CLASSES:
            names = {number: f"class_{number}" for number in range(count)}
        elif names is None or count != len(names):
            reason = f"nc must be the number of names, {len(names or ())}, got {count}"
            builder.note(path, reason, effect="nc ignored")
    base = content.get("path") or ""
    if not isinstance(base, str):
        raise ValueError("its path must be a text")  # noqa: TRY004  # the file is wrong
    splits = {}
    for name in _SPLITS:
        value = content.get(name) or content.get({"val": "valid"}.get(name, name)) or []
        entries = [value] if isinstance(value, str) else value
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
            raise ValueError(f"its {name} must be a path or a list of paths")
        if entries:
            splits[name] = [entry for entry in entries if entry]
    if (count := sum(map(len, splits.values()))) > _MAX_ENTRIES:
        raise ValueError(f"its splits must be at most {_MAX_ENTRIES:,} folders and lists, got {count:,}")
    kpt_shape = _read_kpt_shape(content.get("kpt_shape"))
    return YoloDescription(path, names, base, splits, kpt_shape, _read_flip_idx(content.get("flip_idx"), kpt_shape))


def _read_names(given: object) -> dict[int, str] | None:
    if not given:
        return None
    if isinstance(given, dict):
        names = {parse_int(number, "class number"): name for number, name in given.items()}
    elif isinstance(given, list):
        names = dict(enumerate(given))
    else:
        raise ValueError(f"its names must be a list or a mapping of numbers to names, got {given!r:.100}")  # noqa: TRY004  # the file is wrong
    for number, name in names.items():
        if number < 0 or not isinstance(name, str) or not _is_text(name):
            raise ValueError(f"its names must be texts with numbers of at least 0, got {name!r:.100} for {number}")
    return dict(sorted(names.items()))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a character, by an escape
        return False
    return True


def _read_kpt_shape(given: object) -> tuple[int, int] | None:
    if not given:
        return None
    if not isinstance(given, list) or len(given) != 2:
        raise ValueError(f"its kpt_shape must have two numbers, got {given!r:.100}")
    count, width = (parse_int(each, "kpt_shape") for each in given)
    if not 0 < count <= _MAX_CLASSES or width not in {2, 3}:
        raise ValueError(f"its kpt_shape must be the number of keypoints, and 2 or 3, got [{count}, {width}]")
    return count, width


def _read_flip_idx(given: object, kpt_shape: tuple[int, int] | None) -> tuple[int, ...] | None:
    if not given or kpt_shape is None:
        return None
    if not isinstance(given, list):
        raise ValueError(f"its flip_idx must be a list, got {given!r:.100}")  # noqa: TRY004  # the file is wrong
    flips = tuple(parse_int(each, "flip_idx") for each in given)
    if sorted(flips) != list(range(kpt_shape[0])):
        raise ValueError(f"its flip_idx must name each of the {kpt_shape[0]} keypoints once, got {list(flips)!s:.200}")
    return flips


def _read_darknet(source: AnnotationSource, path: Path) -> tuple[YoloDescription, Path | None]:
    """Read ``obj.data``: lines of ``key = value``; and its list of classes."""
    values = {
        key.strip().lower(): value.strip()
        for _, line in source.read_lines(path)
        for key, _, value in [line.partition("=")]
    }
    splits = {
        name: [values[key]] for name, key in (("train", "train"), ("val", "valid"), ("test", "test")) if values.get(key)
    }
    names = find_inside(source, values.get("names", ""), (path.parent,), by_end=True)
    return YoloDescription(path, splits=splits), names if names is not None and names.is_file() else None


def _read_classes(source: AnnotationSource, path: Path) -> dict[int, str]:
    text = source.read_text(path)
    if path.suffix.lower() in {".yaml", ".yml"}:
        content = parse_yaml(text)
        names = _read_names(content.get("names") if isinstance(content, dict) else content)
        if names is None:
            raise AnnotationError(f"{source.relative(path)} must have names", source=str(source.root))
        return names
    lines = enumerate(text.split("\n"))
    return {number: name for number, line in lines if (name := line.strip("\x00 \t\v\f\ufeff"))}


def find_inside(
    source: AnnotationSource,
    name: str,
    bases: Iterable[Path],
    *,
    by_end: bool,
    others: Mapping[str, list[str]] | None = None,
) -> Path | None:
    """Return a path below one of the folders; one that is absolute or begins with ".." is found by its end.

    Where the paths of several splits are given (``others``), the end has the part that names its split.
    """
    if not name or "\0" in name:
        return None
    parts = _split_path(name)
    if len(parts) > _MAX_PARTS:
        return None
    by_end = by_end or ".." in parts or name[0] in "/\\" or name[1:2] == ":"
    stop = len(parts) if by_end else 1
    named = [each for entries in (others or {}).values() for each in entries if each != name] if by_end else []
    if rivals := [_split_path(each) for each in named]:
        same = min(_count_same(parts, each) for each in rivals)  # what all begin with names none of them
        split = next((at + 1 for at in range(len(parts) - 1, same - 1, -1) if find_split(parts[at])), None)
        stop = split or max(1, len(parts) - max(_count_same(parts[::-1], each[::-1]) for each in rivals))
    for start in range(stop):
        for base in bases:
            path = Path(os.path.normpath(base.joinpath(*parts[start:])))
            if path.is_relative_to(source.root) and os.path.exists(path):  # noqa: PTH110  # False for names that are too long
                return path
    return None


def _count_same(parts: list[str], others: list[str]) -> int:
    """Return the number of parts with which both begin."""
    differ = (at for at, (first, second) in enumerate(zip(parts, others, strict=False)) if first != second)
    return next(differ, min(len(parts), len(others)))


def _split_path(name: str) -> list[str]:
    return [part for part in name.replace("\\", "/").split("/") if part not in {"", "."}]


def parse_yaml(text: str) -> Value:
    """Return the content of a document; every scalar is a text, as it stands in the file, and tags mean nothing.

    Raises ValueError if it is no YAML, or is above a limit. Raises OptionalPackageError if PyYAML is not installed.
    """
    yaml = require("yaml", extra="yolo", purpose="to read YAML")
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"it must have at most {_MAX_LENGTH:,} characters, got {len(text):,}")
    try:
        # `BaseLoader` constructs no objects and no numbers: `no` is a class name, not a boolean.
        loader = yaml.BaseLoader(text)
        _bound(loader, yaml.AliasEvent)
        return loader.get_single_data()
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"it is no YAML: {error!s:.500}") from error


def _bound(loader: Value, alias_event: type) -> None:
    """Limit the aliases and the depth of what a loader composes."""
    compose = loader.compose_node
    aliases = depth = 0

    def compose_bounded(parent: object, index: object) -> Value:
        nonlocal aliases, depth
        aliases += loader.check_event(alias_event)
        depth += 1
        if aliases > _MAX_ALIASES or depth > _MAX_DEPTH:
            raise ValueError(f"it must have at most {_MAX_ALIASES} aliases, and be nested at most {_MAX_DEPTH} deep")
        try:
            return compose(parent, index)
        finally:
            depth -= 1

    loader.compose_node = compose_bounded
