"""Each set of rows of text is recognised by its own format, and by no other of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from penstock.annotations import FORMATS
from penstock.annotations.source import AnnotationSource
from tests.annotations import test_open_images, test_path_list, test_retinaface, test_yolo
from tests.annotations.damage import put, put_image

SETS: Final[dict[str, Callable[[Path], object]]] = {
    "yolo": test_yolo.make_set,
    "retinaface": test_retinaface.make_set,
    "open_images": test_open_images.make_set,
    "path_list": lambda folder: test_path_list.make_set(folder, test_path_list.NUMBERS),
}


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_recognised_by_its_format_alone(tmp_path: Path, name: str) -> None:
    """So that their order does not matter."""
    SETS[name](tmp_path)
    source = AnnotationSource.open(tmp_path, None)

    assert [each for each in SETS if FORMATS.get(each).recognises(source)] == [name]


def test_a_folder_of_pictures_is_of_no_format(tmp_path: Path) -> None:
    """With a text about them."""
    for name in ("a.jpg", "b.jpg"):
        put_image(tmp_path / name)
    put(tmp_path / "README.txt", "Two pictures, taken in 2020.")
    put(tmp_path / "settings.yaml", "a: b")

    assert [each for each in SETS if FORMATS.get(each).recognises(AnnotationSource.open(tmp_path, None))] == []
