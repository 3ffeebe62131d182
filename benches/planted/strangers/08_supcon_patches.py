"""Supervised contrastive learning of texture patches, two views of each (Khosla et al., 2020)."""
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.sampler import BatchSampler


@dataclass
class Config:
    patch: int = 24
    patches_per_image: int = 220
    classes_per_batch: int = 12
    samples_per_class: int = 4
    steps: int = 700
    temperature: float = 0.1
    lr: float = 0.05
    seed: int = 42


class TwoViews:
    def __init__(self, size):
        self.size = size

    def __call__(self, patch):
        return self.view(patch), self.view(patch)

    def view(self, x):
        top, left = random.randint(0, x.shape[1] - self.size), random.randint(0, x.shape[2] - self.size)
        x = x[:, top : top + self.size, left : left + self.size]
        if random.random() < 0.5:
            x = x.flip(2)
        return x.float() * (random.uniform(0.7, 1.3) / 255)


class Patches(Dataset):
    def __init__(self, root, cfg):
        rng = random.Random(cfg.seed)
        self.images, self.places, self.labels = [], [], []
        classes = sorted(p.name for p in Path(root).iterdir())
        for label, name in enumerate(classes):
            for file in sorted((Path(root) / name).glob("*.jpg")):
                image = torch.from_numpy(np.array(Image.open(file).convert("RGB"))).permute(2, 0, 1).contiguous()
                h, w = image.shape[1:]
                for _ in range(cfg.patches_per_image):
                    self.places.append((len(self.images), rng.randrange(h - 32), rng.randrange(w - 32)))
                    self.labels.append(label)
                self.images.append(image)
        self.views = TwoViews(cfg.patch)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image, y, x = self.places[i]
        first, second = self.views(self.images[image][:, y : y + 32, x : x + 32])
        return first, second, self.labels[i]


class BalancedBatchSampler(BatchSampler):
    """P classes, and K samples of each."""

    def __init__(self, labels, n_classes, n_samples, n_batches, seed=0):
        self.labels = labels
        self.classes = sorted(set(labels))
        self.n_classes = n_classes
        self.n_samples = n_samples
        self.n_batches = n_batches
        self.rng = random.Random(seed)

    def __len__(self):
        return self.n_batches

    def __iter__(self):
        for _ in range(self.n_batches):
            batch = []
            for c in self.rng.sample(self.classes, self.n_classes):
                members = [i for i, label in enumerate(self.labels) if label == c]
                batch.extend(self.rng.sample(members, self.n_samples))
            yield batch


class Encoder(nn.Module):
    def __init__(self, out=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(64)
        )
        self.projection = nn.Sequential(nn.ReLU(), nn.Linear(64, out))

    def forward(self, x):
        return F.normalize(self.projection(self.net(x)), dim=1)


def supcon_loss(z, labels, temperature):
    labels = labels.repeat(2)
    sim = z @ z.T / temperature
    eye = torch.eye(len(z), dtype=torch.bool)
    same = (labels[:, None] == labels[None, :]) & ~eye
    log_prob = sim - torch.logsumexp(sim.masked_fill(eye, float("-inf")), dim=1, keepdim=True)
    return -(log_prob * same).sum(1).div(same.sum(1)).mean()


def main():
    cfg = Config()
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    dataset = Patches(Path(sys.argv[1], "thumbs"), cfg)
    sampler = BalancedBatchSampler(dataset.labels, cfg.classes_per_batch, cfg.samples_per_class, cfg.steps, cfg.seed)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2)
    encoder = Encoder()
    encoder(torch.zeros(2, 3, cfg.patch, cfg.patch))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=cfg.lr, momentum=0.9)
    average = None
    tic = time.perf_counter()
    n = 0
    for step, (v1, v2, y) in enumerate(loader, start=1):
        loss = supcon_loss(encoder(torch.cat([v1, v2])), y, cfg.temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += len(y)
        average = loss.item() if average is None else 0.98 * average + 0.02 * loss.item()
        if step % 100 == 0:
            print(f"step {step:4d}  supcon {average:.3f}")
    print(f"done: {n / (time.perf_counter() - tic):.1f} samples/s")


if __name__ == "__main__":
    main()
