"""``penstock demo``: a run on real photographs from packing to exact resume, next to torch's own loader.

The CLI calls :func:`run`; nothing else of penstock imports this folder. It needs the packages of the ``demo`` extra
(torch, torchvision, scikit-image) and writes below the one folder it is given.
"""

from __future__ import annotations

from pathlib import Path

from penstock.registry import require

__all__ = ["run"]


def run(images: Path | None = None, output: Path = Path("demo-output"), *, quick: bool = False) -> None:
    """Pack, verify, show, measure, train, stop and resume; prints what it does.

    Parameters
    ----------
    images : Path, optional
        A folder of photographs, one sub-folder a class. None: crops of the photographs inside scikit-image.
    output : Path
        Where packs, pictures and the saved state go; created if absent, and used again by the next run.
    quick : bool
        Fewer images, rounds and epochs: seconds instead of minutes, and figures that mean less.

    Raises
    ------
    OptionalPackageError
        If a package of the extra is absent.
    ArgumentError
        If the folder has too few images.
    """
    require("torch", extra="demo", purpose="for the demo")
    from penstock.demo.tour import FULL, QUICK, Tour

    Tour(output, QUICK if quick else FULL).run(images)
