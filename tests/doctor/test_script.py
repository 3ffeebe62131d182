"""A script under watch is the script: its arguments, output, exit code and signals are its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from penstock.doctor.trials.run_options import RunOptions
from penstock.registry import when_imported

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
import argparse, os, random, signal, sys, time
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--end", default="")
parser.add_argument("--context", default="fork")
arguments = parser.parse_args()

class Numbers(Dataset):
    def __len__(self):
        return 256
    def __getitem__(self, index):
        return torch.randn(4), float(np.random.rand()), random.random(), index

def main():
    spec = torch.utils.data.dataloader.__spec__
    print(torch.utils.data.dataloader.__loader__ is spec.loader, type(spec.loader).__name__, spec.name)
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    model = torch.nn.Linear(4, 1)
    context = None if arguments.context == "none" else arguments.context
    loader = DataLoader(Numbers(), 8, shuffle=True, num_workers=1 if context else 0, multiprocessing_context=context)
    for number, (x, *others) in enumerate(loader):
        loss = model(x).square().mean()
        gradients = torch.autograd.grad(loss, [*model.parameters()])  # the first torch.optim takes 2 s to import
        with torch.no_grad():
            for values, gradient in zip(model.parameters(), gradients):
                values -= 0.1 * gradient
        print(number, loss.item(), others[2].tolist(), others[0].tolist(), flush=True)
        if number == 6:
            if arguments.end == "crash":
                raise ValueError("no more")
            if arguments.end == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(10)
    print("the end", torch.rand(()).item(), random.random())

if __name__ == "__main__":
    main()
"""
SHOW = """import sys
spec = __spec__ and __spec__.name
print(sys.argv, sys.path[0], __file__, __name__, __package__, spec, sys.modules["__main__"].__file__)
"""


def plain(*target: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as without the doctor."""
    return subprocess.run(
        [sys.executable, *target], cwd=cwd, capture_output=True, text=True, check=False, env=environment(), timeout=120
    )


def watched(*target: str, cwd: Path, steps: int = 16) -> tuple[subprocess.CompletedProcess[str], float | None]:
    """Run it under watch; and the samples per second that were seen. It leaves no temporary files, however it ends."""
    speed = cwd / "speed.json"
    speed.unlink(missing_ok=True)
    options = RunOptions(steps=steps, trials=False, speed=str(speed))
    with tempfile.TemporaryDirectory() as place:  # a short path: it is part of addresses of sockets
        done = subprocess.run(
            [sys.executable, "-m", "penstock.doctor.run", options.to_text(), *target],
            cwd=cwd, capture_output=True, text=True, check=False, env={**environment(), "TMPDIR": place}, timeout=120,
        )  # fmt: skip
        assert list(Path(place).glob("penstock*")) == []
    return done, float(json.loads(speed.read_text())) if speed.exists() else None


def environment() -> dict[str, str]:
    """Variables with which child processes find this package."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with spaces in its name, with a script and a package."""
    folder = tmp_path / "my project"
    (folder / "package").mkdir(parents=True)
    (folder / "train it.py").write_text(TRAIN)
    (folder / "show.py").write_text(SHOW)
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "beside.py").write_text("NAME = 'beside'\n")
    (folder / "package" / "module.py").write_text("from .beside import NAME\n" + SHOW)
    (folder / "package" / "__main__.py").write_text("from .beside import NAME\n" + SHOW)
    (folder / "program").mkdir()
    (folder / "program" / "__main__.py").write_text("import helper\n" + SHOW)
    (folder / "program" / "helper.py").write_text("")
    return folder


@pytest.fixture(scope="module")
def lines_with_worker(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the training script prints without the doctor, with one worker, whose start method changes nothing."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train it.py").write_text(TRAIN)
    return plain("train it.py", cwd=folder).stdout.splitlines()


