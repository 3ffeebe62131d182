"""penstock.torch.check: each rule speaks where its trap is, and stays silent where it is not."""

from __future__ import annotations

import functools
import importlib
import io
import logging
import mmap
import multiprocessing
import random
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
from penstock.datasets.walk import walk  # noqa: E402  # as above
from penstock.doctor import RULES, Finding, Report, check  # noqa: E402  # as above
from penstock.doctor.rules.copied_objects import estimate_nbytes  # noqa: E402  # as above
from penstock.doctor.settings import count_usable_cores  # noqa: E402  # as above
from penstock.doctor.subject import Subject  # noqa: E402  # as above
from penstock.torch import DataLoader  # noqa: E402  # as above
from penstock.torch.loader.recipe import choose_backend  # noqa: E402  # as above

GENERATOR = np.random.default_rng(0)


class Clean(td.Dataset[Any]):
    """Ten samples, and whatever attributes a test gives it."""

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
    """torch's loader with two forked workers, which every machine of ours has cores for."""
    kwargs = {"batch_size": 2, "num_workers": 2, "multiprocessing_context": "fork", **kwargs}
    if kwargs["num_workers"] == 0:
        del kwargs["multiprocessing_context"]
    return td.DataLoader(dataset, **kwargs)


def found(report: Report, rule: str) -> list[Finding]:
    """The findings of one rule; the others found nothing."""
    assert {finding.rule for finding in report} <= {rule}, str(report)
    return list(report)


def one(report: Report, rule: str) -> Finding:
    """The only finding."""
    (finding,) = found(report, rule)
    return finding


@pytest.fixture(autouse=True)
def enough_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a check says of threads and workers depends on the machine: let it have two cores."""
    for rule in ("loader_setting", "thread_crowd", "sample"):
        module = importlib.import_module(f"penstock.doctor.rules.{rule}")
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
    """torchvision's ImageFolder, as everybody uses it, has an empty report, with any loader, or without one."""
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
    """Tensors, arrays, short lists, loggers, standard streams and files in memory are no traps."""
    reports = [check(loader(dataset)), check(loader(dataset, num_workers=0)), check(dataset)]

    assert [list(report) for report in reports] == [[], [], []]


def test_nothing_is_found_in_a_store(tmp_path: Path) -> None:
    """penstock's stores, open as they are, come into workers by themselves."""
    image_folder(tmp_path)
    with ps.open(tmp_path) as store:
        dataset = ps.StoreDataset(store)
        reports = [check(dataset), *(check(loader(dataset, multiprocessing_context=m)) for m in ("fork", "spawn"))]

    assert [list(report) for report in reports] == [[], [], []]


def test_a_threaded_loader_of_penstock_is_clean_too() -> None:
    """Threads share the dataset: neither pickling nor copying is spoken of."""
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
def test_it_is_judged_as_the_loader_will_choose(fills: bool, kwargs: dict[str, Any]) -> None:
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
def test_open_handles_are_errors_where_processes_read(tmp_path: Path, kind: str, method: str) -> None:
    """A handle that is opened before workers start is named by its path, whether it is forked or pickled."""
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


def test_handles_wait_where_there_are_no_workers(tmp_path: Path) -> None:
    """With num_workers=0 an open file is a note: it hurts when somebody gives a number of workers."""
    with (tmp_path / "x").open("wb") as file:
        report = check(loader(Clean(file=file), num_workers=0))

    assert one(report, "open-handle").severity == "note"


def test_threads_share_a_position_but_not_a_pool(tmp_path: Path) -> None:
    """Threads race for a file's position; what is made for threads is left alone."""
    with ExitStack() as stack:
        every = handles(tmp_path, stack)
        report = check(ps.DataLoader(Clean(**every), num_workers=2, workers="threads"))

    places = {finding.where.removeprefix("dataset.") for finding in found(report, "open-handle")}
    assert places == {"file", "text", "raw", "socket", "sqlite"}
    assert {finding.severity for finding in report} == {"warning"}


class LeavesFileBehind(Clean):
    """Pickles without its file."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "file": None}


class OpensByProcess(Clean):
    """Opens its file anew in another process, by the rule of CPython's own random module: `os.getpid`."""


def test_what_getstate_leaves_behind_is_not_pickled(tmp_path: Path) -> None:
    """Under spawn a class's own __getstate__ decides; under fork it is not asked."""
    with (tmp_path / "x").open("wb") as file:
        dataset = LeavesFileBehind(file=file)
        forked, spawned = (check(loader(dataset, multiprocessing_context=method)) for method in ("fork", "spawn"))

    assert one(forked, "open-handle").where == "dataset.file"
    assert not spawned


