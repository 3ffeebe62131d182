"""The user's functions that are called within a step, with what their arguments are.

::

    library     for batch in loader: self.model.training_step(batch) ... callback.on_batch_end(...)
    script                              │ call                            │ call
                                        v                                 v
                                     StepCall: code, arguments by class, tensors by layout

A loop in a library calls the user's step and hooks, and a user's own trainer may find them by name: the source of the
loop does not say which. So a profile function (``sys.setprofile``) looks at one or two steps of the warm-up. It is not
set where the script has a profile function of its own, or uses ``torch.compile``. Nothing of the script is kept but
code, global variables, classes and layouts.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.datasets.user_code import is_user_file
from penstock.doctor.checks.script.known_objects import KnownObject, describe_object, is_of_user
from penstock.doctor.watching.batch_layout import BatchParts, describe_batch

__all__ = ["SeenValue", "StepCall", "StepCalls", "find_tensors"]

_MOST_CALLS: Final = 200
_MOST_ATTRIBUTES: Final = 100
_DEEPEST: Final = 4
_LOADERS: Final = "penstock.doctor.watching.loaders.watched_iterators"


@dataclass(frozen=True, slots=True)
class SeenValue:
    """Tensors of an argument, or of an attribute of one.

    Parameters
    ----------
    layout : BatchParts
        Their types, sizes and devices.
    is_batch : bool
        Whether one of them is a tensor that the loader gave.
    is_same : bool
        Whether it is the very batch that the loader gave.
    is_computed : bool
        Whether it is a tensor with a history: a result of the model.
    """

    layout: BatchParts
    is_batch: bool
    is_same: bool
    is_computed: bool

    @property
    def is_on_device(self) -> bool:
        """Whether a tensor is in the memory of a device."""
        return any(leaf.device not in {"", "cpu"} for leaf in self.layout.leaves())


@dataclass(frozen=True, slots=True)
class StepCall:
    """A function of the user that was called.

    Parameters
    ----------
    code : code
        Of the function.
    namespace : dict
        Its global variables.
    names : dict of str to KnownObject
        Its arguments.
    values : dict of str to SeenValue
        Arguments with tensors, and attributes of arguments: ``batch``, ``self.loss``.
    """

    code: types.CodeType
    namespace: dict[str, Any]
    names: dict[str, KnownObject]
    values: dict[str, SeenValue]


class StepCalls:
    """What is called in the steps of one loader.

    Attributes
    ----------
    trains : bool
        Whether gradients were computed in a step.
    """

    def __init__(self) -> None:
        self.trains = False
        self._steps: list[dict[types.CodeType, StepCall]] = []
        self._current: dict[types.CodeType, StepCall] = {}
        self._batch_ids: set[int] = set()
        self._tensor_ids: set[int] = set()
        self._skipped: types.FrameType | None = None
        self._backward = _backward_codes()
        self._is_noting, self._is_training = False, False

    def calls(self) -> list[StepCall]:
        """Functions that were called in each step that was looked at, in their order."""
        first, *others = self._steps or [{}]
        return [call for code, call in first.items() if all(code in other for other in others)]

    def note_batch(self, batch: Any) -> None:
        """The loader gave a batch: for this step, or for one of the next ones, if a library fetches ahead."""
        self._batch_ids.add(id(batch))
        self._tensor_ids.update(id(leaf) for leaf in find_tensors(batch))

    def begin(self) -> None:
        """A step begins, in the calling thread."""
        present = sys.getprofile()
        if isinstance(owner := getattr(present, "__self__", None), StepCalls):
            owner.end(is_whole=False)  # of another loader, whose step was left, or has this one inside
        elif present is not None or _compiles():
            return
        self._current, self._is_training, self._skipped = {}, False, None
        self._is_noting = True
        sys.setprofile(self._note)

    def end(self, *, is_whole: bool = True) -> None:
        """The step has ended; what was seen counts if it is whole. Idempotent."""
        if not self._is_noting:
            return
        if sys.getprofile() == self._note:
            sys.setprofile(None)
        self._is_noting = False
        if is_whole:
            self._steps.append(self._current)
            self.trains = self.trains or self._is_training

    def _note(self, frame: types.FrameType, event: str, _argument: Any) -> None:
        if self._skipped is not None:
            if event == "return" and frame is self._skipped:
                self._skipped = None
            return
        if event != "call":
            return
        code = frame.f_code
        if code in self._current or code.co_name.startswith("<"):
            return
        if frame.f_globals.get("__name__") == _LOADERS:
            self._skipped = frame  # another loader makes a batch: that is no part of the step
        elif code in self._backward:
            self._is_training = True
        elif _is_plain_function(code) and len(self._current) < _MOST_CALLS:
            self._keep(frame)

    def _keep(self, frame: types.FrameType) -> None:
        code = frame.f_code
        try:
            count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
            names = code.co_varnames[: count + bool(code.co_flags & inspect.CO_VARKEYWORDS)]
            given = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
            known = {name: describe_object(value) for name, value in given.items()}
            self._current[code] = StepCall(code, frame.f_globals, known, dict(self._describe_values(given)))
        except Exception:  # noqa: BLE001  # an object of the user may not like to be looked at: the script goes on
            self._current.pop(code, None)

    def _describe_values(self, given: Mapping[str, Any]) -> Iterator[tuple[str, SeenValue]]:
        for name, value in given.items():
            if not is_of_user(type(value)):
                yield from self._describe_value(name, value)
                continue
            try:
                attributes = object.__getattribute__(value, "__dict__")  # no code of the user runs
            except AttributeError:
                continue
            for attribute, inner in itertools.islice(attributes.items(), _MOST_ATTRIBUTES):
                yield from self._describe_value(f"{name}.{attribute}", inner)

    def _describe_value(self, name: str, value: Any) -> Iterator[tuple[str, SeenValue]]:
        tensors = list(itertools.islice(find_tensors(value), _MOST_ATTRIBUTES))
        if tensors:
            is_batch = any(id(each) in self._tensor_ids for each in tensors)
            is_computed = any(each.grad_fn is not None for each in tensors)
            yield name, SeenValue(describe_batch(value), is_batch, id(value) in self._batch_ids, is_computed)


def _compiles() -> bool:
    """Whether the script uses ``torch.compile``, which would compile a profile function too."""
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters) and bool(counters.get("frames"))


def _is_plain_function(code: types.CodeType) -> bool:
    is_generated = code.co_filename == "<string>"  # by dataclasses and named tuples
    is_plain = not code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE)
    return is_plain and not is_generated and is_user_file(code.co_filename)


def find_tensors(value: Any, depth: int = _DEEPEST) -> Iterator[Any]:
    """The tensors in lists, tuples and mappings."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, Mapping) and not is_of_user(type(value)):  # no code of the user runs
        for each in list(value.values()):
            yield from find_tensors(each, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for each in value[:_MOST_ATTRIBUTES]:
            yield from find_tensors(each, depth - 1)


def _backward_codes() -> set[types.CodeType]:
    torch: Any = sys.modules.get("torch")
    functions = [] if torch is None else [torch.Tensor.backward, torch.autograd.backward]
    return {function.__code__ for function in functions if hasattr(function, "__code__")}
