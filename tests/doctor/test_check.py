"""penstock.torch.check: each rule yields a finding for its mistake, and none without it."""

from __future__ import annotations

import functools
import importlib
import io
import logging
import mmap
import multiprocessing
import random
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import types
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

import penstock as ps

torch = pytest.importorskip("torch")

from torch.utils import data as td  # noqa: E402  # it needs torch

from penstock import doctor  # noqa: E402  # as above
from penstock.datasets.object_graph import find_objects  # noqa: E402  # as above
from penstock.doctor import RULES, Finding, Report, check  # noqa: E402  # as above
from penstock.doctor.checks.checking import SCRIPT_RULES  # noqa: E402  # as above
from penstock.doctor.checks.rules.copied_objects import estimate_nbytes  # noqa: E402  # as above
from penstock.doctor.checks.subject import Subject  # noqa: E402  # as above
from penstock.torch import DataLoader  # noqa: E402  # as above
from penstock.torch.loader.recipe import choose_backend  # noqa: E402  # as above

GENERATOR = np.random.default_rng(0)


class Clean(td.Dataset[Any]):
    """Ten samples, with the attributes that a test passes."""

    itself: Any
    asked: list[int]
    sample: Callable[[int], Any]

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3)


def loader(dataset: Any, **kwargs: Any) -> Any:
    """torch's loader with two forked workers."""
    kwargs = {"batch_size": 2, "num_workers": 2, "multiprocessing_context": "fork", **kwargs}
    if kwargs["num_workers"] == 0:
        del kwargs["multiprocessing_context"]
    return td.DataLoader(dataset, **kwargs)


def found(report: Report, rule: str) -> list[Finding]:
    """The findings of one rule, after checking that no other rule found anything."""
    assert {finding.rule for finding in report} <= {rule}, str(report)
    return list(report)


def one(report: Report, rule: str) -> Finding:
    """The only finding."""
    (finding,) = found(report, rule)
    return finding


@pytest.fixture(autouse=True)
def enough_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have two cores: findings about threads and workers depend on it."""
    for name in ("loader_arguments", "thread_crowd", "sample"):
        module = importlib.import_module(f"penstock.doctor.checks.rules.{name}")
        monkeypatch.setattr(module, "count_usable_cores", lambda: 2)


# ---------------------------------------------------------------- clean datasets


def image_folder(folder: Path, **kwargs: Any) -> Any:
    """torchvision's ImageFolder with its usual transforms."""
    torchvision = pytest.importorskip("torchvision")
    from PIL import Image
    from torchvision.transforms import v2

    for name in ("cat", "dog"):
        (folder / name).mkdir(exist_ok=True)
        Image.new("RGB", (40, 30)).save(folder / name / "0.jpg")
    steps = [
        v2.RandomResizedCrop(16),
        v2.RandomHorizontalFlip(),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
    ]
    return torchvision.datasets.ImageFolder(str(folder), v2.Compose(steps), **kwargs)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_nothing_is_found_in_an_image_folder(tmp_path: Path, method: str, num_workers: int) -> None:
    """torchvision's ImageFolder with usual transforms has an empty report, with any loader, or without one."""
    dataset = image_folder(tmp_path)
    subset = td.random_split(dataset, [1, 1])[0]

    every: list[Any] = [dataset, subset, td.ConcatDataset([dataset, subset])]
    reports = [
        check(loader(each, num_workers=num_workers, multiprocessing_context=method, shuffle=True)) for each in every
    ]

    assert [list(report) for report in [*reports, check(dataset)]] == [[]] * 4


@pytest.mark.parametrize(
    "dataset",
    [
        td.TensorDataset(torch.zeros(1000, 3), torch.arange(1000)),
        ps.ArrayDataset(np.zeros((100, 3)), np.arange(100)),
        Clean(names=[f"{i}.jpg" for i in range(1000)], seed=3, path=Path("photos")),
        Clean(log=logging.getLogger(__name__), out=sys.stderr, memory=io.BytesIO(b"x")),
        [(i, str(i)) for i in range(100)],
    ],
    ids=["tensors", "arrays", "names", "streams", "list"],
)
def test_nothing_is_found_in_a_plain_dataset(dataset: Any) -> None:
    """Tensors, arrays, short lists, loggers, standard streams and files in memory are no mistakes."""
    reports = [check(loader(dataset)), check(loader(dataset, num_workers=0)), check(dataset)]

    assert [list(report) for report in reports] == [[], [], []]


def test_nothing_is_found_in_a_store(tmp_path: Path) -> None:
    """An open penstock store can be sent to workers."""
    image_folder(tmp_path)
    with ps.open(tmp_path) as store:
        dataset = ps.StoreDataset(store)
        reports = [check(dataset), *(check(loader(dataset, multiprocessing_context=m)) for m in ("fork", "spawn"))]

    assert [list(report) for report in reports] == [[], [], []]