def test_a_class_that_looks_at_its_process_is_trusted(tmp_path: Path) -> None:
    """Who compares os.getpid() reopens by itself."""
    with (tmp_path / "x").open("wb") as file:
        report = check(loader(OpensByProcess(file=file)))

    assert not report


def test_closed_handles_are_nothing(tmp_path: Path) -> None:
    """A file, socket or archive that is closed is inherited by nobody."""
    with ExitStack() as stack:
        kept = {name: handle for name, handle in handles(tmp_path, stack).items() if name in {"file", "socket", "zip"}}

    report = check(loader(Clean(**kept)))

    assert not report


def test_many_of_a_kind_are_one_finding(tmp_path: Path) -> None:
    """Handles at several indices of a list are one finding, with the first place and a number."""
    with ExitStack() as stack:
        files = [stack.enter_context((tmp_path / str(i)).open("wb")) for i in range(5)]
        report = check(loader(Clean(files=files)))

    assert one(report, "open-handle").where == "dataset.files[0] and 4 more like it"


def test_a_handle_in_a_closure_is_found(tmp_path: Path) -> None:
    """A transform that captures an open file takes it along."""
    with (tmp_path / "x").open("wb") as file:
        report = check(loader(Clean(transform=lambda x: (x, file))))

    assert one(report, "open-handle").where == "dataset.transform.__closure__['file']"


def test_libraries_are_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of a library that is imported, and its subclasses, count; nothing is imported to look."""
    library = types.ModuleType("pymongo")
    library.MongoClient = type("MongoClient", (), {})  # type: ignore[attr-defined]  # a module of this test's
    monkeypatch.setitem(sys.modules, "pymongo", library)
    client = type("Traced", (library.MongoClient,), {})()

    report = check(loader(Clean(client=client)))

    assert one(report, "open-handle").where == "dataset.client"


def test_hdf5_files_are_handles_while_they_are_open(tmp_path: Path) -> None:
    """An h5py file or dataset, as long as it is open."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.zeros(3)
        is_open = check(loader(Clean(file=file, x=file["x"])))

    assert [finding.where for finding in found(is_open, "open-handle")] == ["dataset.file", "dataset.x"]
    assert not check(loader(Clean(file=file)))


# ---------------------------------------------------------------- objects that are copied

# What holds so much is made by its test: with it, all that is forked in a whole run would be forked more slowly.
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
def test_large_containers_of_objects_are_weighed(held: Callable[[], Any]) -> None:
    """Strings, tuples, dicts by the hundred thousand: named with an estimate, for all workers together."""
    report = check(loader(Clean(held=held())))

    finding = one(report, "copied-objects")
    assert (finding.where, finding.severity) == ("dataset.held", "note")
    assert "Each of 2 workers" in finding.what
    assert "in all" in finding.what


def test_weight_counts_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same list weighs more with more workers: a note becomes a warning."""
    monkeypatch.setattr(sys.modules["penstock.doctor.rules.loader_setting"], "count_usable_cores", lambda: 64)
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
def test_what_is_not_many_objects_weighs_nothing(held: Callable[[], Any]) -> None:
    """Arrays and tensors, and lists that name few objects many times, are not copied by reading."""
    report = check(loader(Clean(held=held())))

    assert not report


def test_threads_and_a_lone_process_copy_nothing() -> None:
    """Where nobody forks or pickles, a long list is only long."""
    dataset = Clean(names=NAMES)

    assert not check(ps.DataLoader(dataset, num_workers=2, workers="threads"))
    assert not check(loader(dataset, num_workers=0))


def test_the_estimate_is_near_the_truth() -> None:
    """Of a regular list the estimate is within a tenth of the sum of sizes."""
    pairs = [(f"{i:09d}", i + 1000) for i in range(10_000)]

    truth = sum(sys.getsizeof(pair) + sum(map(sys.getsizeof, pair)) for pair in pairs)

    assert abs(estimate_nbytes(pairs) - truth) < 0.1 * truth


def test_a_data_frame_of_text_is_weighed() -> None:
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
    """Each worker goes on from the parent's state: the same numbers in all of them, and in each epoch again."""
    report = check(loader(Clean(transforms=[None, Clean(rng=make())]), multiprocessing_context=method))

    finding = one(report, "shared-generator")
    assert (finding.where, finding.severity) == ("dataset.transforms[1].rng", "error")
    assert "next epoch" in finding.what