@pytest.mark.parametrize(
    "context", ["fork", pytest.param("spawn", marks=pytest.mark.slow), pytest.param("none", marks=pytest.mark.slow)]
)
def test_losses_are_the_same_up_to_the_last_step(folder: Path, lines_with_worker: list[str], context: str) -> None:
    """Watching changes no module, batch and random state; after the steps, the script ends with exit code 0."""
    others = lines_with_worker
    if context == "none":
        others = plain("train it.py", "--context", context, cwd=folder).stdout.splitlines()
    done, speed = watched("train it.py", "--context", context, cwd=folder)

    lines = done.stdout.splitlines()
    normal = 1 + 2 + 16 - 4  # modules, warm-up; the last quarter of the steps is replayed
    assert (done.returncode, done.stderr) == (0, "")
    assert len(lines) == normal + 4
    assert lines[:normal] == others[:normal]
    assert others[-1].startswith("the end")
    assert "the end" not in done.stdout
    assert speed is not None
    assert speed > 0


@pytest.mark.parametrize(
    ("end", "code", "error"),
    [
        ("crash", 1, "ValueError: no more"),
        pytest.param("interrupt", -signal.SIGINT, "KeyboardInterrupt", marks=pytest.mark.slow),
    ],
)
def test_ends_are_the_scripts_own(folder: Path, lines_with_worker: list[str], end: str, code: int, error: str) -> None:
    """Exit codes and tracebacks are those that Python gives, and what was seen until then is reported."""
    done, speed = watched("train it.py", "--end", end, cwd=folder, steps=100)

    assert (done.returncode, done.stdout.splitlines()) == (code, lines_with_worker[: 1 + 7])
    assert f"\n{error}\n" in done.stderr
    if end != "interrupt":  # workers may print, too
        assert done.stderr.startswith('Traceback (most recent call last):\n  File "')
        assert done.stderr.count('File "') == done.stderr.count("train it.py") == 2
        assert done.stderr.endswith(f"\n{error}\n")
    assert done.stderr.count("KeyboardInterrupt") <= 2 * (end == "interrupt")
    assert speed is not None


@pytest.mark.parametrize(
    "target",
    [
        ["show.py", "--lr", "0.1", "-m", "x"],
        ["./show.py"],
        ["-m", "package.module", "--steps", "3"],
        ["-m", "package", "a b"],
        ["program", "1"],
    ],
    ids=" ".join,
)
def test_arguments_and_paths_are_pythons(folder: Path, target: list[str]) -> None:
    """`sys.argv`, `sys.path[0]`, `__file__`, `__package__`, `__spec__`: as `python` sets them."""
    expected = plain(*target, cwd=folder)
    done, _ = watched(*target, cwd=folder)

    assert expected.returncode == 0, expected.stderr
    assert done.stdout == expected.stdout
    assert done.returncode == 0


def test_a_script_without_a_loader_says_so(folder: Path) -> None:
    """Nothing is reported, with one line on standard error."""
    done, speed = watched("show.py", cwd=folder)

    assert done.returncode == 0
    assert done.stderr == ("penstock doctor: no DataLoader was imported in this process; there is nothing to report\n")
    assert speed is None


def test_the_script_finds_nothing_imported(folder: Path) -> None:
    """NumPy and torch read variables when they are imported: the script's own import is the first."""
    (folder / "fresh.py").write_text(
        "import sys, threading\n"
        "print(sorted({'numpy', 'torch', 'typer'} & set(sys.modules)), threading.active_count())\n"
    )

    done, _ = watched("fresh.py", cwd=folder)

    assert done.stdout == "[] 1\n"


