"""What every store promises, as tests: a class that the test of a kind of stores inherits.

::

    class TestCifar(StoreTests):
        maker = StoreMaker(write_cifar, keys=None, classes=(), decoded=crop)

pytest runs it. The tests of the package itself run this class for every registered kind (``tests/conformance``).
"""

from __future__ import annotations

from penstock.testing.damage import DamageTests
from penstock.testing.lifetime import LifetimeTests
from penstock.testing.reading import ReadingTests

__all__ = ["StoreTests"]


class StoreTests(ReadingTests, LifetimeTests, DamageTests):
    """The tests of a kind of stores; a subclass states :attr:`maker`."""
