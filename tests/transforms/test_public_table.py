"""The decoder that the program of the public table finds by its entry point."""

from __future__ import annotations

import abc
import io
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
MODULE = "penstock.transforms.decoding.public_table"


class _Decoder(abc.ABC):
    """What that program asks for: ``decode``, which is abstract, and the names of the row and the distribution."""

    name: str
    package_name: str

    @abc.abstractmethod
    def decode(self, data: bytes) -> object:
        """Decode a JPEG."""


def _load() -> type:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["imread_benchmark.decoders"]
    return EntryPoint("penstock", points["penstock"], "imread_benchmark.decoders").load()  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_the_entry_point_is_a_decoder_of_that_program(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subclass of its base class, whose arrays are RGB, contiguous, own their memory, and equal Pillow's."""
    library = ModuleType("imread_benchmark")
    library.decoders = ModuleType("imread_benchmark.decoders")  # type: ignore[attr-defined]
    library.decoders.BaseDecoder = _Decoder
    monkeypatch.setitem(sys.modules, "imread_benchmark", library)
    monkeypatch.setitem(sys.modules, "imread_benchmark.decoders", library.decoders)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    file = io.BytesIO()
    Image.effect_noise((40, 30), 60).convert(mode).save(file, "JPEG")

    kind = _load()
    pixels = kind().decode(file.getvalue())

    assert issubclass(kind, _Decoder)
    assert (kind.name, kind.package_name) == ("penstock", "penstock-data")
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert pixels.flags.owndata
    np.testing.assert_array_equal(pixels, np.array(Image.open(file).convert("RGB")))
    monkeypatch.delitem(sys.modules, MODULE)


def test_without_that_program_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of penstock imports the module, so that this is seen only by who asks for it."""
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setitem(sys.modules, "imread_benchmark", None)

    with pytest.raises(ModuleNotFoundError, match="imread_benchmark"):
        _load()