def test_a_threaded_loader_of_penstock_is_clean_too() -> None:
    """Threads share the dataset, so no rule reports pickling or copying."""
    dataset = ps.ArrayDataset(np.zeros((10, 3)))

    report = check(ps.DataLoader(dataset, num_workers=2))

    assert not report


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"collate_fn": list},
        {"worker_init_fn": print},
        {"multiprocessing_context": "fork"},
        {"batch_size": None},
        {"workers": "processes"},
        {"workers": "threads"},
        {"num_workers": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("fills", [True, False])
def test_workers_auto_is_checked_as_the_loader_chooses(fills: bool, kwargs: dict[str, Any]) -> None:
    """With workers="auto", check expects the kind of worker that iter() then chooses."""
    dataset = td.TensorDataset(torch.zeros(10)) if fills else Clean()
    its_loader = DataLoader(dataset, **{"num_workers": 1, **kwargs})

    assert Subject(its_loader, 0).settings.kind == choose_backend(its_loader)


# ---------------------------------------------------------------- open handles


def handles(folder: Path, stack: ExitStack) -> dict[str, Any]:
    """One open handle of each kind that needs no server."""
    (folder / "x").write_bytes(b"x" * 100)
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.writestr("a", b"b")
    file = stack.enter_context((folder / "x").open("rb"))
    connection = sqlite3.connect(":memory:")
    stack.callback(connection.close)
    return {
        "file": file,
        "text": stack.enter_context((folder / "x").open(encoding="utf-8")),
        "raw": stack.enter_context((folder / "x").open("rb", buffering=0)),
        "socket": stack.enter_context(socket.socket()),
        "sqlite": connection,
        "lmdb": stack.enter_context(lmdb.open(str(folder / "lmdb"))),
        "zip": stack.enter_context(zipfile.ZipFile(folder / "x.zip")),
        "threads": stack.enter_context(ThreadPoolExecutor(1)),
    }


@pytest.mark.parametrize("kind", ["file", "text", "raw", "socket", "sqlite", "lmdb", "zip", "threads"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_open_handles_are_errors_with_worker_processes(tmp_path: Path, kind: str, method: str) -> None:
    """A handle that is opened before workers start is reported by its path, for fork and for spawn."""
    with ExitStack() as stack:
        dataset = Clean(parts={"a": [1, None, 2, handles(tmp_path, stack)[kind]]})
        report = check(loader(dataset, multiprocessing_context=method))

    finding = one(report, "open-handle")
    assert (finding.where, finding.severity) == ("dataset.parts['a'][3]", "error")
    assert "os.getpid()" in finding.advice


def test_a_memory_map_is_a_note_under_fork_and_an_error_under_spawn() -> None:
    """Forked processes read one map safely; a map cannot be pickled."""
    with mmap.mmap(-1, 100) as mapped:
        forked, spawned = (
            check(loader(Clean(map=mapped), multiprocessing_context=method)) for method in ("fork", "spawn")
        )

    assert one(forked, "open-handle").severity == "note"
    assert one(spawned, "open-handle").severity == "error"


def test_handles_are_notes_without_workers(tmp_path: Path) -> None:
    """With num_workers=0 an open file is a note: it becomes an error with worker processes."""
    with (tmp_path / "x").open("wb") as file:
        report = check(loader(Clean(file=file), num_workers=0))

    assert one(report, "open-handle").severity == "note"


def test_threads_share_a_position_but_not_a_pool(tmp_path: Path) -> None:
    """Threads change a file's position for one another; thread-safe handles are not reported."""
    with ExitStack() as stack:
        every = handles(tmp_path, stack)
        report = check(ps.DataLoader(Clean(**every), num_workers=2, workers="threads"))

    places = {finding.where.removeprefix("dataset.") for finding in found(report, "open-handle")}
    assert places == {"file", "text", "raw", "socket", "sqlite"}
    assert {finding.severity for finding in report} == {"warning"}


class DropsFileInState(Clean):
    """Removes its file in __getstate__."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "file": None}


class ReopensByPid(Clean):
    """Reads `os.getpid`, as if to open its file again in another process."""


def test_a_handle_removed_in_getstate_is_not_reported(tmp_path: Path) -> None:
    """With spawn, __getstate__ removes the handle; with fork it is not called."""
    with (tmp_path / "x").open("wb") as file:
        dataset = DropsFileInState(file=file)
        forked, spawned = (check(loader(dataset, multiprocessing_context=method)) for method in ("fork", "spawn"))

    assert one(forked, "open-handle").where == "dataset.file"
    assert not spawned


def test_a_class_that_reads_the_pid_is_assumed_to_reopen(tmp_path: Path) -> None:
    """Code that reads os.getpid() is assumed to reopen its handles."""
    with (tmp_path / "x").open("wb") as file:
        report = check(loader(ReopensByPid(file=file)))

    assert not report


def test_closed_handles_are_not_reported(tmp_path: Path) -> None:
    """A closed file, socket or archive has no effect in workers."""
    with ExitStack() as stack:
        kept = {name: handle for name, handle in handles(tmp_path, stack).items() if name in {"file", "socket", "zip"}}

    report = check(loader(Clean(**kept)))

    assert not report


def test_many_of_a_kind_are_one_finding(tmp_path: Path) -> None:
    """Handles at several indices of a list are one finding, with the first path and a count."""
    with ExitStack() as stack:
        files = [stack.enter_context((tmp_path / str(i)).open("wb")) for i in range(5)]
        report = check(loader(Clean(files=files)))

    assert one(report, "open-handle").where == "dataset.files[0] and 4 more like it"


def test_a_handle_in_a_closure_is_found(tmp_path: Path) -> None:
    """A transform that captures an open file takes the file to the workers."""
    with (tmp_path / "x").open("wb") as file:
        report = check(loader(Clean(transform=lambda x: (x, file))))

    assert one(report, "open-handle").where == "dataset.transform.__closure__['file']"


def test_libraries_are_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handles are classes of imported libraries, and their subclasses; a check imports no library."""
    library = types.ModuleType("pymongo")
    library.MongoClient = type("MongoClient", (), {})  # type: ignore[attr-defined]  # a module of this test's
    monkeypatch.setitem(sys.modules, "pymongo", library)
    client = type("Traced", (library.MongoClient,), {})()

    report = check(loader(Clean(client=client)))

    assert one(report, "open-handle").where == "dataset.client"


def test_hdf5_files_are_handles_while_they_are_open(tmp_path: Path) -> None:
    """An h5py file or dataset is a handle as long as it is open."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.zeros(3)
        is_open = check(loader(Clean(file=file, x=file["x"])))

    assert [finding.where for finding in found(is_open, "open-handle")] == ["dataset.file", "dataset.x"]
    assert not check(loader(Clean(file=file)))


# ---------------------------------------------------------------- objects that are copied

# Large containers are created in their test, because more memory makes every fork of a whole run slower.
NAMES = [f"a/folder/with/photographs/number/{i:07d}.jpg" for i in range(200_000)]  # 18 MB


@pytest.mark.parametrize(
    "held",
    [
        lambda: NAMES,
        lambda: tuple(NAMES),
        lambda: set(NAMES),
        lambda: dict.fromkeys(NAMES, 0),
        lambda: [(name, 0) for name in NAMES],
        lambda: np.array(NAMES, object),
        lambda: [{"id": i + 1000, "box": [float(i), 0.5, 0.5, 0.5]} for i in range(60_000)],
    ],
    ids=["list", "tuple", "set", "dict", "pairs", "objects", "records"],
)
def test_large_containers_of_objects_are_reported(held: Callable[[], Any]) -> None:
    """Containers of hundreds of thousands of objects are reported, with an estimate for all workers together."""
    report = check(loader(Clean(held=held())))

    finding = one(report, "copied-objects")
    assert (finding.where, finding.severity) == ("dataset.held", "note")
    assert "Each of 2 workers" in finding.what
    assert "in all" in finding.what


def test_the_estimate_grows_with_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same list takes more memory with more workers: a note becomes a warning."""
    monkeypatch.setattr(sys.modules["penstock.doctor.checks.rules.loader_arguments"], "count_usable_cores", lambda: 64)
    with pytest.warns(UserWarning, match="max number of worker"):
        many = loader(Clean(names=NAMES), num_workers=32)

    assert one(check(many), "copied-objects").severity == "warning"
    assert one(check(loader(Clean(names=NAMES))), "copied-objects").severity == "note"


@pytest.mark.parametrize(
    "held",
    [
        lambda: np.array(NAMES),
        lambda: torch.arange(5_000_000),
        lambda: list(range(256)) * 10_000,
        lambda: ["cat", "dog"] * 1_000_000,
        lambda: sorted(list(range(1000, 2000)) * 1000),
        lambda: [b"x" * 50_000_000],
    ],
    ids=["text array", "tensor", "small ints", "shared strings", "sorted labels", "one blob"],
)
def test_arrays_and_repeated_objects_are_not_reported(held: Callable[[], Any]) -> None:
    """Arrays, tensors, and lists that repeat few objects are not copied when workers read them."""
    report = check(loader(Clean(held=held())))

    assert not report


def test_long_lists_are_not_reported_without_worker_processes() -> None:
    """Without fork or pickling, no list is copied."""
    dataset = Clean(names=NAMES)

    assert not check(ps.DataLoader(dataset, num_workers=2, workers="threads"))
    assert not check(loader(dataset, num_workers=0))


def test_the_estimate_is_accurate_for_regular_lists() -> None:
    """For a list of equal elements, the estimate differs from the sum of sizes by less than a tenth."""
    pairs = [(f"{i:09d}", i + 1000) for i in range(10_000)]

    truth = sum(sys.getsizeof(pair) + sum(map(sys.getsizeof, pair)) for pair in pairs)

    assert abs(estimate_nbytes(pairs) - truth) < 0.1 * truth


def test_a_text_column_of_a_data_frame_is_reported() -> None:
    """A column of Python strings in a data frame is a list of objects."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"label": np.zeros(len(NAMES)), "path": pandas.Series(NAMES, dtype=object)})

    report = check(loader(Clean(frame=frame)))

    assert one(report, "copied-objects").where == "dataset.frame['path']"


# ---------------------------------------------------------------- randomness

GENERATORS: list[Callable[[], Any]] = [
    lambda: np.random.default_rng(0),
    lambda: np.random.RandomState(0),
    lambda: random.Random(0),
    torch.Generator,
]


@pytest.mark.parametrize("make", GENERATORS, ids=["default_rng", "RandomState", "Random", "torch"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_generator_in_the_dataset_is_copied(make: Callable[[], Any], method: str) -> None:
    """Each worker continues from the parent's state: all draw the same numbers, in every epoch."""
    report = check(loader(Clean(transforms=[None, Clean(rng=make())]), multiprocessing_context=method))

    finding = one(report, "shared-generator")
    assert (finding.where, finding.severity) == ("dataset.transforms[1].rng", "error")
    assert "next epoch" in finding.what


class DrawsFromAModule(Clean):
    def __getitem__(self, index: int) -> Any:
        return GENERATOR.random()


def test_a_generator_in_a_module_is_copied_too() -> None:
    """A global generator in __getitem__ is reported as an attribute is."""
    finding = one(check(loader(DrawsFromAModule())), "shared-generator")

    assert "global GENERATOR in DrawsFromAModule.__getitem__ (test_check.py, line" in finding.where


class SeedsByWorker(Clean):
    def __getitem__(self, index: int) -> Any:
        worker = td.get_worker_info()
        if worker is not None:
            self.rng = np.random.default_rng(worker.seed)
        return self.rng.random()


def renew(worker: int) -> None:
    """Give each worker its own generator, as many users do."""
    info = td.get_worker_info()
    assert info is not None
    dataset: Any = info.dataset
    dataset.rng = np.random.default_rng(info.seed)


def test_generators_that_are_seeded_by_worker_are_not_reported() -> None:
    """Code, or a worker_init_fn, that reads the worker's id or seed is assumed to seed its generator."""
    rng = np.random.default_rng(0)

    assert not check(loader(SeedsByWorker(rng=rng)))
    assert not check(loader(Clean(rng=rng), worker_init_fn=renew))
    assert not check(loader(Clean(rng=random.SystemRandom())))


def test_a_generator_that_threads_share_is_a_warning() -> None:
    """Threads draw from one generator in a random order."""
    finding = one(
        check(ps.DataLoader(Clean(rng=np.random.default_rng(0)), num_workers=2, workers="threads")), "shared-generator"
    )

    assert finding.severity == "warning"


class DrawsFromRandom(Clean):
    def __getitem__(self, index: int) -> Any:
        return random.random()


class DrawsFromNumpy(Clean):
    def __getitem__(self, index: int) -> Any:
        return self.noise(3)

    def noise(self, count: int) -> Any:
        """Called by __getitem__."""
        return np.random.rand(count)  # noqa: NPY002  # what many write, and the check is to find


class DrawsFromTorch(Clean):
    def __getitem__(self, index: int) -> Any:
        return flip(torch.zeros(3))


def flip(x: Any) -> Any:
    """A random transform as a function."""
    import random as luck

    return x if luck.choice([True, False]) else -x


def jitter(x: Any) -> Any:
    """Another random transform."""
    return x + torch.randn(3)


class Jitter:
    def __call__(self, x: Any) -> Any:
        """Call a function that draws."""
        return jitter(x)


@pytest.mark.parametrize(
    ("dataset", "drawn", "where"),
    [
        (DrawsFromRandom(), "random.random", "DrawsFromRandom.__getitem__"),
        (DrawsFromNumpy(), "numpy.random.rand", "DrawsFromNumpy.noise"),
        (DrawsFromTorch(), "random.choice", "flip"),
        (Clean(transform=jitter), "torch.randn", "jitter"),
        (Clean(transform=functools.partial(jitter)), "torch.randn", "jitter"),
        (Clean(transform=[Jitter()]), "torch.randn", "jitter"),
        (Clean(transform=lambda x: x * random.gauss(0, 1)), "random.gauss", "<lambda>"),
    ],
)
def test_draws_from_global_generators_are_notes(dataset: Any, drawn: str, where: str) -> None:
    """They are found in methods, functions, partials, lambdas and local imports, with their names and lines."""
    finding = one(check(loader(dataset)), "global-randomness")

    assert finding.severity == "note"
    assert f"({drawn})" in finding.what
    assert where in finding.where
    assert "test_check.py, line" in finding.where


class DrawsWell(Clean):
    def __getitem__(self, index: int) -> Any:
        own = random.Random(index)
        keyed = np.random.default_rng(index)
        return own.random(), keyed.random(), ps.rng().random(), torch.rand(3, generator=torch.Generator())


def test_generators_of_a_sample_are_not_reported() -> None:
    """penstock.rng(), a generator created for the sample, and torch.rand with a generator are correct."""
    report = check(loader(DrawsWell()))

    assert not report


def test_global_draws_are_not_reported_with_seed_per_sample() -> None:
    """seed_per_sample=True seeds the global generators for each sample."""
    keyed = loader(DrawsFromRandom())
    keyed.seed_per_sample = True

    assert not check(keyed)


def of_a_package(**attributes: Any) -> Any:
    """An object that looks like one of an installed package."""
    held = type("Augment", (), {"__module__": "hypothesis"})()
    vars(held).update(attributes)
    return held


RNG = np.random.default_rng(0)
AUGMENT = of_a_package(rng=np.random.default_rng(0))


class UsesGlobals(Clean):
    def __getitem__(self, index: int) -> Any:
        return augment(RNG.random())


def augment(x: Any) -> Any:
    """A function with a transform of a package."""
    return AUGMENT.rng.random() + x


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("dataset", "where"),
    [
        (Clean(rng=np.random.default_rng(0)), ["dataset.rng"]),
        (Clean(steps=[random.Random(0)]), ["dataset.steps[0]"]),
        (Clean(generator=torch.Generator()), ["dataset.generator"]),
        (Clean(augment=of_a_package(rng=np.random.RandomState(0))), ["dataset.augment.rng"]),
        (
            UsesGlobals(),
            [
                "dataset.__getitem__.__globals__['RNG']",
                "dataset.__getitem__.__globals__['augment'].__globals__['AUGMENT'].rng",
            ],
        ),
    ],
)
def test_unseeded_generators_are_reported_with_seed_per_sample(
    dataset: Any, where: list[str], num_workers: int
) -> None:
    """seed_per_sample=True does not seed the user's generators and those of unknown libraries."""
    keyed = DataLoader(dataset, num_workers=num_workers, seed_per_sample=True)

    report = found(check(keyed), "shared-generator")

    assert [finding.where for finding in report] == where
    assert all(finding.severity == "warning" and "seed_per_sample" in finding.what for finding in report)
    assert "albumentations" in report[0].advice


def test_seeded_generators_are_not_reported_with_seed_per_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The global generators, also by their methods, and those of known libraries are seeded."""

    class Compose:
        def __init__(self) -> None:
            self.random_generator, self.py_random = np.random.default_rng(0), random.Random(0)

        def set_random_state(self, random_generator: Any, py_random: Any) -> None:
            """The method of albumentations."""

    module: Any = types.ModuleType("albumentations")
    module.BaseCompose = module.BasicTransform = Compose
    monkeypatch.setitem(sys.modules, "albumentations", module)
    dataset = Clean(compose=Compose(), draw=random.choice, torch=torch.default_generator, more=[{"a": Compose()}])

    assert not found(check(DataLoader(dataset, num_workers=2, seed_per_sample=True)), "shared-generator")


def same_seed(worker: int) -> None:
    """Seed all workers alike, a common mistake."""
    np.random.seed(0)  # noqa: NPY002  # what many write, and the check is to find


def other_seed(worker: int) -> None:
    """Seed each worker differently."""
    np.random.seed(worker)  # noqa: NPY002  # as above


def test_workers_with_one_seed_draw_one_sequence() -> None:
    """A worker_init_fn that seeds with a constant gives all workers the same numbers."""
    report = check(loader(Clean(), worker_init_fn=same_seed))

    finding = one(report, "global-randomness")
    assert (finding.severity, "same_seed" in finding.where) == ("error", True)
    assert not check(loader(Clean(), worker_init_fn=other_seed))


# ---------------------------------------------------------------- threads in workers


def fake_opencv(threads: int) -> types.ModuleType:
    """The part of OpenCV that a check reads."""
    cv2: Any = types.ModuleType("cv2")
    cv2.getNumThreads = lambda: threads
    return cv2  # type: ignore[no-any-return]  # a module with an attribute


class ReadsWithOpenCV(Clean):
    def __getitem__(self, index: int) -> Any:
        import cv2  # type: ignore[import-not-found]  # OpenCV need not be there

        return cv2.imread("x")


def limit(worker: int) -> None:
    """Turn OpenCV's threads off."""
    import cv2

    cv2.setNumThreads(0)


def test_opencv_starts_threads_in_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a note if it is imported, a warning if samples use it, and not reported with one thread."""
    monkeypatch.setitem(sys.modules, "cv2", fake_opencv(8))

    assert one(check(loader(Clean())), "thread-crowd").severity == "note"
    assert one(check(loader(ReadsWithOpenCV())), "thread-crowd").severity == "warning"
    assert not check(loader(ReadsWithOpenCV(), worker_init_fn=limit))
    assert not check(loader(ReadsWithOpenCV(), num_workers=0))
    monkeypatch.setitem(sys.modules, "cv2", fake_opencv(1))
    assert not check(loader(ReadsWithOpenCV()))


class Projects(Clean):
    def __getitem__(self, index: int) -> Any:
        left, right = np.zeros((9, 9)), np.zeros((9, 9))
        return left @ right


def test_linear_algebra_with_too_many_threads_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of threads is that of the environment, or one per core, times the workers."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)

    assert "no limit is set" in one(check(loader(Projects())), "thread-crowd").what
    assert not check(loader(Clean()))
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert "OMP_NUM_THREADS=8" in one(check(loader(Projects())), "thread-crowd").what
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert not check(loader(Projects()))


def raise_threads(worker: int) -> None:
    """Raise torch's number of threads, a common mistake."""
    torch.set_num_threads(4)


def test_a_worker_that_raises_torchs_threads_is_reported() -> None:
    """torch gives each worker one thread; a worker_init_fn that sets more is reported."""
    finding = one(check(loader(Clean(), worker_init_fn=raise_threads)), "thread-crowd")

    assert "set_num_threads(4)" in finding.what


# ---------------------------------------------------------------- pickling, CUDA, locks


def local_class() -> Any:
    """An instance of a local class, which no other process can create."""

    class Local:
        pass

    return Local()


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (lambda x: x, "A lambda"),
        (local_class(), "class local_class.<locals>.Local"),
        (threading.Lock(), "_thread.lock"),
        ((i for i in range(3)), "generator"),
        (sys, "module"),
    ],
    ids=["lambda", "local class", "lock", "generator", "module"],
)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_an_object_that_does_not_pickle_is_reported_by_its_path(held: Any, text: str, method: str) -> None:
    """It is found at any depth, with spawn and forkserver; with fork nothing is pickled."""
    dataset = Clean(steps=[Clean(), {"last": held}], many=list(range(1000)))

    finding = one(check(loader(dataset, multiprocessing_context=method)), "not-picklable")

    assert finding.where == "dataset.steps[1]['last']"
    assert text in finding.what
    assert {each.rule for each in check(loader(dataset))} <= {"forked-lock"}


