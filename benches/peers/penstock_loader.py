"""penstock from a pack without and with an index, or of coefficients, with scaled decoding of large crops ("scaled", at
the default quality; "late colour"), from the folder, and the native fill alone."""

import tempfile
import threading
from pathlib import Path

import numpy as np
from serve import BATCH, WORKERS, serve

import penstock as ps
from penstock import transforms as T
from penstock.sample import SampleKeys

GEOMETRY = {"T3": [T.Resize(256), T.CenterCrop(224)], "T4": [T.Letterbox(640)]}
TRAINING = [T.RandomResizedCrop(224), T.HorizontalFlip()]
FLOATS = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]


def dataset(task, candidate, files):
    folder = Path(tempfile.mkdtemp())
    candidate, _, scaled = candidate.partition(", ")
    decode = T.Decode(scale="auto" if scaled else "full", late_color=scaled.endswith("late colour"))
    once = list(dict.fromkeys(files))
    (folder / "images").mkdir()
    for number, path in enumerate(once):
        (folder / "images" / f"{number:06d}.jpg").symlink_to(path)
    source = folder / "images"
    if candidate != "folder":
        source = folder / "images.lmdb"
        transcode = "coefficients" if candidate == "coefficients" else "none"
        index = "none" if candidate in {"plain", "bare loop", "coefficients"} else candidate
        ps.pack(folder / "images", source, index=index, transcode=transcode)
    pipeline = T.Pipeline([decode, *GEOMETRY.get(task, TRAINING), *([] if task == "T4" else FLOATS)])
    one = ps.StoreDataset(ps.open(source), fields=("image", "label"), transform=pipeline, **LEARN.get(candidate, {}))
    return ps.ConcatDataset([one] * (len(files) // len(once)))


LEARN = {"plain": {"index": None}, "folder": {"index": None}}
"""Nothing is learned in the epoch before."""


def make(task, candidate, files):
    data = dataset(task, candidate, files)
    if candidate == "bare loop":
        return lambda: bare_loop(data, BATCH[task])
    loader = ps.DataLoader(data, BATCH[task], shuffle=task != "T3", num_workers=WORKERS, drop_last=True, seed=0)
    return lambda: iter(loader)


def bare_loop(data, batch):
    """As many threads as the loader has, each calling ``fill`` again and again: no order, no queue, no new memory."""
    order = np.random.default_rng(0).permutation(len(data))[: len(data) // batch * batch].reshape(-1, batch)
    images, labels = data.spec()
    done = [0] * WORKERS

    def run(worker):
        out = np.empty((batch, *images.shape), images.dtype), np.empty(batch, labels.dtype)
        for indices in order[worker::WORKERS]:
            data.fill(indices, out, SampleKeys(0, 0, indices))
            done[worker] += batch

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield np.empty((sum(done), 0))


serve(make)
