"""Tables that say where decoding may begin inside a JPEG."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.judge.advice.packing import reads_a_store
from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation
from penstock.stores.common.seek_table_file import seek_table_path

__all__ = ["find"]

_LEFT: Final = 0.7


def find(situation: Situation) -> Iterator[Candidate]:
    """If decoding of a store of penstock's limits, and the store has no tables."""
    store = getattr(getattr(situation.loader, "dataset", None), "store", None)
    location = getattr(store, "location", None)
    if situation.share("decode") < 0.3 or not reads_a_store(situation) or location is None:
        return
    path = seek_table_path(location, "image")
    if path.exists():
        return
    yield Candidate(
        "seek-tables",
        "write decode indices beside the store: penstock index STORE",
        "Decoding of a crop begins at the start of the file. With an index it begins at the crop; 70 % of the decoding "
        "is assumed to stay.",
        situation.gain_of(situation.pipeline.with_stage("decode", _LEFT)),
        code="penstock index STORE",
    )
