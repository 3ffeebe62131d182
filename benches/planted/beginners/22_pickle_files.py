import os
import sys
import time
import pickle
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class Pickled(Dataset):
    def __init__(self, root):
        self.files = [os.path.join(root, f) for f in sorted(os.listdir(root))]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with open(self.files[i], "rb") as f:
            d = pickle.load(f)
        x = np.asarray(d["signal"], dtype="float32")
        return torch.from_numpy(x), d["label"]

loader = DataLoader(Pickled(DATA + "/pickles"), batch_size=32, shuffle=True)

model = nn.Sequential(nn.Flatten(), nn.Linear(2000, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

n, t = 0, time.time()
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += len(y)
    print("epoch", epoch, "loss", loss.item())
print(n / (time.time() - t), "samples/s")
