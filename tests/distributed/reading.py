"""What each rank does in ``test_sharing.py``: ``python -m tests.distributed.reading URL CACHE``, with its variables."""

from __future__ import annotations

import json
import sys

import penstock as ps
from penstock import transforms as T
from penstock.stores.remote.request_queue import Fetcher, get_fetcher


def say(what: object) -> None:
    """Write a line, and wait until the others have come as far."""
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    Fetcher.patience = property(lambda _: 60.0)  # type: ignore[assignment,method-assign]  # a busy machine is no reason to ask twice
    with ps.open(sys.argv[1], cache=sys.argv[2]) as store:
        dataset = ps.StoreDataset(store, transform=[T.Decode(), T.Resize((8, 8))])
        sampler = ps.DistributedSampler(dataset, seed=1, drop_last="uneven")
        loader = ps.DataLoader(dataset, 8, sampler=sampler, num_workers=2)
        say([get_fetcher()._max_nbytes, get_fetcher()._max_requests])
        for _ in range(2):
            say(sum(len(batch["label"]) for batch in loader))