@pytest.mark.parametrize(
    ("source", "code", "error"),
    [
        ("x = (\n", 1, "SyntaxError"),
        ("import nothing_of_this_name\n", 1, "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", 3, ""),
        ("raise SystemExit('bye')\n", 1, "bye\n"),
    ],
)
def test_a_script_that_cannot_run_fails_as_without(folder: Path, source: str, code: int, error: str) -> None:
    """The traceback begins in the script; the exit code and the message of an exit are those that Python gives."""
    (folder / "wrong.py").write_text(source)

    expected = plain("wrong.py", cwd=folder)
    done, _ = watched("wrong.py", cwd=folder)

    assert error in expected.stderr
    assert done.returncode == expected.returncode == code
    assert done.stderr.startswith(expected.stderr)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (["missing.py"], "can't open file 'missing.py'"),
        (["-m", "missing"], "there is no module named missing"),
        (["-m"], "-m needs the name of a module"),
    ],
)
def test_a_script_that_is_missing_is_wrong_usage(folder: Path, target: list[str], message: str) -> None:
    """Exit code 2, and no traceback."""
    done, _ = watched(*target, cwd=folder)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_loop_in_another_thread_ends_the_script(folder: Path) -> None:
    """The main thread, which waits for the thread that loads, does not wait for ever; neither prints a traceback."""
    (folder / "threaded.py").write_text(
        textwrap.dedent(
            """
            import queue, threading
            import torch
            from torch.utils.data import DataLoader
            batches = queue.Queue(2)
            def load():
                for batch in DataLoader(torch.zeros(1000, 2), 4):
                    batches.put(batch)
            threading.Thread(target=load, daemon=True).start()
            while True:
                batches.get()
            """
        )
    )

    done, speed = watched("threaded.py", cwd=folder)

    assert (done.returncode, done.stderr) == (0, "")
    assert speed is not None


@pytest.mark.slow
def test_child_processes_are_left_alone_and_a_script_that_catches_its_end_still_ends(folder: Path) -> None:
    """A process that the script forks iterates a loader of its own, to its end, and makes no report.

    ``except SystemExit`` in the script does not lead to a training that goes on unwatched.
    """
    (folder / "forking.py").write_text(
        textwrap.dedent(
            """
            import multiprocessing, torch
            from torch.utils.data import DataLoader
            def count():
                print("child", sum(1 for batch in DataLoader(torch.zeros(400, 2), 4)), flush=True)
            loader = DataLoader(torch.zeros(1000, 2), 4)
            next(iter(loader))
            child = multiprocessing.get_context("fork").Process(target=count)
            child.start()
            child.join()
            for attempt in range(1000):
                try:
                    for batch in loader:
                        pass
                except SystemExit:
                    if attempt > 2:
                        raise
            print("never")
            """
        )
    )

    done, speed = watched("forking.py", cwd=folder)

    assert (done.returncode, done.stdout) == (0, "child 100\n")
    assert speed is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "doctor needs a script"),
        (["--compare", "a.json", "b.json", "train.py"], "--compare takes two files and no script"),
        (["--steps", "2", "train.py"], "--steps"),
        (["--write", "train.py"], "--write needs --fix"),
    ],
)
def test_wrong_usage_of_the_command(tmp_path: Path, arguments: list[str], message: str) -> None:
    """Exit code 2, and a message."""
    done = plain("-m", "penstock", "doctor", *arguments, cwd=tmp_path)

    assert done.returncode == 2
    assert message in done.stderr


def test_options_survive_the_way_to_the_other_process() -> None:
    """They are one argument."""
    options = RunOptions(steps=7, json="/a b/c.json", fail_if_waiting=0.25, change={"num_workers": 3})

    assert RunOptions.from_text(options.to_text()) == options


def test_a_change_is_set_before_the_loader_is_iterated(folder: Path) -> None:
    """`--fix` sets arguments from outside where it cannot edit the call."""
    (folder / "workers.py").write_text(
        textwrap.dedent(
            """
            import torch
            from torch.utils.data import DataLoader, Dataset, get_worker_info
            class Workers(Dataset):
                def __len__(self): return 400
                def __getitem__(self, index):
                    worker = get_worker_info()
                    return -1 if worker is None else worker.num_workers
            for batch in DataLoader(Workers(), 4):
                print(batch.tolist())
            """
        )
    )
    options = RunOptions(steps=8, speed=str(folder / "speed.json"), change={"num_workers": 3, "prefetch_factor": 2})

    done = subprocess.run(
        [sys.executable, "-m", "penstock.doctor.run", options.to_text(), "workers.py"],
        cwd=folder, capture_output=True, text=True, check=True, env=environment(), timeout=120,
    )  # fmt: skip

    assert set(done.stdout.splitlines()) == {"[3, 3, 3, 3]"}


