"""Kinds of the values of a sample, which decide how an op moves them.

Fields of a mapping have the kind of their name: image, boxes, keypoints, mask, instances. A field whose name
looks like a target (``bbox``), but has no kind, would not move with the image: :func:`infer_kinds` refuses it. Used by
:mod:`penstock.transforms.pipeline` and by datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from penstock.errors import ArgumentError
from penstock.fields.names import guess_kind
from penstock.sample import Field, Index, Sample, Tree, tree_leaves

__all__ = ["Held", "check_kinds", "collect_values", "infer_kinds", "map_values", "unknown_kind_error"]

Path = tuple[Index, ...]
"""The keys and positions by which a value inside a sample is reached."""

Held = tuple[str, Sample]
"""The kind of a value of a sample, and the value."""

_MOVED: Final = ("image", "boxes", "keypoints", "mask", "instances")
"""Kinds that ops act on; values of other kinds are unchanged."""

_SHAPES: Final = "boxes: (n, 4), x0, y0, x1, y1 in pixels; keypoints: (n, 2) or (n, 3); mask: one HW array"
_NOUNS: Final = {"boxes": "boxes", "keypoints": "points in the picture", "mask": "a mask"}
_DEEPEST: Final = 4
"""Levels of nested mappings that are searched."""


def check_kinds(kinds: Tree) -> None:
    """Raise ArgumentError if a leaf of ``kinds`` is not a kind."""
    for kind in tree_leaves(kinds):
        if kind is not None and kind not in _MOVED:
            Field(kind)


def infer_kinds(sample: Sample, mover: object = None) -> Tree:
    """Kinds of the values of a sample, by position and name.

    ``sample``: a bare image; a tuple or list, whose first value is the image; or a mapping. ``mover``: the op that
    moves the image, for the error. None: the image does not move, and no field is refused. Raises ArgumentError if a
    field looks like a target and has no kind.
    """
    if isinstance(sample, Mapping):
        kinds = {name: name for name in sample if name in _MOVED}
        if mover is not None:
            for name, value in sample.items():
                for path in [] if name in kinds else _find_targets(name, value):
                    raise unknown_kind_error(path, mover, {**kinds, **_nested(path)}, kinds)
        return kinds
    if isinstance(sample, tuple | list):
        of_tuple = ("image", *(None for _ in sample[1:]))
        if mover is not None:
            names = getattr(sample, "_fields", None)
            for place, value in enumerate(sample[1:], 1):
                name = None if names is None else names[place]
                for path in _find_targets(name, value) if name is not None or isinstance(value, Mapping) else ():
                    inner = _nested(path[1:]) if len(path) > 1 else guess_kind(name)
                    tree = (*of_tuple[:place], inner, *of_tuple[place + 1 :])
                    raise unknown_kind_error((place, *path[1:]) if name is None else path, mover, tree, of_tuple)
        return of_tuple
    return "image"


def unknown_kind_error(path: Path, mover: object, moved: Tree, left: Tree) -> ArgumentError:
    """Return the error for the field at ``path``; ``moved`` and ``left``: kinds with which it moves, and does not."""
    where = "" if len(path) == 1 else f", sample{''.join(f'[{step!r}]' for step in path)},"
    looks = _NOUNS[guess_kind(path[-1]) or "mask"]
    return ArgumentError(
        f"the field {path[-1]!r}{where} looks like {looks}, but its kind is not known: it would stay in place while "
        f"{mover!r} moves the image. Give kinds={moved!r} to move it ({_SHAPES}), or kinds={left!r} to leave it there"
    )


def map_values(kinds: Tree, sample: Sample, visit: Callable[[str | None, Sample], Sample]) -> Sample:
    """A copy of ``sample`` with ``visit(kind, value)`` in place of each value that has a kind.

    The structures must agree; :func:`collect_values` checks that.
    """
    if kinds is None or type(kinds) is str:
        return visit(kinds, sample)
    if isinstance(kinds, Mapping):
        return {**sample, **{name: map_values(kind, sample[name], visit) for name, kind in kinds.items()}}
    values = [map_values(kind, value, visit) for kind, value in zip(kinds, sample, strict=True)]
    return type(sample)(*values) if hasattr(sample, "_fields") else type(sample)(values)


def collect_values(kinds: Tree, sample: Sample) -> list[Held]:
    """(kind, value) of the values that have a kind, in order.

    Raises ArgumentError if the sample has another structure.
    """
    found: list[Held] = []
    _collect_values(kinds, sample, found)
    return found


def _collect_values(kinds: Tree, sample: Sample, found: list[Held]) -> None:
    if kinds is None:
        return
    if type(kinds) is str:
        found.append((kinds, sample))
    elif isinstance(kinds, Mapping):
        for name, kind in kinds.items():
            try:
                value = sample[name]
            except (KeyError, TypeError, IndexError) as error:
                raise _structure_error(kinds, name, sample) from error
            _collect_values(kind, value, found)
    elif not isinstance(sample, tuple | list) or len(kinds) != len(sample):
        held = f"of {len(sample)} values" if isinstance(sample, tuple | list) else f"of type {type(sample).__name__}"
        raise ArgumentError(f"a sample must have the structure of its kinds {kinds!r}, got one {held}")
    else:
        for kind, value in zip(kinds, sample, strict=True):
            _collect_values(kind, value, found)


def _structure_error(kinds: Mapping[Index, Tree], name: Index, sample: Sample) -> ArgumentError:
    if not isinstance(sample, Mapping):
        return ArgumentError(
            f"a sample must have the structure of its kinds {kinds!r}, got one of type {type(sample).__name__}"
        )
    return ArgumentError(f"kinds must name fields of the sample ({', '.join(map(str, sample))}), got {name!r}")


def _find_targets(name: Index, value: Sample, depth: int = 0) -> Iterator[Path]:
    """Paths of values that look like targets by their names: the value itself, or fields of nested mappings."""
    kind = guess_kind(name)
    if kind is not None and _can_be(kind, value):
        yield (name,)
    elif isinstance(value, Mapping) and depth < _DEEPEST:
        for inner, held in value.items():
            yield from ((name, *path) for path in _find_targets(inner, held, depth + 1))


def _nested(path: Path) -> Tree:
    tree: Tree = guess_kind(path[-1])
    for step in reversed(path):
        tree = {step: tree}
    return tree


def _can_be(kind: str, value: Sample) -> bool:
    """Return whether a value can be a target of this kind; numbers, text and 1-D masks (of tokens) cannot."""
    if isinstance(value, bytes | bytearray | memoryview):
        return kind == "mask"
    if isinstance(value, list | tuple):
        return kind != "mask" or any(isinstance(part, list | tuple) or hasattr(part, "shape") for part in value)
    dimensions = len(getattr(value, "shape", ()))
    if kind == "mask":
        return dimensions >= 2 or type(value).__module__.partition(".")[0] == "PIL"
    return dimensions >= 1
