"""Every error penstock raises on purpose, as one small tree.

::

    PenstockError
    ├── ArgumentError            (ValueError)     a call that cannot mean anything
    ├── RecordIndexError         (IndexError)     an index outside a store or dataset
    ├── OptionalPackageError     (ImportError)    a package that an extra installs is absent
    ├── StoreError               (OSError)        a store cannot be opened, read or written
    │   ├── StoreNotFoundError   (FileNotFoundError)
    │   ├── StoreFormatError     (ValueError)     not a store, an unknown version, hostile structure
    │   ├── IncompleteStoreError                  a pack that was never finished
    │   └── CorruptRecordError   (ValueError)     a checksum, length or count does not hold
    ├── PackError                (ValueError)     a source that cannot be packed as it is
    ├── DecodeError              (ValueError)     bytes that are not a readable image
    │   ├── UnsupportedImageError                 a valid image of a kind nobody here reads
    │   └── ImageTooLargeError                    declared size above the cap
    ├── SampleError              (RuntimeError)   a sample failed in a dataset, a transform or collation
    ├── BatchMemoryError         (MemoryError)    a batch is larger than the memory that there is
    ├── WorkerError              (RuntimeError)   a worker process died, or could not be started
    ├── StateError               (ValueError)     a state_dict that does not belong to this loader
    └── StallError               (TimeoutError, RuntimeError)   nothing arrived within the limit

Each class also subclasses the built-in that a user of ``torch.utils.data`` would catch. Errors
pickle with everything they name. This module raises nothing itself and imports nothing of penstock.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArgumentError",
    "BatchMemoryError",
    "CorruptRecordError",
    "DecodeError",
    "ImageTooLargeError",
    "IncompleteStoreError",
    "OptionalPackageError",
    "PackError",
    "PenstockError",
    "RecordIndexError",
    "SampleError",
    "StallError",
    "StateError",
    "StoreError",
    "StoreFormatError",
    "StoreNotFoundError",
    "UnsupportedImageError",
    "WorkerError",
]


class PenstockError(Exception):
    """Root of every error that penstock raises on purpose.

    Parameters
    ----------
    message : str
        What was given, what is allowed, what to do.
    **where : object
        Where it happened, by name: ``store``, ``key``, ``index``, ``offset`` (bytes), ``dataset``, ``epoch``,
        ``batch``, ``worker``. Kept in :attr:`where` and appended to the message, in this order of
        insertion; ``None`` values are left out.
    """

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__(message)
        self.message = message
        self.where: dict[str, Any] = {name: value for name, value in where.items() if value is not None}

    def locate(self, **where: Any) -> PenstockError:
        """Add what an outer layer knows (store, key, index, worker); inner knowledge stays."""
        self.where = {**{k: v for k, v in where.items() if v is not None}, **self.where}
        return self

    def __str__(self) -> str:
        if not self.where:
            return self.message
        return f"{self.message} [{', '.join(f'{name}={value!r}' for name, value in self.where.items())}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.where, self.__dict__.get("__notes__"))


def _rebuild(cls: type[PenstockError], message: str, where: dict[str, Any], notes: list[str] | None) -> PenstockError:
    error = cls(message, **where)
    for note in notes or ():
        error.add_note(note)
    return error


class ArgumentError(PenstockError, ValueError):
    """A call that cannot mean anything; nothing was started."""


class RecordIndexError(PenstockError, IndexError):
    """An index outside a store or dataset; the message says what it holds."""


class OptionalPackageError(PenstockError, ImportError):
    """A package that one of penstock's extras installs is absent; the message says which."""


class StoreError(PenstockError, OSError):
    """A store cannot be opened, read or written."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """There is nothing at the given path or URL."""


class StoreFormatError(StoreError, ValueError):
    """Not a store, an unknown version of one, or a structure that no writer of ours makes."""


class IncompleteStoreError(StoreError):
    """A pack that was never finished; packing again resumes it."""


class CorruptRecordError(StoreError, ValueError):
    """A checksum, length or count does not hold; the record is named."""


class PackError(PenstockError, ValueError):
    """A source that cannot be packed as it is; each offending file is named."""


class DecodeError(PenstockError, ValueError):
    """Bytes that are not a readable image."""


class UnsupportedImageError(DecodeError):
    """A valid image of a kind that neither the native decoder nor Pillow reads."""


class ImageTooLargeError(DecodeError):
    """The size that the header declares, or what its coefficients take, is above a cap; nothing was allocated."""


class SampleError(PenstockError, RuntimeError):
    """A sample failed in a dataset, a transform or collation; the original is the ``__cause__``."""


class BatchMemoryError(PenstockError, MemoryError):
    """A batch is larger than the memory that there is; the message says how large it is, and a sample of it."""


class WorkerError(PenstockError, RuntimeError):
    """A worker process died, or could not be started; how, and the sample it was at, are named."""


class StateError(PenstockError, ValueError):
    """A ``state_dict`` that does not belong to this loader; the message says which field differs."""


class StallError(PenstockError, TimeoutError, RuntimeError):  # RuntimeError: what torch raises for `timeout`
    """No batch arrived within the limit; the stage and worker that stood still are named."""
