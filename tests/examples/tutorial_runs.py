"""What the scripts of `examples/tutorials` print, compared with what their pages show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.examples.example_scripts import EXAMPLES

__all__ = ["OUTPUT", "SCRIPTS", "assert_as_recorded", "assert_learned", "folder_for"]

SCRIPTS: Final = EXAMPLES / "tutorials"
OUTPUT: Final = EXAMPLES.parent / "docs" / "tutorials" / "output"


def _mask_numbers(text: str) -> list[str]:
    """The lines of a text, with one mark for each number, and without values that a notebook shows as ``<...>``."""
    lines = [re.sub(r"\d+(\.\d+)?", "#", line.rstrip()) for line in text.splitlines()]
    return [line for line in lines if not line.startswith("# <")]


def assert_as_recorded(name: str, printed: str) -> None:
    """A script prints the lines that its page shows, but for numbers; those of equal batches are all of them."""
    assert _mask_numbers(printed) == _mask_numbers((OUTPUT / f"{name}.txt").read_text())
    for one, other in re.findall(r"(\d+) of (\d+) (?:batches are|images once)", printed):
        assert one == other != "0"


def assert_learned(printed: str) -> None:
    """Losses fall by a third or more, and classes are found three times as often as by chance among eleven."""
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", printed)]
    counts = re.findall(r"(\d+) of (\d+)[\w -]* correct", printed)
    assert losses or counts
    assert not losses or losses[-1] < losses[0] / 1.5
    assert all(int(correct) / int(total) > 3 / 11 for correct, total in counts[-1:])


def folder_for(tmp_path: Path) -> Path:
    """An empty folder to run in."""
    folder = tmp_path / "run"
    folder.mkdir()
    return folder
