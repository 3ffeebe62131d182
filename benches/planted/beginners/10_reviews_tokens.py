import os
import sys
import time
import re
import json
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

vocab = {}

class Reviews(Dataset):
    def __init__(self):
        self.rows = [json.loads(line) for line in open(DATA + "/reviews.jsonl")]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        text = self.rows[i]["text"].lower()
        text = re.sub(r"[^a-z0-9 ]", " ", text)
        tokens = re.findall(r"[a-z]+", text)
        ids = [hash(t) % 5000 for t in tokens]
        return torch.tensor(ids), self.rows[i]["label"]

def pad(batch):
    xs, ys = zip(*batch)
    return nn.utils.rnn.pad_sequence(xs, batch_first=True), torch.tensor(ys)

loader = DataLoader(Reviews(), batch_size=64, shuffle=True, collate_fn=pad)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(5000, 32)
        self.fc = nn.Linear(32, 2)

    def forward(self, x):
        return self.fc(self.emb(x).mean(1))

model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

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
