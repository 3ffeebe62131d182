"""What every registered store promises; a new one inherits these tests by its registration and a maker beside them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.stores import STORES
from penstock.testing import MadeStore, StoreTests
from tests.conformance.store_makers import MAKERS, Maker
from tests.effort import choose_tries


def test_every_registered_store_is_made_here() -> None:
    """A store that is registered is held to this suite."""
    assert {name.partition(",")[0] for name in MAKERS} == {row.name for row in STORES.rows()}


class TestStores(StoreTests):
    """The suite that others run too, for each kind and each way in which one stores records."""

    flips = choose_tries(48)

    @pytest.fixture(scope="class", params=list(MAKERS))
    @classmethod
    def store_maker(cls, request: pytest.FixtureRequest) -> Maker:
        """How a store of each kind is made."""
        maker = MAKERS[request.param]
        if maker.needs:
            pytest.importorskip(maker.needs)
        return maker

    def test_a_missing_package_is_named_with_its_command(self, made: MadeStore) -> None:
        """Without the optional package, opening is one sentence that says how to install it."""
        assert isinstance(made.maker, Maker)
        if not made.maker.extra:
            pytest.skip("it needs no optional package")
        program = (
            "import sys\n"
            f"sys.modules[{made.maker.needs!r}] = None\n"
            "import penstock as ps\n"
            "try:\n"
            f"    store = ps.open({made.url!r}, **{dict(made.maker.options)!r})\n"
            "    store.read([0])\n"
            "except ps.OptionalPackageError as error:\n"
            "    print(error)\n"
        )

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

        assert f"install it with: pip install 'penstock-data[{made.maker.extra}]'" in done.stdout, done.stderr


for slow in (
    TestStores.test_pickled_store_reads_the_same_in_a_spawned_process,
    TestStores.test_many_records_are_read_in_any_order,
):
    pytest.mark.slow(slow)
pytest.mark.tries(TestStores.test_flipped_bits_raise_errors_of_ours)
