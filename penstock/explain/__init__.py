"""The pages that explain errors, findings of the doctor and of ``check``, and verdicts: Markdown files in ``pages/``.

Called by ``penstock explain``; the same files are a part of the documentation. ``pages/index.md`` lists them in groups.
An error names its page by :func:`penstock.errors.name_page`, a finding by its rule, a verdict by ``limit-`` and its
stage. This package reads files of its own, and nothing else of penstock but the names of errors.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Final

from penstock import errors

__all__ = ["find_page", "list_pages", "read_page"]

_ROW: Final = re.compile(r"\| \[([a-z-]+)\]\(\1\.md\) \| (.+) \|")


def list_pages() -> Mapping[str, Mapping[str, str]]:
    """The pages by group: of each its name, and in a few words what it is about."""
    groups: dict[str, dict[str, str]] = {}
    entries: dict[str, str] = {}
    for line in read_page("index").splitlines():
        if line.startswith("## "):
            entries = groups.setdefault(line.removeprefix("## "), {})
        elif row := _ROW.fullmatch(line):
            entries[row[1]] = row[2]
    return groups


def find_page(name: str) -> str:
    """The name of the page that ``name`` means.

    Parameters
    ----------
    name : str
        A page (``corrupt-record``), or the class of an error (``CorruptRecordError``, ``penstock.CorruptRecordError``).

    Raises
    ------
    ArgumentError
        If there is no such page; the message names similar pages, or those whose text has the name.
    """
    wanted = name.strip().rpartition(".")[2]
    kind = getattr(errors, wanted, None)
    if isinstance(kind, type) and issubclass(kind, errors.PenstockError):
        return errors.name_page(kind)
    wanted = wanted.lower().replace("_", "-")
    names = [each for entries in list_pages().values() for each in entries]
    if wanted in names:
        return wanted
    if told := [each for each in names if f"`{name.strip()}`" in read_page(each)]:
        hint = f"these pages tell of it: {', '.join(told)}"
    elif near := difflib.get_close_matches(wanted.removesuffix("error"), names, n=3):
        hint = f"did you mean {' or '.join(near)}?"
    elif told := _search(name, names):
        hint = f"these pages have its words: {', '.join(told)}"
    else:
        hint = "`penstock explain` lists all pages"
    raise errors.ArgumentError(f"there is no page {name!r:.80}; {hint}")


def _search(text: str, names: Iterable[str]) -> list[str]:
    """The three pages that have all words of a text, such as a part of a message; those with the text itself first."""
    phrase, words = text.strip().lower(), re.findall(r"[a-z]{3,}", text.lower())
    ranks: dict[str, tuple[bool, int]] = {}
    for name in names:
        page = read_page(name).lower()
        counts = [len(re.findall(rf"\b{word}s?\b", page)) for word in words]
        if counts and all(counts):
            ranks[name] = phrase not in page, -sum(counts)
    return sorted(ranks, key=ranks.__getitem__)[:3]


def read_page(name: str) -> str:
    """Return the text of a page, as Markdown; ``name`` is ``index``, or one that :func:`list_pages` has."""
    return resources.files(__name__).joinpath("pages", f"{name}.md").read_text(encoding="utf-8")
