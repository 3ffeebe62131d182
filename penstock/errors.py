"""The errors that penstock raises.

::

    PenstockError
    ├── ArgumentError            (ValueError)     an invalid argument
    ├── RecordIndexError         (IndexError)     an index outside a store or dataset
    ├── RecordKeyError           (KeyError)       a key that no record of a store has
    ├── OptionalPackageError     (ImportError)    a package that an extra installs is absent
    ├── StoreError               (OSError)        a store cannot be opened, read or written
    │   ├── StoreNotFoundError   (FileNotFoundError)
    │   ├── StoreFormatError     (ValueError)     not a store, an unknown version, an invalid structure
    │   ├── IncompleteStoreError                  a pack that is not finished
    │   └── CorruptRecordError   (ValueError)     a checksum, length or count is wrong
    ├── PackError                (ValueError)     a source that cannot be packed
    ├── AnnotationError          (ValueError)     annotations of images that cannot be read
    ├── DecodeError              (ValueError)     bytes that are not a readable image
    │   ├── BrokenImageError                      a truncated or damaged image, with on_truncated="skip"
    │   ├── UnsupportedImageError                 a valid image of an unsupported kind
    │   └── ImageTooLargeError                    its size is above the limit
    ├── SampleError              (RuntimeError)   a sample failed in a dataset, a transform or collation
    ├── BatchMemoryError         (MemoryError)    a batch is larger than the memory
    ├── DeviceError              (RuntimeError)   a device that decodes failed, or has too little memory
    ├── WorkerError              (RuntimeError)   a worker process died, or could not be started
    ├── StateError               (ValueError)     a state_dict of another loader
    └── StallError               (TimeoutError, RuntimeError)   no batch arrived within the limit

Each class also subclasses the built-in exception that a user of ``torch.utils.data`` would catch. Errors can be
pickled with their attributes. The last note of each, which ends its traceback, names the page that explains it. This
module imports nothing of penstock.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

__all__ = [
    "AnnotationError",
    "ArgumentError",
    "BatchMemoryError",
    "BrokenImageError",
    "CorruptRecordError",
    "DecodeError",
    "DeviceError",
    "ImageTooLargeError",
    "IncompleteStoreError",
    "OptionalPackageError",
    "PackError",
    "PenstockError",
    "RecordIndexError",
    "RecordKeyError",
    "SampleError",
    "StallError",
    "StateError",
    "StoreError",
    "StoreFormatError",
    "StoreNotFoundError",
    "UnsupportedImageError",
    "WorkerError",
    "check_choice",
    "name_page",
]


def check_choice(name: str, value: object, allowed: Collection[str], *, optional: bool = False) -> None:
    """Raise ArgumentError unless ``value`` is one of the texts ``allowed``, or None, where it is optional."""
    if value not in allowed and not (optional and value is None):
        raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, got {value!r:.100}")


def name_page(kind: type[PenstockError]) -> str:
    """The page that explains errors of a class: its name, or that of its nearest base in this module, in kebab case."""
    name = next(base.__name__ for base in kind.__mro__ if base.__module__ == __name__)
    return re.sub("(?<=[a-z])(?=[A-Z])", "-", name.removesuffix("Error")).lower()


class PenstockError(Exception):
    """Base of all errors that penstock raises.

    Parameters
    ----------
    message : str
        What must be, what was given, and what to do.
    **where : object
        Where it happened, by name: ``store``, ``key``, ``index``, ``offset`` (bytes), ``dataset``, ``epoch``,
        ``batch``, ``worker``. Kept in :attr:`where` and appended to the message in the order given; ``None`` values
        are left out.
    """

    def __init__(self, message: str, **where: object) -> None:
        super().__init__(message)
        self.message = message
        self.where: dict[str, Any] = {name: value for name, value in where.items() if value is not None}

    def locate(self, **where: object) -> PenstockError:
        """Add where it happened, as an outer layer knows it (store, key, index, worker); present values are kept."""
        self.where = {**{k: v for k, v in where.items() if v is not None}, **self.where}
        return self

    @property
    def __notes__(self) -> list[str]:
        """A new list: the notes of :meth:`add_note`, and the line that names the page of the error."""
        notes = [*self.__dict__.get("__notes__", ())]
        line = f"More: penstock explain {name_page(type(self))}"
        # Where another process or torch's loader put a traceback into the error, the line ends it already.
        return notes if (notes[-1] if notes else self.message).rstrip().endswith(line) else [*notes, line]

    @__notes__.setter
    def __notes__(self, notes: list[str]) -> None:
        self.__dict__["__notes__"] = [*notes]

    def add_note(self, note: str, /) -> None:
        """Add a note to the traceback, as :meth:`BaseException.add_note`."""
        if not isinstance(note, str):
            raise TypeError(f"note must be a str, not '{type(note).__name__}'")
        self.__dict__.setdefault("__notes__", []).append(note)

    def __str__(self) -> str:
        if not self.where:
            return self.message
        return f"{self.message} [{', '.join(f'{name}={value!r}' for name, value in self.where.items())}]"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.where, self.__dict__.get("__notes__"))


def _rebuild(
    cls: type[PenstockError], message: str, where: dict[str, object], notes: list[str] | None
) -> PenstockError:
    error = cls(message, **where)
    for note in notes or ():
        error.add_note(note)
    return error


class ArgumentError(PenstockError, ValueError):
    """An invalid argument; nothing was started."""


class RecordIndexError(PenstockError, IndexError):
    """An index outside a store or dataset; the message names the valid indices."""


class RecordKeyError(PenstockError, KeyError):
    """A key that no record of a store has; the message names the store."""

    __str__ = PenstockError.__str__  # KeyError's shows the repr


class OptionalPackageError(PenstockError, ImportError):
    """A package that one of penstock's extras installs is absent, or a plug-in is broken; the message names it."""