class DrawsFromAModule(Clean):
    def __getitem__(self, index: int) -> Any:
        return GENERATOR.random()


def test_a_generator_in_a_module_is_copied_too() -> None:
    """A global generator that __getitem__ draws from is no better than an attribute."""
    finding = one(check(loader(DrawsFromAModule())), "shared-generator")

    assert "global GENERATOR in DrawsFromAModule.__getitem__ (test_check.py, line" in finding.where


class SeedsByWorker(Clean):
    def __getitem__(self, index: int) -> Any:
        worker = td.get_worker_info()
        if worker is not None:
            self.rng = np.random.default_rng(worker.seed)
        return self.rng.random()


def renew(worker: int) -> None:
    """As many write it."""
    info = td.get_worker_info()
    assert info is not None
    dataset: Any = info.dataset
    dataset.rng = np.random.default_rng(info.seed)


def test_generators_that_are_seeded_by_worker_are_right() -> None:
    """Code, or a worker_init_fn, that asks which worker it is in is trusted with its generator."""
    rng = np.random.default_rng(0)

    assert not check(loader(SeedsByWorker(rng=rng)))
    assert not check(loader(Clean(rng=rng), worker_init_fn=renew))
    assert not check(loader(Clean(rng=random.SystemRandom())))


def test_a_generator_is_a_matter_of_chance_for_threads() -> None:
    """Threads take turns at one generator."""
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
        """Called by the other."""
        return np.random.rand(count)  # noqa: NPY002  # what many write, and the check is to find


class DrawsFromTorch(Clean):
    def __getitem__(self, index: int) -> Any:
        return flip(torch.zeros(3))


def flip(x: Any) -> Any:
    """A transform as a function."""
    import random as luck

    return x if luck.choice([True, False]) else -x


def jitter(x: Any) -> Any:
    """Another."""
    return x + torch.randn(3)


class Jitter:
    def __call__(self, x: Any) -> Any:
        """As most transforms are written."""
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
def test_global_generators_are_noted_where_they_are_called(dataset: Any, drawn: str, where: str) -> None:
    """Through methods, functions, partials, lambdas and local imports, by their own names and lines."""
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


def test_generators_of_one_s_own_are_right() -> None:
    """penstock.rng(), a generator made for the sample, torch.rand with a generator."""
    report = check(loader(DrawsWell()))

    assert not report


def test_a_loader_that_seeds_samples_may_be_drawn_from_globally() -> None:
    """seed_per_sample=True makes global generators the sample's own."""
    keyed = loader(DrawsFromRandom())
    keyed.seed_per_sample = True

    assert not check(keyed)


def of_a_package(**attributes: Any) -> Any:
    """An object of an installed package, as its files tell."""
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
def test_generators_that_no_sample_seeds_are_named(dataset: Any, where: list[str], num_workers: int) -> None:
    """seed_per_sample=True does not reach them: the user's own, and those of libraries that are not known."""
    keyed = DataLoader(dataset, num_workers=num_workers, seed_per_sample=True)

    report = found(check(keyed), "shared-generator")

    assert [finding.where for finding in report] == where
    assert all(finding.severity == "warning" and "seed_per_sample" in finding.what for finding in report)
    assert "albumentations" in report[0].advice


def test_generators_that_samples_seed_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The global ones, also by their methods, and those inside of a library's objects that is known."""

    class Compose:
        def __init__(self) -> None:
            self.random_generator, self.py_random = np.random.default_rng(0), random.Random(0)

        def set_random_state(self, random_generator: Any, py_random: Any) -> None:
            """As albumentations has it."""

    module: Any = types.ModuleType("albumentations")
    module.BaseCompose = module.BasicTransform = Compose
    monkeypatch.setitem(sys.modules, "albumentations", module)
    dataset = Clean(compose=Compose(), draw=random.choice, torch=torch.default_generator, more=[{"a": Compose()}])

    assert not found(check(DataLoader(dataset, num_workers=2, seed_per_sample=True)), "shared-generator")


def same_seed(worker: int) -> None:
    """As some write it."""
    np.random.seed(0)  # noqa: NPY002  # what many write, and the check is to find


def other_seed(worker: int) -> None:
    """As they should."""
    np.random.seed(worker)  # noqa: NPY002  # as above