def test_every_object_that_does_not_pickle_is_reported() -> None:
    """All objects that fail are reported, in collate_fn as in the dataset."""
    dataset = Clean(a=lambda x: x, b=threading.Lock())

    report = check(loader(dataset, multiprocessing_context="spawn", collate_fn=lambda batch: batch))

    assert {each.where for each in found(report, "not-picklable")} == {"dataset.a", "dataset.b", "collate_fn"}


def test_objects_that_processes_inherit_are_not_reported() -> None:
    """Locks, queues and shared arrays of multiprocessing can be sent while a process starts."""
    context = multiprocessing.get_context("spawn")
    dataset = Clean(lock=context.Lock(), count=context.Value("i", 0), raw=context.RawArray("f", 10))

    assert not check(loader(dataset, multiprocessing_context="spawn"))


@pytest.mark.parametrize("persistent", [False, True])
def test_arrays_that_are_pickled_are_reported(tmp_path: Path, persistent: bool) -> None:
    """A large array or memory map is copied into every worker that is not forked."""
    mapped = np.memmap(tmp_path / "x", np.uint8, "w+", shape=(100 << 20,))
    kwargs: dict[str, Any] = {"persistent_workers": persistent}

    report = check(loader(Clean(pixels=mapped), multiprocessing_context="spawn", **kwargs))

    finding = one(report, "pickled-arrays")
    assert (finding.where, "memory-mapped" in finding.what) == ("dataset.pixels", True)
    assert ("at each epoch" in finding.what) is not persistent
    assert not check(loader(Clean(pixels=mapped), **kwargs))
    assert not check(loader(Clean(pixels=torch.zeros(100 << 18)), multiprocessing_context="spawn", **kwargs))


