import os
import sys
import time
from glob import glob

import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T

root = sys.argv[1]
cache_dir = os.path.join(root, "latents_cache")


def build_cache(batch=64):
    """The encoder is frozen, so its latents are computed once and saved."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.GELU(), nn.Conv2d(16, 4, 2, 2)).eval()
    prep = T.Compose([T.Resize(256), T.CenterCrop(256), T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])
    files = sorted(glob(os.path.join(root, "originals", "*.jpg")))
    os.makedirs(cache_dir, exist_ok=True)
    for k in range(0, len(files), batch):
        x = torch.stack([prep(Image.open(f).convert("RGB")) for f in files[k : k + batch]])
        with torch.no_grad():
            z = encoder(x)
        for j in range(len(z)):
            torch.save({"latent": z[j], "cls": (k + j) % 8}, os.path.join(cache_dir, f"{k + j:05d}.pt"))
        print(f"cached {k + len(z)}/{len(files)}")
    open(os.path.join(cache_dir, "done"), "w").close()


class LatentDataset(Dataset):
    def __init__(self):
        self.paths = sorted(glob(os.path.join(cache_dir, "*.pt")))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, idx):
        d = torch.load(self.paths[idx])
        return d["latent"], d["cls"]


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(4, 8, 4, 4)
        self.out = nn.Linear(8 * 8 * 8, 8)

    def forward(self, z):
        return self.out(torch.relu(self.stem(z)).flatten(1))


if not os.path.exists(os.path.join(cache_dir, "done")):
    build_cache()

ds = LatentDataset()
dl = DataLoader(ds, batch_size=16, shuffle=True)
print(len(ds), "latents of", tuple(ds[0][0].shape))

head = Head()
opt = torch.optim.AdamW(head.parameters(), lr=3e-4, weight_decay=0.05)
ema = {k: v.clone() for k, v in head.state_dict().items()}

start = time.time()
count = 0
for epoch in range(240):
    total = 0.0
    for z, c in dl:
        z = z + 0.05 * torch.randn_like(z)
        loss = nn.functional.cross_entropy(head(z), c, label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        for k, v in head.state_dict().items():
            ema[k].lerp_(v, 0.01)
        total += loss.item()
        count += c.shape[0]
    if epoch % 40 == 0:
        print(f"epoch {epoch:3d} | loss {total / len(dl):.3f}")
print(f"speed: {count / (time.time() - start):.1f} samples/s")
