"""``penstock demo``: a run on real photographs from packing to exact resume, compared with torch's loader.

The command calls :func:`run` where this folder lies beside the package. It needs the packages of the ``demo`` extra
(torch, torchvision, scikit-image), and writes only to the output folder.
"""

from __future__ import annotations

from pathlib import Path

from penstock.registry import require

__all__ = ["run"]


def run(images: Path | None = None, output: Path = Path("demo-output"), *, quick: bool = False) -> None:
    """Run the demo: pack, verify, show, measure, train, stop, resume, and diagnose. Each step prints its result.

    Parameters
    ----------
    images : Path, optional
        A folder of photographs with one sub-folder per class. By default, crops of the photographs in scikit-image.
    output : Path
        The folder for packs, pictures and the saved state. It is created if needed; the next run uses it again.
    quick : bool
        Use fewer images, rounds and epochs. The run takes seconds instead of minutes; its speeds are inaccurate.

    Raises
    ------
    OptionalPackageError
        If a package of the extra is not installed.
    ArgumentError
        If the folder has too few images.
    """
    require("torch", extra="demo", purpose="for the demo")
    from demo.tour import FULL, QUICK, Tour

    Tour(output, QUICK if quick else FULL).run(images)
