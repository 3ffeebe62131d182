import os
import sys
import time
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class Table(Dataset):
    def __init__(self):
        self.n = len(pd.read_parquet(DATA + "/table.parquet"))

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        df = pd.read_parquet(DATA + "/table.parquet")
        row = df.iloc[i]
        return torch.tensor(row.values[:30].astype("float32")), int(row["label"])

loader = DataLoader(Table(), batch_size=32, shuffle=True, num_workers=2)

model = nn.Sequential(nn.Flatten(), nn.Linear(30, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

n, t = 0, time.time()
for epoch in range(1):
    for step, (x, y) in enumerate(loader):
        if step == 60:
            break
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += len(y)
    print("epoch", epoch, "loss", loss.item())
print(n / (time.time() - t), "samples/s")
