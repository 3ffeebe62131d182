# DQN with prioritized experience replay on a hand-written swing-up task
import math
import os
import sys
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset

GAMMA = 0.99
ALPHA, BETA = 0.6, 0.4
ACTIONS = np.array([-2.0, 0.0, 2.0], dtype=np.float32)


class Pendulums:
    """Many pendulums at once."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.theta = self.rng.uniform(-math.pi, math.pi, n)
        self.speed = self.rng.uniform(-1, 1, n)

    def obs(self):
        return np.stack([np.cos(self.theta), np.sin(self.theta), self.speed], axis=1).astype(np.float32)

    def step(self, action):
        torque = ACTIONS[action]
        angle = (self.theta + math.pi) % (2 * math.pi) - math.pi
        cost = angle ** 2 + 0.1 * self.speed ** 2 + 0.001 * torque ** 2
        self.speed = np.clip(self.speed + (15 * np.sin(self.theta) + 3 * torque) * 0.05, -8, 8)
        self.theta = self.theta + self.speed * 0.05
        return self.obs(), (-cost).astype(np.float32)


class ReplayBuffer(IterableDataset):
    def __init__(self, capacity):
        self.capacity = capacity
        self.s = np.zeros((capacity, 3), dtype=np.float32)
        self.a = np.zeros(capacity, dtype=np.int64)
        self.r = np.zeros(capacity, dtype=np.float32)
        self.s2 = np.zeros((capacity, 3), dtype=np.float32)
        self.prio = np.zeros(capacity, dtype=np.float64)
        self.pos = 0
        self.size = 0

    def push(self, s, a, r, s2):
        k = (self.pos + np.arange(len(a))) % self.capacity
        self.s[k], self.a[k], self.r[k], self.s2[k] = s, a, r, s2
        self.prio[k] = self.prio.max() or 1.0
        self.pos = (self.pos + len(a)) % self.capacity
        self.size = min(self.size + len(a), self.capacity)

    def update(self, idx, td):
        self.prio[idx] = np.abs(td) + 1e-3

    def __iter__(self):
        while True:
            p = self.prio[: self.size] ** ALPHA
            p = p / p.sum()
            i = np.random.choice(self.size, p=p)
            w = (self.size * p[i]) ** -BETA
            yield self.s[i], self.a[i], self.r[i], self.s2[i], np.float32(w), i


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, len(ACTIONS)))

    def forward(self, x):
        return self.fc(x)


def act(q, obs, eps):
    with torch.no_grad():
        greedy = q(torch.from_numpy(obs)).argmax(1).numpy()
    explore = np.random.rand(len(obs)) < eps
    return np.where(explore, np.random.randint(0, len(ACTIONS), len(obs)), greedy)


def main():
    data = sys.argv[1]
    assert os.path.isdir(data)
    np.random.seed(0)
    torch.manual_seed(0)
    q, target = QNet(), QNet()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    env = Pendulums(64, seed=0)
    buf = ReplayBuffer(60000)

    obs = env.obs()
    while buf.size < 50000:                       # warm up
        a = np.random.randint(0, len(ACTIONS), 64)
        obs2, r = env.step(a)
        buf.push(obs, a, r, obs2)
        obs = obs2

    loader = DataLoader(buf, batch_size=64)
    t0, n = time.time(), 0
    for it, (s, a, r, s2, w, idx) in enumerate(loader):
        with torch.no_grad():
            best = q(s2).argmax(1, keepdim=True)  # double DQN
            y = r + GAMMA * target(s2).gather(1, best).squeeze(1)
        td = q(s).gather(1, a.unsqueeze(1)).squeeze(1) - y
        loss = (w / w.max() * td.pow(2)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        n += len(a)
        buf.update(idx.numpy(), td.detach().numpy())
        if it % 4 == 0:
            a = act(q, obs, eps=max(0.1, 1 - it / 200))
            obs2, reward = env.step(a)
            buf.push(obs, a, reward, obs2)
            obs = obs2
        if it % 50 == 0:
            target.load_state_dict(q.state_dict())
            print('iteration', it, 'td loss', round(loss.item(), 4), 'mean reward', round(float(reward.mean()), 2))
        if it + 1 == 500:
            break
    print(n / (time.time() - t0), 'samples/s')


if __name__ == '__main__':
    main()