# A tensor whose device is a GPU.
OnGpu = type("OnGpu", (torch.Tensor,), {"device": torch.device("cuda:0")})


class Moves(Clean):
    def __getitem__(self, index: int) -> Any:
        x = torch.zeros(3)
        return x.cuda() if index else x.to("cuda:0")


class Stays(Clean):
    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3, device="cpu").to("cpu").to(torch.float16)


def test_cuda_in_worker_processes_is_an_error() -> None:
    """CUDA tensors in the dataset, and code that moves samples to the GPU."""
    tensor = torch.zeros(3).as_subclass(OnGpu)

    assert one(check(loader(Clean(means=[tensor]))), "cuda-in-worker").where == "dataset.means[0]"
    assert "Moves.__getitem__" in one(check(loader(Moves())), "cuda-in-worker").where
    assert not check(loader(Stays()))
    assert not check(loader(Moves(), num_workers=0))


def test_the_severity_of_a_lock_depends_on_its_state() -> None:
    """A free lock is a note, with other threads a warning; a held lock is an error."""
    lock = threading.Lock()
    ended = threading.Event()
    alone = check(loader(Clean(lock=lock)))
    thread = threading.Thread(target=ended.wait)
    thread.start()
    with_thread = check(loader(Clean(lock=lock)))
    with lock:
        held = check(loader(Clean(lock=lock)))
    ended.set()
    thread.join()

    severities = [one(report, "forked-lock").severity for report in (alone, with_thread, held)]
    assert severities[1:] == ["warning", "error"]
    assert severities[0] in {"note", "warning"}  # other tests' libraries may have left a thread
    assert not check(ps.DataLoader(Clean(lock=lock), num_workers=2, workers="threads"))


