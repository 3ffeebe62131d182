"""Folders that look like /proc and /sys of machines that the tests do not run on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.system.system_files import SystemFiles


def make_system(root: Path, contents: Mapping[str, str]) -> SystemFiles:
    """A root folder with these files; a content that begins with ``->`` is a link to another one."""
    for path, content in contents.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("->"):
            place.symlink_to(root / content[2:].strip().lstrip("/"))
        else:
            place.write_text(content)
    return SystemFiles(root)