def test_workers_with_one_seed_draw_one_sequence() -> None:
    """A worker_init_fn that seeds with a constant gives all workers the same numbers."""
    report = check(loader(Clean(), worker_init_fn=same_seed))

    finding = one(report, "global-randomness")
    assert (finding.severity, "same_seed" in finding.where) == ("error", True)
    assert not check(loader(Clean(), worker_init_fn=other_seed))


# ---------------------------------------------------------------- threads in workers


def fake_opencv(threads: int) -> types.ModuleType:
    """OpenCV as a check sees it."""
    cv2: Any = types.ModuleType("cv2")
    cv2.getNumThreads = lambda: threads
    return cv2  # type: ignore[no-any-return]  # a module with an attribute


class ReadsWithOpenCV(Clean):
    def __getitem__(self, index: int) -> Any:
        import cv2  # type: ignore[import-not-found]  # OpenCV need not be there

        return cv2.imread("x")


def limit(worker: int) -> None:
    """As one should."""
    import cv2

    cv2.setNumThreads(0)


def test_opencv_brings_threads_into_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imported, it is noted; used in samples, it is a warning; with one thread it is nothing."""
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


def test_linear_algebra_is_noted_where_its_threads_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads by the environment, or one a core, times workers."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)

    assert "no limit is set" in one(check(loader(Projects())), "thread-crowd").what
    assert not check(loader(Clean()))
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert "OMP_NUM_THREADS=8" in one(check(loader(Projects())), "thread-crowd").what
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert not check(loader(Projects()))


def raise_threads(worker: int) -> None:
    """As one should not."""
    torch.set_num_threads(4)


def test_a_worker_that_raises_torch_s_threads_is_told() -> None:
    """torch gives each worker one thread; a worker_init_fn that takes more crowds the machine."""
    finding = one(check(loader(Clean(), worker_init_fn=raise_threads)), "thread-crowd")

    assert "set_num_threads(4)" in finding.what


# ---------------------------------------------------------------- pickling, CUDA, locks


def local_class() -> Any:
    """An instance that no other process can make."""

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
def test_what_does_not_pickle_is_named_by_its_path(held: Any, text: str, method: str) -> None:
    """Deep in the dataset, among many others, under spawn and forkserver; with fork nothing is pickled."""
    dataset = Clean(steps=[Clean(), {"last": held}], many=list(range(1000)))

    finding = one(check(loader(dataset, multiprocessing_context=method)), "not-picklable")

    assert finding.where == "dataset.steps[1]['last']"
    assert text in finding.what
    assert {each.rule for each in check(loader(dataset))} <= {"forked-lock"}


def test_every_object_that_does_not_pickle_is_named() -> None:
    """The first failure does not hide the second; collate_fn counts as the dataset does."""
    dataset = Clean(a=lambda x: x, b=threading.Lock())

    report = check(loader(dataset, multiprocessing_context="spawn", collate_fn=lambda batch: batch))

    assert {each.where for each in found(report, "not-picklable")} == {"dataset.a", "dataset.b", "collate_fn"}


def test_what_processes_inherit_is_not_pickled_for_trial() -> None:
    """Locks, queues and shared arrays of multiprocessing travel when a process starts, and only then."""
    context = multiprocessing.get_context("spawn")
    dataset = Clean(lock=context.Lock(), count=context.Value("i", 0), raw=context.RawArray("f", 10))

    assert not check(loader(dataset, multiprocessing_context="spawn"))


@pytest.mark.parametrize("persistent", [False, True])
def test_arrays_that_are_pickled_whole_are_told(tmp_path: Path, persistent: bool) -> None:
    """A large array, and a memory map above all, is copied into every worker that does not fork."""
    mapped = np.memmap(tmp_path / "x", np.uint8, "w+", shape=(100 << 20,))
    kwargs: dict[str, Any] = {"persistent_workers": persistent}

    report = check(loader(Clean(pixels=mapped), multiprocessing_context="spawn", **kwargs))

    finding = one(report, "pickled-arrays")
    assert (finding.where, "memory-mapped" in finding.what) == ("dataset.pixels", True)
    assert ("at each epoch" in finding.what) is not persistent
    assert not check(loader(Clean(pixels=mapped), **kwargs))
    assert not check(loader(Clean(pixels=torch.zeros(100 << 18)), multiprocessing_context="spawn", **kwargs))


# A tensor that says that it lies on a GPU.
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


def test_a_lock_under_fork_is_as_grave_as_it_is_now() -> None:
    """Free and alone it is a note, with other threads a warning, held an error."""
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
    """All of it, in every worker."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class Sharded(td.IterableDataset[int]):
    """A part of it in each."""

    def __iter__(self) -> Iterator[int]:
        return self.part()

    def part(self) -> Iterator[int]:
        """Called by the other: it counts too."""
        worker = td.get_worker_info()
        yield from range(10) if worker is None else range(worker.id, 10, worker.num_workers)