# ---------------------------------------------------------------- streams, arguments, lengths


class Stream(td.IterableDataset[int]):
    """Yields all samples in every worker."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class Sharded(td.IterableDataset[int]):
    """Yields a part of the samples in each worker."""

    def __iter__(self) -> Iterator[int]:
        return self.part()

    def part(self) -> Iterator[int]:
        """Called by __iter__."""
        worker = td.get_worker_info()
        yield from range(10) if worker is None else range(worker.id, 10, worker.num_workers)


def test_a_stream_that_every_worker_repeats_is_an_error() -> None:
    """With two workers, and without get_worker_info, every sample is yielded twice."""
    finding = one(check(loader(Stream())), "unsharded-stream")

    assert "Stream.__iter__" in finding.where
    assert "every sample 2 times" in finding.what
    assert len(list(td.DataLoader(Stream(), batch_size=None, num_workers=2))) == 20


def test_streams_that_are_divided_are_not_reported() -> None:
    """They are divided by get_worker_info or a worker_init_fn, or there is one worker, none, or threads."""
    assert not check(loader(Sharded()))
    assert not check(loader(Stream(), worker_init_fn=other_seed))
    assert not check(loader(Stream(), num_workers=1))
    assert not check(loader(Stream(), num_workers=0))
    assert not check(ps.DataLoader(Stream(), num_workers=2, workers="threads"))
    assert not check(Stream())


class ShardedByPenstock(ps.IterableDataset[int]):
    """Yields a part of the samples in each worker, by penstock's get_worker_info."""

    def __iter__(self) -> Iterator[int]:
        info = ps.get_worker_info()
        return iter(range(10) if info is None else range(info.id, 10, info.num_workers))


