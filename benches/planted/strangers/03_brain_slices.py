# 2D slice-wise segmentation of T1w volumes.
# Usage: python 03_brain_slices.py <bids-like folder>
import glob
import gzip
import os
import os.path as osp
import random
import struct
import sys
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

DTYPES = {2: np.uint8, 4: np.int16, 16: np.float32}


def parse_nifti(buf):
    """Minimal NIfTI-1 parser, nibabel was not available on the cluster."""
    dim = struct.unpack_from("<8h", buf, 40)
    (code,) = struct.unpack_from("<h", buf, 70)
    (offset,) = struct.unpack_from("<f", buf, 108)
    vol = np.frombuffer(buf, dtype=DTYPES[code], offset=int(offset))
    return vol.reshape(dim[1:4], order="F")


def load_volume(path):
    with open(path, "rb") as fh:
        compressed = fh.read()
    return parse_nifti(gzip.decompress(compressed))


class SliceDataset(Dataset):
    def __init__(self, data_dir, subjects, augment=False):
        self.data_dir = data_dir
        self.augment = augment
        self.index = []
        for sub in subjects:
            depth = load_volume(osp.join(data_dir, sub + "_seg.nii.gz")).shape[2]
            self.index += [(sub, z) for z in range(depth)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, item):
        sub, z = self.index[item]
        image = load_volume(osp.join(self.data_dir, sub + "_T1w.nii.gz"))[:, :, z].astype(np.float32)
        label = load_volume(osp.join(self.data_dir, sub + "_seg.nii.gz"))[:, :, z].astype(np.int64)
        image = (image - image.mean()) / (image.std() + 1e-6)
        if self.augment and random.random() < 0.5:
            image, label = image[::-1], label[::-1]
        return torch.from_numpy(np.ascontiguousarray(image))[None], torch.from_numpy(np.ascontiguousarray(label))


def conv_block(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False),
        nn.InstanceNorm2d(cout),
        nn.LeakyReLU(0.01, inplace=True),
    )


class TinyUNet(nn.Module):
    """Works at half of the resolution, like the low-res stage of nnU-Net."""

    def __init__(self, width=4, n_classes=2):
        super().__init__()
        self.enc1 = conv_block(1, width, stride=2)
        self.enc2 = conv_block(width, 2 * width, stride=2)
        self.bottom = conv_block(2 * width, 2 * width, stride=2)
        self.merge2 = nn.Conv2d(4 * width, width, 1)
        self.merge1 = nn.Conv2d(2 * width, n_classes, 1)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")

    def forward(self, x):
        s1 = self.enc1(x)
        s2 = self.enc2(s1)
        x = self.merge2(torch.cat([s2, self.up(self.bottom(s2))], dim=1))
        return self.up(self.merge1(torch.cat([s1, self.up(x)], dim=1)))


def soft_dice(logits, target, eps=1.0):
    prob = logits.softmax(1)[:, 1]
    target = target.float()
    inter = (prob * target).sum((1, 2))
    return 1 - ((2 * inter + eps) / (prob.sum((1, 2)) + target.sum((1, 2)) + eps)).mean()


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


if __name__ == "__main__":
    data_dir = os.path.join(sys.argv[1], "brains")
    subs = sorted(osp.basename(p)[:-len("_T1w.nii.gz")] for p in glob.glob(osp.join(data_dir, "*_T1w.nii.gz")))
    g = torch.Generator()
    g.manual_seed(2023)
    train = SliceDataset(data_dir, subs[:9], augment=True)
    loader = DataLoader(train, batch_size=8, shuffle=True, num_workers=2, drop_last=True,
                        worker_init_fn=seed_worker, generator=g)
    print("%d subjects, %d training slices" % (len(subs), len(train)))

    net = TinyUNet()
    ce = nn.CrossEntropyLoss(weight=torch.tensor([0.3, 0.7]))
    optim = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.99, nesterov=True, weight_decay=3e-5)
    done = 0
    t0 = time.time()
    for epoch in range(2):
        for it, (img, seg) in enumerate(loader):
            optim.zero_grad()
            out = net(img)
            loss = ce(out, seg) + soft_dice(out, seg)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 12)
            optim.step()
            done += img.size(0)
            if it % 20 == 0:
                print("epoch %d iter %03d  loss %.3f  (%.1f s)" % (epoch, it, loss.item(), time.time() - t0))
    elapsed = time.time() - t0
    print("%.2f samples/s" % (done / elapsed))
