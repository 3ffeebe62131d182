"""The command ``demo``, which runs ``examples/demo`` of the checkout that penstock is imported from."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.app import app
from penstock.errors import PenstockError

__all__ = ["demo"]

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"


@app.command()
def demo(
    *,
    images: Annotated[
        Path | None,
        typer.Option(help="Your photographs, one sub-folder per class; by default crops of those in scikit-image."),
    ] = None,
    output: Annotated[Path, typer.Option(help="The folder for packs, pictures and the saved state.")] = Path(
        "demo-output"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Take seconds instead of minutes; the measured speeds are then inaccurate.")
    ] = False,
) -> None:
    """Pack photographs, compare loading speed with torch's loader, train on them, stop and resume."""
    if not (EXAMPLES / "demo" / "tour.py").is_file():
        raise PenstockError(
            "the demo is not installed with penstock: get a checkout of penstock's repository, where it lies in "
            "examples/demo, and run `make demo` there"
        )
    sys.path.insert(0, str(EXAMPLES))
    importlib.import_module("demo").run(images, output, quick=quick)
