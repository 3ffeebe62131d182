"""The torch loader tells about its work as penstock's own loader does."""

from __future__ import annotations

import io
import urllib.request
from typing import Any

import pytest
import torch

import penstock.torch
from penstock.loader.stats import LoaderRates


@pytest.mark.parametrize(("num_workers", "kind"), [(0, "auto"), (2, "processes")])
def test_the_torch_loader_reports_too(num_workers: int, kind: str) -> None:
    """Speed by a callback, bytes of tensors, workers by number, and lines in a file."""
    dataset: Any = torch.utils.data.TensorDataset(torch.zeros(20, 4))
    loader: Any = penstock.torch.DataLoader(dataset, batch_size=5, num_workers=num_workers, workers=kind)
    seen: list[LoaderRates] = []
    stream = io.StringIO()

    with loader.report_to(seen.append, period_s=0):
        batches = list(loader.progress(stream=stream, period_s=0))

    stats = loader.stats()
    assert len(batches) == len(seen) == len(stream.getvalue().splitlines()) == 4
    assert stats.sample_nbytes == 16
    assert {worker.worker for worker in stats.workers} == set(range(-1, num_workers))
    assert sum(worker.batches for worker in stats.workers) == (4 if num_workers else 0)


def test_the_torch_loader_is_served_too() -> None:
    """By the same server."""
    dataset: Any = torch.utils.data.TensorDataset(torch.zeros(20, 4))
    loader: Any = penstock.torch.DataLoader(dataset, batch_size=5)
    list(loader)

    with loader.serve_metrics(name="train") as served, urllib.request.urlopen(served.url, timeout=10) as answer:
        text = answer.read().decode()

    assert 'penstock_samples_total{loader="train",rank="0"} 20\n' in text


def test_a_prefetcher_shows_its_loader() -> None:
    """Around the loop over what is copied ahead."""
    dataset: Any = torch.utils.data.TensorDataset(torch.zeros(20, 4))
    batches = penstock.torch.prefetch(penstock.torch.DataLoader(dataset, batch_size=5), "cpu")
    stream = io.StringIO()

    with batches.progress(stream=stream, period_s=0):
        count = sum(1 for _ in batches)

    assert count == 4
    assert stream.getvalue().splitlines()[-1].startswith("4 of 4 batches, 20 samples")