class StoreError(PenstockError, OSError):
    """A store cannot be opened, read or written."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """Nothing exists at the given path or URL."""


class StoreFormatError(StoreError, ValueError):
    """The path is not a store, has an unknown version of one, or an invalid structure."""


class IncompleteStoreError(StoreError):
    """A pack, or a conversion, that is not finished; packing or converting again resumes it."""


class CorruptRecordError(StoreError, ValueError):
    """A checksum, length or count is wrong; the message names the record."""


class PackError(PenstockError, ValueError):
    """A source that cannot be packed; the message names each invalid file."""


class AnnotationError(PenstockError, ValueError):
    """Annotations of images cannot be read, or something is wrong in them."""


class DecodeError(PenstockError, ValueError):
    """Bytes that are not a readable image."""


class BrokenImageError(DecodeError):
    """An image that is truncated or damaged, where ``on_truncated="skip"`` leaves it out; loaders do so."""


class UnsupportedImageError(DecodeError):
    """A valid image of a kind that neither the native decoder nor Pillow reads."""


class ImageTooLargeError(DecodeError):
    """The size in the header, or the memory for the coefficients, is above a limit; nothing was allocated."""


class SampleError(PenstockError, RuntimeError):
    """A sample failed in a dataset, a transform or collation; the original is the ``__cause__``."""


class BatchMemoryError(PenstockError, MemoryError):
    """A batch is larger than the available memory; the message says how large a batch and a sample are."""


class DeviceError(PenstockError, RuntimeError):
    """A device that decodes has failed, or has too little memory; the error of torch, if any, is the ``__cause__``."""


class WorkerError(PenstockError, RuntimeError):
    """A worker process died, or could not be started; the message says how, and at which sample."""


class StateError(PenstockError, ValueError):
    """A ``state_dict`` of another loader; the message names the field that differs."""


class StallError(PenstockError, TimeoutError, RuntimeError):  # RuntimeError: what torch raises for `timeout`
    """No batch arrived within the limit; the message says what each busy worker is doing."""
