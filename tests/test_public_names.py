"""The public names are a promise: each one resolves, is documented, and none comes or goes unnoticed."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import penstock as ps

PROMISED = [
    "AnnotationError",
    "ArgumentError",
    "ArrayDataset",
    "BatchForm",
    "BatchMemoryError",
    "BatchSampler",
    "BrokenImageError",
    "BucketBatchSampler",
    "ChainDataset",
    "ClassBalancedSampler",
    "ConcatDataset",
    "CopyPaste",
    "CorruptRecordError",
    "DataLoader",
    "Dataset",
    "DecodeError",
    "DeviceError",
    "DistributedSampler",
    "DistributedWeightedSampler",
    "Field",
    "ImageTooLargeError",
    "IncompleteStoreError",
    "IterableDataset",
    "NestedTensor",
    "Mixture",
    "Mosaic",
    "ObjectStorage",
    "OptionalPackageError",
    "PackError",
    "Padded",
    "PartitionedDataset",
    "PenstockError",
    "Ragged",
    "RandomSampler",
    "RayWorkers",
    "Record",
    "RecordIndexError",
    "RecordKeyError",
    "RepeatFactorSampler",
    "SampleError",
    "SampleMixUp",
    "Sampler",
    "Schema",
    "SequentialSampler",
    "Split",
    "StackDataset",
    "StallError",
    "StateError",
    "Store",
    "StoreDataset",
    "StreamDataset",
    "StoreError",
    "StoreFormatError",
    "StoreNotFoundError",
    "Subset",
    "SubsetRandomSampler",
    "UnsupportedImageError",
    "Viewer",
    "WeightedRandomSampler",
    "WorkerError",
    "World",
    "convert",
    "copy",
    "decode",
    "default_collate",
    "default_convert",
    "encode",
    "find_keys",
    "find_world",
    "get_worker_info",
    "index",
    "merge",
    "merge_states",
    "open",
    "pack",
    "random_split",
    "rng",
    "show",
    "simulate",
    "split",
    "verify",
    "view",
]

NEEDS_TORCH = ("penstock.torch",)


def modules() -> list[str]:
    """Every Python module of the package."""
    found = pkgutil.walk_packages(ps.__path__, "penstock.", onerror=lambda name: pytest.fail(f"cannot import {name}"))
    return [module.name for module in found if not module.name.endswith("._native")]


def test_the_surface_is_what_was_promised() -> None:
    """`penstock.__all__` is the promised list; a change to it is a change to this list, seen in review."""
    assert sorted(ps.__all__) == sorted(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
def test_each_public_name_resolves_and_is_documented(name: str) -> None:
    """Each public name is importable from `penstock`, shows in dir(), and says what it is."""
    thing = getattr(ps, name)

    assert name in dir(ps)
    assert callable(thing)
    assert inspect.getdoc(thing)


def test_the_version_is_the_one_that_is_installed() -> None:
    """`penstock.__version__` is the version of the distribution `penstock-data`, which Cargo.toml states."""
    cargo = tomllib.loads((Path(ps.__file__).parent.parent / "Cargo.toml").read_text())

    assert ps.__version__ == metadata.version("penstock-data") == cargo["workspace"]["package"]["version"]
    assert "__version__" in dir(ps)


def test_the_version_of_what_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the distribution it is an absent attribute, and the error says why."""

    def fail(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", fail)
    monkeypatch.delitem(vars(ps), "__version__", raising=False)

    with pytest.raises(AttributeError, match="'penstock-data' is not installed"):
        ps.__version__  # noqa: B018  # the access is the test


def test_type_checkers_and_the_interpreter_see_the_same_names() -> None:
    """What `penstock/__init__.py` imports under TYPE_CHECKING is what it gives lazily at run time."""
    tree = ast.parse(Path(ps.__file__).read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")

    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    declared = {a.asname or a.name: (node.module, a.name) for node in imports for a in node.names}

    assert sorted(declared) == sorted(ps.__all__)
    for public, (home, name) in declared.items():
        assert home is not None
        assert getattr(importlib.import_module(home), name) is getattr(ps, public)


@pytest.mark.parametrize("how", ["from penstock import annotations", "annotations = penstock.annotations"])
def test_packages_are_found_by_their_names(how: str) -> None:
    """Also the one whose name `from __future__ import annotations` takes; only asking imports them."""
    program = f"import sys, penstock; assert 'penstock.annotations' not in sys.modules; {how}; annotations.read"

    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails as Python's own attributes do."""
    with pytest.raises(AttributeError, match="Dataloader"):
        ps.Dataloader  # noqa: B018  # the access is the test


@pytest.mark.parametrize("module", modules())
def test_each_module_says_what_it_exports(module: str) -> None:
    """Every module has a docstring and an `__all__` whose names exist."""
    if module.startswith(NEEDS_TORCH):
        pytest.importorskip("torch")
    if module.endswith(".public_table"):
        pytest.importorskip("imread_benchmark")

    try:
        loaded = importlib.import_module(module)
        names = {name: hasattr(loaded, name) for name in getattr(loaded, "__all__", ())}
    except ps.OptionalPackageError as error:  # adapters of trainers: `make test-clients` has those
        pytest.skip(str(error))

    assert loaded.__doc__
    assert all(names.values()), f"{module}.__all__ names what is not there: {names}"


@pytest.mark.parametrize("module", ["penstock", "penstock.transforms"])
def test_dir_lists_public_names_only(module: str) -> None:
    """What a person sees after a dot is what may be used."""
    found = importlib.import_module(module)

    listed = {name for name in dir(found) if not name.startswith("__")}

    assert listed - set(found.__all__) == ({"annotations", "transforms"} if module == "penstock" else set())


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("ImageFolder", "it is in penstock.torch"),
        ("doctor", "a package to import by its name"),
        ("jax", "NumPy batches"),
        ("Pipeline", "it is in penstock.transforms"),
    ],
)
def test_names_that_are_elsewhere_say_where(name: str, place: str) -> None:
    """In a fresh process, since an imported package is an attribute."""
    program = f"import penstock\ntry: penstock.{name}\nexcept AttributeError as error: print(error)"

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert place in shown


def test_the_package_is_pickled_by_its_name() -> None:
    """As cloudpickle pickles what a function of a script refers to, which knows no subclass of modules."""
    assert pickle.loads(pickle.dumps(ps)) is ps
