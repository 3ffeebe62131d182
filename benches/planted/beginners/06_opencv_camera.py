import os
import sys
import time
import cv2
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class Camera(Dataset):
    def __init__(self, root):
        self.files = [os.path.join(root, f) for f in sorted(os.listdir(root))]

    def __len__(self):
        return len(self.files) * 4

    def __getitem__(self, i):
        img = cv2.imread(self.files[i % len(self.files)])
        img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)
        img = cv2.resize(img, (224, 224))
        img = img.transpose(2, 0, 1).astype("float32") / 255.0
        return torch.from_numpy(img), i % 10

loader = DataLoader(Camera(DATA + "/camera"), batch_size=16, shuffle=True, num_workers=2, drop_last=True)

model = nn.Sequential(nn.Flatten(), nn.Linear(150528, 10))
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
