"""Runs random programs for a while: ``make fuzz-torch SECONDS=600``; ends with 1 if one of them is a surprise.

Programs run in a child process, which is replaced if it hangs: that, too, is reported, with the program's number.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any

from tests.parity.fuzzing.amendments import AMENDMENTS
from tests.parity.fuzzing.compare import Result, check
from tests.parity.fuzzing.execute import execute
from tests.parity.fuzzing.generate import generate
from tests.parity.fuzzing.rules import RULES, Difference
from tests.parity.fuzzing.shrink import shrink

_PATIENCE_S = 120.0
_TOLD = 25
_TORCH_HANGS = "programs that hang, or end their process, with torch's loader"


def main() -> int:
    """Run, and say what was met."""
    given = _arguments()
    if given.program:
        return _run_one(json.loads(given.program))
    if given.show:
        return _run_one(generate(given.first, workers=given.workers))
    deadline, number = time.monotonic() + given.seconds, given.first
    met: Counter[str] = Counter()
    surprises: dict[str, list[int]] = {}
    cases, events, batches = 0, 0, 0
    runner = _Runner(given.workers)
    while time.monotonic() < deadline and (given.cases is None or cases < given.cases):
        result = runner.run(number)
        number, cases = number + 1, cases + 1
        met.update(result.met)
        events, batches = events + result.events, batches + result.batches
        if result.difference is not None:
            surprises.setdefault(result.difference.signature, []).append(number - 1)
            if len(surprises[result.difference.signature]) == 1:
                _tell(number - 1, result, given)
    runner.close()
    print(f"programs {given.first} to {number - 1}: {events} events are the same, {batches} batches among them")
    _summary(met, surprises)
    return 1 if surprises else 0


def _arguments() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.parity.fuzzing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--cases", type=int, help="most programs")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--workers", choices=("with", "without"), help="only programs with, or without, workers")
    parser.add_argument("--shrink", action="store_true", help="make programs that surprise smaller")
    parser.add_argument("--show", action="store_true", help="run the first program alone, and show both runs")
    parser.add_argument("--program", help="run this program (JSON) alone, and show both runs")
    given = parser.parse_args()
    given.workers = {"with": True, "without": False}.get(given.workers)
    return given


def _tell(number: int, result: Result, given: Any) -> None:
    difference = result.difference
    assert difference is not None, "there is something to tell"
    program = generate(number, workers=given.workers)
    if given.shrink and difference.ours != ("hangs",):
        program = shrink(program, lambda smaller: _differs(smaller, difference.signature))
    print(f"program {number}: {json.dumps(program)}")
    print(f"  torch:    {str(difference.theirs)[:600]}\n  penstock: {str(difference.ours)[:600]}", flush=True)


def _differs(program: dict[str, Any], signature: str) -> bool:
    difference = check(program).difference
    return difference is not None and difference.signature == signature


def _summary(met: Counter[str], surprises: dict[str, list[int]]) -> None:
    for known in (*RULES, *AMENDMENTS):
        print(f"  meant: {met[known.name]:6d}  {known.name}: {known.reason}")
    print(f"  torch: {met[_TORCH_HANGS]:6d}  {_TORCH_HANGS}: not compared")
    for signature, numbers in sorted(surprises.items(), key=lambda item: -len(item[1])):
        print(f"  DIFFERENT: {len(numbers)}  {signature}: programs {numbers[:_TOLD]}")


def _run_one(program: dict[str, Any]) -> int:
    theirs, ours = execute(program, "torch"), execute(program, program.get("family", "own"))
    for name, events in (("torch", theirs), ("penstock", ours)):
        print(f"--- {name}")
        for event in events:
            print(f"  {str(event)[:400]}")
    result = check(program)
    print(json.dumps(program))
    print(result)
    return int(result.difference is not None)


class _Runner:
    """A child process that runs programs."""

    def __init__(self, workers: bool | None) -> None:
        self._workers = workers
        self._context = multiprocessing.get_context("fork")
        self._in_torch = self._context.Value("b", 0)
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs, self._workers, self._in_torch))
        self._process.start()
        theirs.close()

    def run(self, number: int) -> Result:
        """The result of a program; one that hangs, or ends its process, is a difference, but with torch's loader."""
        self._pipe.send(number)
        try:
            if self._pipe.poll(_PATIENCE_S):
                result: Result = self._pipe.recv()
                return result
            what = "hangs"
        except EOFError:
            what = "ends its process"
        in_torch = bool(self._in_torch.value)
        if not in_torch and self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGUSR1)  # its stacks
            time.sleep(1)
        self.close()
        self._start()
        return Result(met=Counter([_TORCH_HANGS])) if in_torch else Result(Difference(0, ("nothing",), (what,)))

    def close(self) -> None:
        """End the child."""
        self._pipe.close()
        self._process.join(2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, workers: bool | None, in_torch: Any) -> None:
    """Run the programs whose numbers come."""

    def execute_noted(program: dict[str, Any], family: str) -> list[Any]:
        in_torch.value = family == "torch"
        return execute(program, family)

    threading.excepthook = lambda _: None  # threads of torch's queues, whose descriptors are closed under them
    gc.collect()
    gc.freeze()  # each program collects garbage; torch's own objects need not be gone through
    faulthandler.register(signal.SIGUSR1)
    while True:
        try:
            number = pipe.recv()
        except EOFError:
            return
        pipe.send(check(generate(number, workers=workers), execute_noted))


if __name__ == "__main__":
    sys.exit(main())
