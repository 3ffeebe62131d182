"""DDPM on 32x32 pictures. Trainer class after the well-known repositories, cut down."""
import argparse
import copy
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ArrayImages(Dataset):
  def __init__(self, path):
    self.images = np.load(path)

  def __len__(self):
    return len(self.images)

  def __getitem__(self, i):
    x = torch.from_numpy(self.images[i]).permute(2, 0, 1)
    if torch.rand(()) < 0.5:
      x = x.flip(2)
    return x.float() / 127.5 - 1


class Denoiser(nn.Module):
  def __init__(self, width=12):
    super().__init__()
    self.time = nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, width))
    self.inp = nn.Conv2d(3, width, 4, stride=4)
    self.mid = nn.Conv2d(width, width, 3, padding=1)
    self.out = nn.ConvTranspose2d(width, 3, 4, stride=4)

  def forward(self, x, t):
    h = self.inp(x) + self.time(t[:, None].float() / 1000)[:, :, None, None]
    h = h + self.mid(F.silu(h))
    return self.out(F.silu(h))


class Diffusion(nn.Module):
  def __init__(self, model, steps=1000):
    super().__init__()
    self.model = model
    self.steps = steps
    betas = torch.linspace(1e-4, 0.02, steps)
    self.register_buffer('alpha_bar', torch.cumprod(1 - betas, 0))

  def forward(self, x):
    t = torch.randint(0, self.steps, (len(x),))
    noise = torch.randn_like(x)
    a = self.alpha_bar[t].view(-1, 1, 1, 1)
    return F.mse_loss(self.model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)


class Trainer:
  def __init__(self, diffusion, dataset, *, batch_size, lr, num_steps, ema_decay=0.995, log_every=40):
    self.diffusion = diffusion
    self.ema = copy.deepcopy(diffusion)
    self.ema_decay = ema_decay
    self.dl = DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=2)
    self.opt = torch.optim.Adam(diffusion.parameters(), lr=lr, betas=(0.9, 0.99))
    self.num_steps = num_steps
    self.log_every = log_every
    self.step = 0
    self.seen = 0

  @torch.no_grad()
  def update_ema(self):
    for e, p in zip(self.ema.parameters(), self.diffusion.parameters()):
      e.lerp_(p, 1 - self.ema_decay)

  def train(self):
    began = time.perf_counter()
    while self.step < self.num_steps:
      batch = next(iter(self.dl))
      loss = self.diffusion(batch)
      loss.backward()
      nn.utils.clip_grad_norm_(self.diffusion.parameters(), 1.0)
      self.opt.step()
      self.opt.zero_grad()
      self.update_ema()
      self.step += 1
      self.seen += len(batch)
      if self.step % self.log_every == 0:
        print(f'{self.step}: loss {loss.item():.4f}')
    return self.seen / (time.perf_counter() - began)


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('data_dir', type=Path)
  parser.add_argument('--batch_size', type=int, default=32)
  parser.add_argument('--lr', type=float, default=1e-3)
  parser.add_argument('--num_steps', type=int, default=300)
  parser.add_argument('--seed', type=int, default=0)
  args = parser.parse_args()

  torch.manual_seed(args.seed)
  trainer = Trainer(
    Diffusion(Denoiser()),
    ArrayImages(args.data_dir / 'tiny32.npy'),
    batch_size=args.batch_size,
    lr=args.lr,
    num_steps=args.num_steps)
  print('training done:', round(trainer.train(), 2), 'samples/s')


if __name__ == '__main__':
  main()
