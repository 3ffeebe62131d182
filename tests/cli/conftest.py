"""Threads of requests end with the tests of a module: workers of later tests are not forked beside them."""

from tests.stores.remote.conftest import no_thread_stays

__all__ = ["no_thread_stays"]
