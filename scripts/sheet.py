"""Draw docs/contact-sheet.jpg, the picture in README.md, from the demo's photographs (`make sheet`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.demo.photographs import write_photographs

SHEET = Path(__file__).resolve().parent.parent / "docs" / "contact-sheet.jpg"


def main() -> None:
    """Pack two photographs of each class and draw the sheet, with the commands that a user runs."""
    penstock = Path(sys.executable).with_name("penstock")
    with tempfile.TemporaryDirectory() as folder:
        write_photographs(Path(folder, "demo"), train=2, held_out=0)
        subprocess.run([penstock, "pack", "demo/train", "photos.lmdb"], cwd=folder, check=True)
        subprocess.run([penstock, "info", "photos.lmdb", "--sheet", SHEET], cwd=folder, check=True)


if __name__ == "__main__":
    main()
