#!/usr/bin/env python
# coding: utf-8

# # Emotions - PyTorch starter
# Upvote if you like it :)

# In[1]:


import os, sys, time
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

INPUT_DIR = sys.argv[1]
print(os.listdir(INPUT_DIR))


# In[2]:


df = pd.read_csv(os.path.join(INPUT_DIR, 'faces.csv'))
df.head()


# In[3]:


df['Usage'].value_counts()


# In[4]:


train_df = df[df.Usage == 'Training'].reset_index(drop=True)
test_df = df[df.Usage != 'Training'].reset_index(drop=True)
len(train_df), len(test_df)


# ## Dataset

# In[5]:


class FaceDataset(Dataset):
    def __init__(self, df, train=True):
        self.pixels = df['pixels'].tolist()
        self.y = df['emotion'].tolist()
        self.train = train

    def __len__(self):
        return len(self.y)

    def __getitem__(self, idx):
        img = np.array([int(p) for p in self.pixels[idx].split(' ')], dtype=np.float32).reshape(48, 48)
        img = img / 255.
        if self.train and np.random.rand() < 0.5:
            img = img[:, ::-1].copy()
        return torch.from_numpy(img).unsqueeze(0), self.y[idx]


# In[6]:


BATCH_SIZE = 32
EPOCHS = 24

train_loader = DataLoader(FaceDataset(train_df), batch_size=BATCH_SIZE, shuffle=True)
test_loader = DataLoader(FaceDataset(test_df, train=False), batch_size=BATCH_SIZE)

xb, yb = next(iter(train_loader))
xb.shape, yb[:8]


# ## Model

# In[7]:


class Baseline(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d(2)
        self.fc1 = nn.Linear(24 * 24, 96)
        self.fc2 = nn.Linear(96, 7)

    def forward(self, x):
        x = self.pool(x).flatten(1)
        x = F.dropout(F.relu(self.fc1(x)), 0.2, self.training)
        return self.fc2(x)

net = Baseline()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, 5, 0.5)


# ## Training

# In[8]:


history = []
seen = 0
tic = time.time()
for epoch in range(EPOCHS):
    net.train()
    running = 0.0
    for xb, yb in train_loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(xb), yb)
        loss.backward()
        opt.step()
        running += loss.item() * len(yb)
        seen += len(yb)
    sched.step()
    history.append(running / len(train_df))
    print('Epoch {}/{} - loss: {:.4f}'.format(epoch + 1, EPOCHS, history[-1]))
toc = time.time()


# In[9]:


net.eval()
with torch.no_grad():
    acc = np.mean([(net(xb).argmax(1) == yb).float().mean().item() for xb, yb in test_loader])
print('Test acc: %.4f' % acc)


# In[10]:


print('Speed: %.1f samples/s' % (seen / (toc - tic)))