def test_a_stream_that_every_worker_repeats_is_an_error() -> None:
    """Two workers and no word of which one it is: every sample comes twice."""
    finding = one(check(loader(Stream())), "unsharded-stream")

    assert "Stream.__iter__" in finding.where
    assert "every sample 2 times" in finding.what
    assert len(list(td.DataLoader(Stream(), batch_size=None, num_workers=2))) == 20


def test_streams_that_are_shared_out_are_right() -> None:
    """By get_worker_info, by a worker_init_fn, or because there is one worker, none, or a thread."""
    assert not check(loader(Sharded()))
    assert not check(loader(Stream(), worker_init_fn=other_seed))
    assert not check(loader(Stream(), num_workers=1))
    assert not check(loader(Stream(), num_workers=0))
    assert not check(ps.DataLoader(Stream(), num_workers=2, workers="threads"))
    assert not check(Stream())


class ShardedByOurs(ps.IterableDataset[int]):
    """A part of it in each, by penstock's own question."""

    def __iter__(self) -> Iterator[int]:
        info = ps.get_worker_info()
        return iter(range(10) if info is None else range(info.id, 10, info.num_workers))


def test_streams_of_the_numpy_loader_are_shared_out_likewise() -> None:
    """Its processes, which it takes for streams by itself, each iterate a copy."""
    report = check(ps.DataLoader(Stream(), num_workers=2))

    assert one(report, "unsharded-stream").severity == "error"
    assert not check(ps.DataLoader(ShardedByOurs(), num_workers=2))


def test_more_workers_than_cores_are_too_many(recwarn: pytest.WarningsRecorder) -> None:
    """Usable cores are those of the process, not those of the machine."""
    report = check(loader(Clean(), num_workers=3))

    assert one(report, "loader-setting").where == "num_workers=3"


def test_cores_are_those_of_the_quota(tmp_path: Path) -> None:
    """A container's quota counts, rounded up; without one, the affinity."""
    (tmp_path / "one").write_text("50000 100000\n")
    (tmp_path / "none").write_text("max 100000\n")

    assert count_usable_cores(tmp_path / "one") == 1
    assert count_usable_cores(tmp_path / "none") == count_usable_cores(tmp_path / "absent") >= 1


def test_an_epoch_without_a_batch_is_an_error() -> None:
    """drop_last with fewer samples than a batch needs."""
    report = check(loader(Clean(), batch_size=16, drop_last=True))

    assert one(report, "loader-setting").where == "drop_last=True"
    assert not check(loader(Clean(), batch_size=16))
    assert not check(loader(Clean(), batch_size=10, drop_last=True))


def test_pinning_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an accelerator pin_memory does nothing."""
    for is_there, count in ((False, 1), (True, 0)):
        monkeypatch.setattr(torch.accelerator, "is_available", lambda is_there=is_there: is_there)

        assert len(found(check(loader(Clean(), pin_memory=True)), "loader-setting")) == count


class Endless:
    def __getitem__(self, index: int) -> int:
        return index


class Broken(Endless):
    def __len__(self) -> int:
        raise KeyError("annotations")


def test_a_dataset_says_how_long_it_is() -> None:
    """Without a length, or with one that fails, a sampler of the loader's own cannot work."""
    missing, broken = check(loader(Endless())), check(loader(Broken()))

    assert "no __len__" in one(missing, "length").what
    assert "KeyError: 'annotations'" in one(broken, "length").what
    assert not check(loader(Endless(), sampler=[1, 2, 3]))


class Stops(Clean):
    def __getitem__(self, index: int) -> Any:
        return self.read(index)

    def read(self, index: int) -> Any:
        """Called by the other."""
        if index > 5:
            raise StopIteration
        return index


class Counts(td.IterableDataset[int]):
    """An iterator may stop."""

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        raise StopIteration


