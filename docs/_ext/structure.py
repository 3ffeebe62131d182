"""The order of the site's pages: one tree, from which the navigation is made.

Pages are plain Markdown that GitHub shows too, so none of them has a table of contents for Sphinx. ``add_toctree``
appends one to the pages that are named here, while they are read. A page that does not exist is left out; one that
exists and is not named here is reported by Sphinx.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from docs._ext.benchmarks import TOPICS

__all__ = ["CHILDREN", "add_toctree", "expand_children", "mend_links"]

CHILDREN: Final[dict[str, tuple[str, ...]]] = {
    "docs/index": (
        "docs/start",
        "docs/tutorials/index",
        "docs/howto/index",
        "penstock/explain/pages/index",
        "docs/reference/index",
        "docs/how-it-works",
        "docs/decisions/README",
        "docs/benchmarks",
        "docs/compare",
        "docs/project",
    ),
    "docs/start": ("docs/first-hour", "docs/guide", "docs/from-torch", "docs/torchvision"),
    "docs/tutorials/index": (
        "docs/tutorials/classification",
        "docs/tutorials/detection",
        "docs/tutorials/segmentation",
        "docs/tutorials/landmarks",
        "docs/tutorials/table",
        "docs/tutorials/containers",
        "docs/tutorials/own_dataset",
        "docs/tutorials/*",
    ),
    "docs/howto/index": (
        "docs/howto/*",
        "docs/stores",
        "docs/view",
        "docs/packing",
        "docs/formats",
        "docs/augmentation",
        "docs/detection",
        "docs/samplers",
        "docs/streams",
        "docs/mixtures",
        "docs/ray",
        "docs/distributed",
        "docs/planning",
        "docs/gpu",
        "docs/augmenting-on-a-device",
        "docs/faults",
        "docs/viewer-live",
        "docs/doctor",
        "docs/check",
        "docs/platforms",
        "docs/traps/*",
    ),
    "penstock/explain/pages/index": ("penstock/explain/pages/*",),
    "docs/reference/index": (
        "docs/reference/api/by-task",
        "docs/reference/api/packages/*",
        "docs/command-line",
        "docs/reference/api/native",
    ),
    "docs/how-it-works": ("ARCHITECTURE", "docs/performance", "docs/scaled-decoding"),
    "docs/decisions/README": ("docs/decisions/*",),
    "docs/benchmarks": (
        "docs/benchmarks/slower",
        *(f"docs/benchmarks/{script}" for script in TOPICS),
        "docs/benchmarks/*",
        "benches/results/*",
    ),
    "docs/project": (
        "CONTRIBUTING",
        "docs/good-first-issues",
        "docs/releasing",
        "STABILITY",
        "SECURITY",
        "CODE_OF_CONDUCT",
        "CHANGELOG",
        "changelog.d/README",
    ),
}
"""For a page, the pages below it, in order. A pattern stands for the pages that match and are not named elsewhere."""

STANDING_FOR: Final = {
    "README.md": "docs/start.md",
    "docs": "docs/index.md",
    "docs/decisions": "docs/decisions/README.md",
    "docs/traps": "docs/check.md",
    "docs/problems": "penstock/explain/pages/index.md",
    "penstock/explain/pages": "penstock/explain/pages/index.md",
    "docs/tutorials": "docs/tutorials/index.md",
    "docs/howto": "docs/howto/index.md",
    "docs/reference/examples": "docs/reference/api/by-task.md",
    "benches/results": "docs/benchmarks.md",
}
"""The page of the site that a link to a folder leads to, whose files GitHub lists."""


def expand_children(page: str, found: Iterable[str]) -> list[str]:
    """The pages below ``page`` that exist, in order.

    Parameters
    ----------
    page : str
        A page's name: its path from the root of the repository, without the ending.
    found : iterable of str
        The names of all pages that exist.
    """
    names = sorted(found)
    named = {child for children in CHILDREN.values() for child in children} | set(CHILDREN) | {"docs/index"}
    children: list[str] = []
    for child in CHILDREN.get(page, ()):
        matching = [name for name in names if fnmatchcase(name, child) and (name == child or name not in named)]
        # A pattern stands for one folder, and not for those below it.
        children += [name for name in matching if name.count("/") == child.count("/")]
    return children


def add_toctree(page: str, text: str, found: Iterable[str]) -> str:
    """The text of a page, and after it a hidden toctree of the pages below it."""
    children = expand_children(page, found)
    if not children:
        return text
    return "\n".join(
        [text.rstrip(), "", "```{toctree}", ":hidden:", "", *(f"/{child}" for child in children), "```", ""]
    )


def mend_links(page: str, text: str) -> str:
    """The text of a page whose links to folders lead to the pages that stand for them.

    ``docs/problems`` is a link to the folder of the pages of errors: their links to other pages begin there.
    """
    folder = posixpath.dirname(page)

    def replace(match: re.Match[str]) -> str:
        link, anchor = match[1], match[2] or ""
        is_problem = folder == "penstock/explain/pages" and link.startswith("../") and not link.startswith("../../../")
        target = posixpath.normpath(posixpath.join("docs/problems" if is_problem else folder, link))
        target = STANDING_FOR.get(target, target if is_problem else "")
        return f"](/{target}{anchor})" if target else match[0]

    return re.sub(r"\]\(([\w.][\w./-]*)(#[\w-]+)?\)", replace, text)
