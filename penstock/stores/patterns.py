"""Patterns of paths and of URLs: braces, which give names in their order, and wildcards, which give what is there."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Sequence
from typing import Final

from penstock.errors import ArgumentError
from penstock.paths import refuse_remote
from penstock.stores.fields.record_names import make_natural_key

__all__ = ["expand_braces", "expand_shards", "is_own_file"]

_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_RANGE: Final = re.compile(r"([0-9]+)\.\.([0-9]+)")
_MAX_SHARDS: Final = 1_000_000
_OWN_SUFFIX: Final = ".index.npz"
"""Of the indexes beside shards (:mod:`penstock.stores.common.record_index`), which ``train*`` would match."""


def expand_shards(pattern: str) -> list[str]:
    """Return the paths that a pattern stands for.

    Parameters
    ----------
    pattern : str
        A path with braces (``train-{000..009}.tar``, ``{a,b}.tar``), whose order they give, or with wildcards
        (``train-*.tar``), in natural order, as the files of a folder are. A path without either, or of an existing
        file, stands for itself.

    Raises
    ------
    ArgumentError
        If the braces give more than a million paths.

    Examples
    --------
    >>> expand_shards("{train,val}-{08..10}.tar")[2:4]
    ['train-10.tar', 'val-08.tar']
    """
    if os.path.lexists(pattern):
        return [pattern]
    refuse_remote(pattern)
    return [found for path in expand_braces(pattern) for found in _expand_wildcards(path)]


def expand_braces(pattern: str) -> list[str]:
    """Return the texts that the braces of a pattern give, in their order.

    Raises ArgumentError if they are more than a million.
    """
    pieces = _BRACES.split(pattern)  # text, content of braces, text, ...
    choices = [_expand_braces(piece) if number % 2 else [piece] for number, piece in enumerate(pieces)]
    count = 1
    for each in choices:
        count *= len(each)
    if count > _MAX_SHARDS:
        raise ArgumentError(f"a pattern must give at most {_MAX_SHARDS} shards, got {count} from {pattern!r}")
    return ["".join(parts) for parts in itertools.product(*choices)]


def is_own_file(name: str) -> bool:
    """Return whether a file is an index that lies beside a shard, which wildcards do not stand for."""
    return name.endswith(_OWN_SUFFIX)


def _expand_wildcards(path: str) -> list[str]:
    if os.path.lexists(path) or not glob.has_magic(path):
        return [path]
    found = glob.glob(path)  # noqa: PTH207  # the pattern may be absolute
    return sorted((each for each in found if not is_own_file(each)), key=make_natural_key)


def _expand_braces(content: str) -> Sequence[str]:
    span = _RANGE.fullmatch(content)
    if span is None:
        return content.split(",") if "," in content else [f"{{{content}}}"]
    first, last = int(span[1]), int(span[2])
    if abs(last - first) >= _MAX_SHARDS:
        raise ArgumentError(f"a pattern must give at most {_MAX_SHARDS} shards, got {{{content}}}")
    step = 1 if first <= last else -1
    width = len(span[1]) if span[1].startswith("0") or len(span[1]) == len(span[2]) else 0
    return [f"{number:0{width}d}" for number in range(first, last + step, step)]
