"""Trains on arrays that a web server sends: each request waits for the network."""

from __future__ import annotations

import io
import multiprocessing
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Answer(BaseHTTPRequestHandler):
    """An array, 25 ms later."""

    def do_GET(self) -> None:
        time.sleep(0.025)
        content = io.BytesIO()
        np.save(content, np.full((3, 32, 32), int(self.path[1:]) % 7, np.float32))
        self.send_response(200)
        self.send_header("Content-Length", str(content.tell()))
        self.end_headers()
        self.wfile.write(content.getvalue())

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


def serve(sender: Connection) -> None:
    """Answer, and say at which port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    sender.send(server.server_port)
    server.serve_forever()


class Remote(Dataset[dict[str, torch.Tensor]]):
    """One request for each sample."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        with urllib.request.urlopen(f"{self.address}/{index}") as response:
            array = np.load(io.BytesIO(response.read()))
        return {"image": torch.from_numpy(array), "label": torch.tensor(index % 10)}


def main() -> None:
    """Train a linear model."""
    receiver, sender = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(sender,), daemon=True)
    server.start()
    loader = DataLoader(Remote(f"http://127.0.0.1:{receiver.recv()}"), batch_size=16, shuffle=True, num_workers=2)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    try:
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
