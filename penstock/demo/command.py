"""The command ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.app import app
from penstock.demo import run

__all__ = ["demo"]


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
    run(images, output, quick=quick)
