# Homework 3, Deep Learning (winter term)
# Task: classify cat / dog / bird / car

import os
import cv2
import sys
import time
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import Dataset, DataLoader, random_split

class_names = ["bird", "car", "cat", "dog"]
IMG_SIZE = 64


class AnimalDataset(Dataset):

    def __init__(self, folder):
        self.folder = folder
        self.list = os.listdir(folder)
        self.list.sort()

    def __len__(self):
        return len(self.list)

    def __getitem__(self, index):
        name = self.list[index]
        image = cv2.imread(self.folder + "/" + name)
        image = cv2.resize(image, (IMG_SIZE, IMG_SIZE))
        image = image[:, :, ::-1].astype(np.float32) / 255.0
        label = class_names.index(name.split(".")[0])
        return image.transpose(2, 0, 1), label


def my_collate(batch):
    images = []
    labels = []
    for image, label in batch:
        images.append(image)
        labels.append(label)
    return torch.tensor(images), torch.tensor(labels)


class MyNet(nn.Module):

    def __init__(self):
        super(MyNet, self).__init__()
        self.conv1 = nn.Conv2d(3, 6, 5, stride=3)
        self.conv2 = nn.Conv2d(6, 12, 5, stride=3)
        self.fc = nn.Linear(12 * 6 * 6, 4)
        self.relu = nn.ReLU()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = x.view(x.shape[0], -1)
        return self.fc(x)


def accuracy(net, loader):
    net.eval()
    correct = 0
    total = 0
    with torch.no_grad():
        for images, labels in loader:
            _, predicted = torch.max(net(images), 1)
            total = total + labels.shape[0]
            correct = correct + (predicted == labels).sum().item()
    return 100 * correct / total


def main():
    torch.manual_seed(1)
    dataset = AnimalDataset(sys.argv[1] + "/homework")
    n_test = int(len(dataset) * 0.1)
    train_set, test_set = random_split(dataset, [len(dataset) - n_test, n_test])
    train_loader = DataLoader(train_set, batch_size=20, shuffle=True, num_workers=2, collate_fn=my_collate)
    test_loader = DataLoader(test_set, batch_size=20, num_workers=2, collate_fn=my_collate)

    net = MyNet()
    loss_fn = nn.CrossEntropyLoss()
    optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    number = 0
    train_time = 0
    for epoch in range(18):
        net.train()
        start = time.time()
        loss_sum = 0
        for images, labels in train_loader:
            optimizer.zero_grad()
            outputs = net(images)
            loss = loss_fn(outputs, labels)
            loss.backward()
            optimizer.step()
            loss_sum += loss.item()
            number += labels.shape[0]
        train_time += time.time() - start
        print("Epoch", epoch + 1, "Loss:", loss_sum / len(train_loader))
    print("Accuracy on test images:", accuracy(net, test_loader), "%")
    print("Time:", train_time, "s")
    print("Speed:", number / train_time, "samples/s")


if __name__ == "__main__":
    main()
