import os
import sys
import time
import cv2
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class Frames(Dataset):
    def __init__(self, path):
        self.path = path
        cap = cv2.VideoCapture(path)
        self.n = int(cap.get(cv2.CAP_PROP_FRAME_COUNT))

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        cap = cv2.VideoCapture(self.path)
        cap.set(cv2.CAP_PROP_POS_FRAMES, i)
        ok, frame = cap.read()
        cap.release()
        frame = cv2.resize(frame, (128, 128))
        return torch.from_numpy(frame).permute(2, 0, 1).float() / 255, i % 10

loader = DataLoader(Frames(DATA + "/video.mp4"), batch_size=16, shuffle=True, num_workers=2)

model = nn.Sequential(nn.Flatten(), nn.Linear(49152, 10))
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