def test_streams_of_the_numpy_loader_are_checked_too() -> None:
    """It uses processes for streams, and each iterates a copy."""
    report = check(ps.DataLoader(Stream(), num_workers=2))

    assert one(report, "unsharded-stream").severity == "error"
    assert not check(ps.DataLoader(ShardedByPenstock(), num_workers=2))


def test_more_workers_than_cores_are_reported(recwarn: pytest.WarningsRecorder) -> None:
    """The usable cores are those of the process, not those of the machine."""
    report = check(loader(Clean(), num_workers=3))

    assert one(report, "loader-setting").where == "num_workers=3"


def test_workers_that_a_loader_chooses_are_not_too_many() -> None:
    """More than cores are tried, and kept only if they bring something."""
    assert not check(ps.DataLoader(Clean(), num_workers="auto"))


def test_an_epoch_without_a_batch_is_an_error() -> None:
    """drop_last with fewer samples than a batch gives empty epochs."""
    report = check(loader(Clean(), batch_size=16, drop_last=True))

    assert one(report, "loader-setting").where == "drop_last=True"
    assert not check(loader(Clean(), batch_size=16))
    assert not check(loader(Clean(), batch_size=10, drop_last=True))


def test_pinning_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an accelerator, pin_memory has no effect."""
    for is_there, count in ((False, 1), (True, 0)):
        monkeypatch.setattr(torch.accelerator, "is_available", lambda is_there=is_there: is_there)

        assert len(found(check(loader(Clean(), pin_memory=True)), "loader-setting")) == count


class Endless:
    def __getitem__(self, index: int) -> int:
        return index


class Broken(Endless):
    def __len__(self) -> int:
        raise KeyError("annotations")


def test_a_dataset_needs_a_length() -> None:
    """The default samplers need a length that does not raise."""
    missing, broken = check(loader(Endless())), check(loader(Broken()))

    assert "no __len__" in one(missing, "length").what
    assert "KeyError: 'annotations'" in one(broken, "length").what
    assert not check(loader(Endless(), sampler=[1, 2, 3]))


class Stops(Clean):
    def __getitem__(self, index: int) -> Any:
        return self.read(index)

    def read(self, index: int) -> Any:
        """Called by __getitem__."""
        if index > 5:
            raise StopIteration
        return index


class Counts(td.IterableDataset[int]):
    """An iterator, which may stop."""

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        raise StopIteration


def test_stop_iteration_in_a_sample_is_an_error() -> None:
    """It would end the epoch; in an iterator it is correct."""
    finding = one(check(loader(Stops(), num_workers=0)), "stop-iteration")

    assert "Stops.read (test_check.py, line" in finding.where
    assert "lost, without an error" in finding.what
    assert "SampleError" in one(check(ps.DataLoader(Stops())), "stop-iteration").what
    assert not check(loader(Counts(), num_workers=0))


# ---------------------------------------------------------------- samples on request


class RecordsIndices(Clean):
    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.sample(index)


def test_samples_are_loaded_only_on_request() -> None:
    """check(loader) calls no __getitem__; check(loader, samples=n) calls n, spread over the dataset."""
    dataset = RecordsIndices(asked=[], sample=float)

    check(loader(dataset))
    assert dataset.asked == []
    report = check(loader(dataset), samples=5)

    assert dataset.asked == [0, 2, 4, 6, 8]
    assert not report


def fails(index: int) -> Any:
    """Fail at the fourth sample."""
    return [1, 2, 3][index]


def holds_a_lock(index: int) -> Any:
    """A sample that no process can send."""
    return {"x": [threading.Lock()]}


def as_it_is(batch: Any) -> Any:
    """A collate_fn that returns the list of samples."""
    return batch


def test_samples_that_fail_or_cannot_be_sent_are_errors() -> None:
    """An exception, a sample of a type that cannot be collated, and a batch that cannot be pickled are errors."""
    failed = check(loader(RecordsIndices(asked=[], sample=fails)), samples=10)
    unknown = check(loader(RecordsIndices(asked=[], sample=holds_a_lock)), samples=1)
    stuck = check(loader(RecordsIndices(asked=[], sample=holds_a_lock), collate_fn=as_it_is), samples=1)

    assert "IndexError" in one(failed, "sample").what
    assert one(unknown, "sample").where == "collate_fn"
    assert one(stuck, "sample").where == "batch[0]['x'][0]"


def of_its_own_size(index: int) -> Any:
    """An array as long as its index."""
    return np.zeros(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_of_different_sizes_are_an_error(workers: int) -> None:
    """Each alone can be sent; several make no batch, unless a collate_fn joins them, or a batch sampler chooses."""
    dataset = RecordsIndices(asked=[], sample=of_its_own_size)
    found = check(loader(dataset, batch_size=2, num_workers=workers), samples=4)

    assert one(found, "sample").what.startswith(
        "4 samples do not make a batch: RuntimeError: stack expects each tensor"
    )
    assert not check(loader(dataset, batch_size=2, num_workers=workers, collate_fn=as_it_is), samples=4)
    assert not check(loader(dataset, batch_size=1, num_workers=workers), samples=4)
    assert not check(td.DataLoader(dataset, batch_sampler=[[1, 1], [2]], num_workers=workers), samples=4)


def test_slow_samples_without_workers_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """With num_workers=0, slow samples are a warning."""
    ticks = iter(range(1000))
    clock = types.SimpleNamespace(perf_counter=lambda: next(ticks))
    monkeypatch.setattr(sys.modules["penstock.doctor.checks.rules.sample"], "time", clock)

    report = check(loader(Clean(), num_workers=0), samples=3)

    assert one(report, "sample").where == "num_workers=0"
    assert not check(loader(Clean()), samples=3)


# ---------------------------------------------------------------- the report, and bounds


def test_a_report_is_a_sequence_and_a_text() -> None:
    """The most severe is first; the text has path, rule, reason and advice; findings are immutable."""
    low = Finding("a", "note", "dataset.x", "It is so.", "Change it.")
    high = Finding("b", "error", "dataset.y", "It is worse.", "Change it now.")

    report = Report([low, high, low])

    assert list(report) == [high, low, low]
    assert (report[0], list(report[1:]), len(report), bool(report)) == (high, [low, low], 3, True)
    assert str(report).splitlines()[0] == "1 error, 2 notes"
    assert "error: dataset.y  [b]\n  It is worse.\n  -> Change it now." in str(report)
    assert (str(Report()), bool(Report())) == ("nothing found", False)
    with pytest.raises(AttributeError):
        low.rule = "c"  # type: ignore[misc]  # that it cannot be set is what is tested


def test_a_huge_dataset_is_checked_within_bounds() -> None:
    """Some elements of large containers, and a bounded number of objects, are visited; the report says so."""
    wide = [[object()] for _ in range(500_000)]
    deep: list[Any] = []
    for _ in range(30_000):
        deep = [deep]

    assert len(find_objects([("dataset", wide)]).objects) < 200
    assert find_objects([("dataset", wide)]).complete
    assert not find_objects([("dataset", deep)]).complete
    report = check(deep)
    assert not report.complete
    assert "was not checked" in str(report)


class Proxy:
    """Raises if any attribute is read."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


