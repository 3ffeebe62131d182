"""skorch: ``NeuralNetClassifier.fit`` on arrays and datasets, cross-validation, ``partial_fit``, clones and pickles."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import skorch
import torch
from sklearn.base import clone
from skorch.callbacks import Callback
from skorch.helper import predefined_split

from tests.clients.harness import EPOCHS, LOADINGS, OURS, TORCH, Loading, Net, Recording, Samples, assert_same, record

X = np.random.default_rng(0).normal(size=(26, 4)).astype(np.float32)
Y = np.arange(26) % 2


class Pairs(Samples):
    """Without the index: skorch takes pairs."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[:2]


class Note(Callback):  # type: ignore[misc]  # skorch is not there for mypy
    """Notes each batch and each loss; copied and pickled with its net, while the recording stays where it is."""

    recording = Recording()

    def on_batch_begin(self, net: Any, batch: Any = None, training: Any = None, **_: Any) -> None:
        """The batch, of training or validation."""
        self.recording.note("batch", batch)

    def on_batch_end(self, net: Any, batch: Any = None, training: Any = None, loss: Any = None, **_: Any) -> None:
        """Its loss."""
        self.recording.note("loss", loss)


def net_of(kind: Any, recording: Recording, loading: Loading, **more: Any) -> Any:
    """A classifier; the loader classes are arguments of it, and torch's are its defaults."""
    Note.recording = recording
    both = {"batch_size": 4, **loading.arguments()}
    arguments: dict[str, Any] = {f"iterator_{part}__{name}": both[name] for part in ("train", "valid") for name in both}
    return skorch.NeuralNetClassifier(
        Net, criterion=torch.nn.CrossEntropyLoss, optimizer=torch.optim.SGD, lr=0.1, max_epochs=EPOCHS, verbose=0,
        iterator_train=kind, iterator_valid=kind, iterator_train__shuffle=True,
        callbacks=[Note], **arguments, **more,
    )  # fmt: skip


@OURS
@LOADINGS
def test_fit_on_arrays_with_a_validation_split(way: str, loading: Loading) -> None:
    """Two epochs of training and validation, and the predictions after them."""

    def run(kind: Any, recording: Recording) -> None:
        net = net_of(kind, recording, loading)
        net.fit(X, Y)
        recording.note("probabilities", net.predict_proba(X))

    # 20 samples to train on and 6 to validate with, for the split by class
    assert_same(record(way, run, "skorch"), record(TORCH, run), batches=EPOCHS * (5 + 2))


@OURS
@LOADINGS
def test_fit_on_a_dataset_goes_on_with_partial_fit(way: str, loading: Loading) -> None:
    """A dataset that draws random numbers, a validation dataset, and training that is continued after a pickle."""

    def run(kind: Any, recording: Recording) -> None:
        net = net_of(kind, recording, loading, classes=[0, 1], train_split=predefined_split(Pairs(9)))
        net.fit(Pairs(), None)
        again = pickle.loads(pickle.dumps(net))
        again.partial_fit(Pairs(), None)

    assert_same(record(way, run, "skorch"), record(TORCH, run), batches=2 * EPOCHS * (7 + 3))


@OURS
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_clone_fits_likewise(way: str, num_workers: int) -> None:
    """scikit-learn's ``clone`` copies the loader classes and their arguments."""

    def run(kind: Any, recording: Recording) -> None:
        net = net_of(kind, recording, Loading(num_workers), train_split=None)
        clone(net).fit(X, Y)

    assert_same(record(way, run, "skorch"), record(TORCH, run), batches=EPOCHS * 7)
