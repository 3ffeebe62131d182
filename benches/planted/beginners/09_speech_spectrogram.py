import os
import sys
import time
from scipy.io import wavfile
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class Speech(Dataset):
    def __init__(self, root):
        self.files = [os.path.join(root, f) for f in sorted(os.listdir(root))]

    def __len__(self):
        return len(self.files) * 8

    def __getitem__(self, i):
        rate, audio = wavfile.read(self.files[i % len(self.files)])
        audio = torch.from_numpy(audio.astype("float32") / 32768)
        spec = torch.stft(audio, 1024, hop_length=128, window=torch.hann_window(1024), return_complex=True).abs()
        spec = torch.log(spec + 1e-6)
        return spec[:, :256], i % 10

loader = DataLoader(Speech(DATA + "/sound"), batch_size=32, shuffle=True)

model = nn.Sequential(nn.Flatten(), nn.Linear(131328, 10))
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
