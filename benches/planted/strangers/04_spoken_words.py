"""Keyword spotting on raw waveforms (M5 network, https://arxiv.org/abs/1610.00087)."""

import pathlib
import sys
import time

import numpy as np
import scipy.io.wavfile
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLE_RATE = 16_000


class WordClips(Dataset):
    """All clips fit into memory, so they are read once."""

    def __init__(self, root, shift=1600, noise=0.005):
        root = pathlib.Path(root)
        self.labels_names = sorted(d.name for d in root.iterdir() if d.is_dir())
        waves, labels = [], []
        for label, name in enumerate(self.labels_names):
            for wav in sorted((root / name).glob("*.wav")):
                sr, x = scipy.io.wavfile.read(wav)
                assert sr == SAMPLE_RATE
                waves.append(torch.from_numpy(x.astype(np.float32) / 2**15))
                labels.append(label)
        self.waves = torch.stack(waves)
        self.labels = torch.tensor(labels)
        self.shift = shift
        self.noise = noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        k = int(torch.randint(-self.shift, self.shift + 1, ()))
        x = torch.roll(self.waves[i], k)
        x = x + self.noise * torch.randn_like(x)
        return x.unsqueeze(0), self.labels[i]


class M5(nn.Module):
    def __init__(self, n_out, c=48):
        super().__init__()

        def stage(cin, cout, k, stride=1):
            return [nn.Conv1d(cin, cout, k, stride=stride, padding=k // 2), nn.BatchNorm1d(cout), nn.ReLU()]

        self.features = nn.Sequential(
            *stage(1, c, 79, 4), nn.MaxPool1d(4),
            *stage(c, c, 3), *stage(c, c, 3), nn.MaxPool1d(4),
            *stage(c, 2 * c, 3), *stage(2 * c, 2 * c, 3), nn.MaxPool1d(4),
            *stage(2 * c, 4 * c, 3), nn.AdaptiveAvgPool1d(1))
        self.fc = nn.Linear(4 * c, n_out)

    def forward(self, x):
        return self.fc(self.features(x).squeeze(-1))


def train(root, epochs=7):
    torch.manual_seed(0)
    ds = WordClips(root)
    loader = DataLoader(ds, batch_size=40, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True)
    model = M5(len(ds.labels_names))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, epochs=epochs, steps_per_epoch=len(loader))
    counted, begin = 0, time.monotonic()
    for epoch in range(epochs):
        correct = 0
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            correct += int((logits.argmax(1) == y).sum())
            counted += len(y)
        print(f"epoch {epoch + 1}: train acc {correct / (len(loader) * 40):.2%}, {time.monotonic() - begin:.1f} s")
    return counted / (time.monotonic() - begin)


if __name__ == "__main__":
    rate = train(pathlib.Path(sys.argv[1]) / "speech")
    print(f"finished, {rate:.2f} samples/s")