def test_a_check_runs_no_code_of_the_objects() -> None:
    """Proxies, properties and lazy attributes are not evaluated."""
    report = check(loader(Clean(lazy=Proxy())))

    assert not report


def test_cycles_are_visited_once() -> None:
    """A dataset that refers to itself is visited once."""
    dataset = Clean()
    dataset.itself = [dataset]

    assert not check(loader(dataset))


def test_check_is_a_name_of_penstock_torch() -> None:
    """penstock.torch re-exports it."""
    import penstock.torch

    assert penstock.torch.check is check
    assert "check" in penstock.torch.__all__


def test_only_loaders_and_datasets_are_checked() -> None:
    """Other objects, and a negative number of samples, are errors."""
    with pytest.raises(ps.ArgumentError, match="neither"):
        check(42)
    with pytest.raises(ps.ArgumentError, match="samples"):
        check(Clean(), samples=-1)


@pytest.mark.slow
def test_a_check_does_not_fix_the_start_method() -> None:
    """multiprocessing.set_start_method can still be called after a check."""
    code = (
        "import multiprocessing as mp, torch, penstock.doctor as c\n"
        "c.check(torch.utils.data.DataLoader([1, 2], num_workers=1))\n"
        "mp.set_start_method('spawn')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_every_rule_is_documented() -> None:
    """docs/check.md has one row for each rule, and no other rows (tests/explain: each has a page)."""
    folder = Path(__file__).resolve().parents[2] / "docs"

    rows = re.findall(
        r"^\| \[`([\w-]+)`\]\(problems/([\w-]+)\.md\) \|", (folder / "check.md").read_text(), re.MULTILINE
    )

    rules = [*RULES, *SCRIPT_RULES]
    assert rows == [(rule, rule) for rule in rules]
    assert doctor.__doc__


@pytest.mark.parametrize("rule", [*RULES, *SCRIPT_RULES])
def test_every_rule_has_a_page(rule: str) -> None:
    """It says what the mistake is, how it shows and how to mend it, with wrong code and right code."""
    page = (Path(__file__).resolve().parents[2] / "penstock" / "explain" / "pages" / f"{rule}.md").read_text()

    assert page.startswith(f"# {rule}\n")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == ["How it shows", "How to mend it"]
    assert page.index("Wrong:\n") < page.index("Right:\n")
    assert page.count("```python\n") == 2