def test_stop_iteration_in_a_sample_is_an_error() -> None:
    """It would end the epoch; in an iterator it is right."""
    finding = one(check(loader(Stops(), num_workers=0)), "stop-iteration")

    assert "Stops.read (test_check.py, line" in finding.where
    assert "lost, without an error" in finding.what
    assert "SampleError" in one(check(ps.DataLoader(Stops())), "stop-iteration").what
    assert not check(loader(Counts(), num_workers=0))


# ---------------------------------------------------------------- samples that are asked for


class Remembers(Clean):
    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.sample(index)


def test_samples_are_made_only_when_asked_for() -> None:
    """check(loader) calls no __getitem__; check(loader, samples=n) calls n, spread over the dataset."""
    dataset = Remembers(asked=[], sample=float)

    check(loader(dataset))
    assert dataset.asked == []
    report = check(loader(dataset), samples=5)

    assert dataset.asked == [0, 2, 4, 6, 8]
    assert not report


def fails(index: int) -> Any:
    """At the third sample."""
    return [1, 2, 3][index]


def holds_a_lock(index: int) -> Any:
    """What no process can send."""
    return {"x": [threading.Lock()]}


def as_it_is(batch: Any) -> Any:
    """A collate_fn that joins nothing."""
    return batch


def test_samples_that_fail_or_cannot_return_are_errors() -> None:
    """An exception, a sample that default collation does not know, a batch that does not pickle."""
    failed = check(loader(Remembers(asked=[], sample=fails)), samples=10)
    unknown = check(loader(Remembers(asked=[], sample=holds_a_lock)), samples=1)
    stuck = check(loader(Remembers(asked=[], sample=holds_a_lock), collate_fn=as_it_is), samples=1)

    assert "IndexError" in one(failed, "sample").what
    assert one(unknown, "sample").where == "collate_fn"
    assert one(stuck, "sample").where == "batch[0]['x'][0]"


def test_a_costly_sample_deserves_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With num_workers=0, samples that take long, by the clock, are worth a warning."""
    ticks = iter(range(1000))
    clock = types.SimpleNamespace(perf_counter=lambda: next(ticks))
    monkeypatch.setattr(sys.modules["penstock.doctor.rules.sample"], "time", clock)

    report = check(loader(Clean(), num_workers=0), samples=3)

    assert one(report, "sample").where == "num_workers=0"
    assert not check(loader(Clean()), samples=3)


# ---------------------------------------------------------------- the report, and bounds


def test_a_report_is_a_sequence_and_a_text() -> None:
    """The gravest comes first; as text it names place, rule, reason and advice; findings are values."""
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


def test_a_huge_dataset_is_looked_at_within_bounds() -> None:
    """Of large containers a sample is visited, of all objects a bounded number; the report says if that was not all."""
    wide = [[object()] for _ in range(500_000)]
    deep: list[Any] = []
    for _ in range(30_000):
        deep = [deep]

    assert len(walk([("dataset", wide)]).places) < 200
    assert walk([("dataset", wide)]).complete
    assert not walk([("dataset", deep)]).complete
    report = check(deep)
    assert not report.complete
    assert "was not checked" in str(report)


class Proxy:
    """Runs code whenever it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


def test_looking_runs_nothing_of_the_objects() -> None:
    """Proxies, properties and lazy attributes are not woken."""
    report = check(loader(Clean(lazy=Proxy())))

    assert not report


def test_cycles_end() -> None:
    """A dataset that holds itself is visited once."""
    dataset = Clean()
    dataset.itself = [dataset]

    assert not check(loader(dataset))


def test_check_is_a_name_of_penstock_torch() -> None:
    """It is offered beside the loader."""
    import penstock.torch

    assert penstock.torch.check is check
    assert "check" in penstock.torch.__all__


def test_only_loaders_and_datasets_are_checked() -> None:
    """Anything else is refused, as is a negative number of samples."""
    with pytest.raises(ps.ArgumentError, match="neither"):
        check(42)
    with pytest.raises(ps.ArgumentError, match="samples"):
        check(Clean(), samples=-1)


def test_checking_settles_no_start_method() -> None:
    """multiprocessing.set_start_method can still be called after a check."""
    code = (
        "import multiprocessing as mp, torch, penstock.doctor as c\n"
        "c.check(torch.utils.data.DataLoader([1, 2], num_workers=1))\n"
        "mp.set_start_method('spawn')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_every_rule_is_documented() -> None:
    """docs/check.md has a row for each rule, and none for what is no rule."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "check.md").read_text()

    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]

    assert rows == list(RULES)
    assert doctor.__doc__