def test_a_hook_is_called_once_when_a_module_was_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once for a module that is there; else after its import; never after it was removed."""
    (tmp_path / "module_to_hook.py").write_text("LATER = 1\n")
    (tmp_path / "module_to_leave.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    calls: list[object] = []

    when_imported("json", lambda: calls.append("json"))
    when_imported("module_to_hook", lambda: calls.append(sys.modules["module_to_hook"].LATER))
    when_imported("module_to_leave", lambda: calls.append("left"))()
    import module_to_hook  # type: ignore[import-not-found]  # written above
    import module_to_leave  # type: ignore[import-not-found]  # noqa: F401  # as above

    assert calls == ["json", 1]
    assert module_to_hook.__spec__.loader is module_to_hook.__loader__
    for name in ("module_to_hook", "module_to_leave"):
        sys.modules.pop(name)


def test_two_hooks_for_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that watches its own loaders may be watched: each hook is called, once."""
    (tmp_path / "module_with_two_hooks.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    calls: list[int] = []

    when_imported("module_with_two_hooks", lambda: calls.append(1))
    when_imported("module_with_two_hooks", lambda: calls.append(2))
    import module_with_two_hooks  # type: ignore[import-not-found]  # noqa: F401  # written above

    assert sorted(calls) == [1, 2]
    sys.modules.pop("module_with_two_hooks")


@pytest.mark.slow
def test_a_script_that_watches_itself(folder: Path) -> None:
    """A block of ``penstock.doctor.watch`` in a script sees what it sees without the doctor, which sees the rest.

    Two short epochs are fewer steps than asked for: nothing is replayed, and all output is as without.
    """
    (folder / "own.py").write_text(
        """import torch
from torch.utils.data import DataLoader
from penstock.doctor import watch
torch.manual_seed(1)
loader = DataLoader(list(range(64)), 4)
with watch(loader, steps=100, budget_s=0) as report:
    print(sum(len(batch) for batch in loader))
print(len(report.recording.steps.wait_ns), report.recording.ended)
loader = DataLoader(list(range(24)), 4, shuffle=True, num_workers=1)
for batch in [batch for epoch in range(2) for batch in loader]:
    print(batch.tolist(), torch.rand(()))
"""
    )
    expected = plain("own.py", cwd=folder)
    done, speed = watched("own.py", cwd=folder, steps=100)

    assert (done.returncode, done.stdout, done.stderr) == (0, expected.stdout, "")
    assert "13 finished" in expected.stdout
    assert speed is not None


@pytest.mark.parametrize("module", ["torch.utils.data", pytest.param("penstock.torch", marks=pytest.mark.slow)])
def test_a_loader_is_tried_while_its_files_are_there(folder: Path, module: str) -> None:
    """From end to end: files, the report on standard error, and the exit code of ``--fail-if-waiting``.

    The script is examined before it unwinds, so that a dataset in a temporary folder can be read again.
    """
    (folder / "temporary.py").write_text(
        f"from {module} import DataLoader\n"
        """import pathlib, tempfile, time
from torch.utils.data import Dataset
class Files(Dataset):
    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "one.bin"
        self.path.write_bytes(bytes(64))
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        time.sleep(0.004)
        return len(self.path.read_bytes())
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        try:
            for batch in DataLoader(Files(folder), 8, num_workers=1, persistent_workers=True):
                pass
        finally:
            print("unwound", flush=True)
"""
    )
    done = subprocess.run(
        [
            sys.executable, "-m", "penstock", "doctor", "--steps", "16", "--budget", "6", "--json", "out.json",
            "--fail-if-waiting", "0", "temporary.py",
        ],
        cwd=folder, capture_output=True, text=True, check=False, env=environment(), timeout=240,
    )  # fmt: skip

    result = json.loads((folder / "out.json").read_text())
    assert (done.returncode, done.stdout) == (1, "unwound\n"), done.stderr
    assert result["verdict"]["text"][:30] in done.stderr.replace("\n", " ")
    assert "penstock doctor: watches 18 steps, or 60 s, then tries changes for 6 s or less\n" in done.stderr
    assert not [note for note in result["notes"] if "could not be read" in note]
    assert not [advice for advice in result["advice"] if "No such file" in advice["reason"]]
