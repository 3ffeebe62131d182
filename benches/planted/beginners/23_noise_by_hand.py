import os
import sys
import time
import random
import numpy as np
from PIL import Image
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class Noisy(Dataset):
    def __init__(self, root):
        self.files = [os.path.join(root, f) for f in sorted(os.listdir(root))]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        img = np.array(Image.open(self.files[i]).convert("RGB").resize((64, 64)), dtype="float32")
        for k in range(400):
            r, c = random.randrange(64), random.randrange(64)
            img[r, c] = random.choice([0, 255])
        for r in range(64):
            for c in range(64):
                img[r, c] = img[r, c] / 255.0
        return torch.tensor(img).permute(2, 0, 1), i % 10

loader = DataLoader(Noisy(DATA + "/small"), batch_size=32, shuffle=True, num_workers=2)

model = nn.Sequential(nn.Flatten(), nn.Linear(12288, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

n, t = 0, time.time()
for epoch in range(1):
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += len(y)
    print("epoch", epoch, "loss", loss.item())
print(n / (time.time() - t), "samples/s")
