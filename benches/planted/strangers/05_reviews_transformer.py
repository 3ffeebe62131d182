import argparse
import collections
import math
import random
import string
import time
from pathlib import Path
from typing import Iterator, List

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

PAD, UNK, CLS = 0, 1, 2


class Tokenizer:
    """Words, and for unknown words their characters."""

    def __init__(self, texts: List[str], size: int = 2000) -> None:
        counts = collections.Counter(w for t in texts for w in self.split(t))
        symbols = list(string.ascii_lowercase) + [w for w, _ in counts.most_common(size)]
        self.ids = {s: i + 3 for i, s in enumerate(dict.fromkeys(symbols))}

    def __len__(self) -> int:
        return len(self.ids) + 3

    @staticmethod
    def split(text: str) -> List[str]:
        return text.lower().translate(str.maketrans("", "", string.punctuation)).split()

    def encode(self, text: str, max_len: int) -> Tensor:
        out = [CLS]
        for word in self.split(text):
            if word in self.ids:
                out.append(self.ids[word])
            else:
                out.extend(self.ids.get(c, UNK) for c in word)
        return torch.tensor(out[:max_len])


class Reviews(Dataset):
    def __init__(self, encoded: List[Tensor], labels: List[int]) -> None:
        self.encoded, self.labels = encoded, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int):
        return self.encoded[i], self.labels[i]


class LengthBatches(Sampler):
    """Batches of texts of about the same length."""

    def __init__(self, lengths: List[int], batch_size: int, seed: int = 0) -> None:
        self.lengths, self.batch_size, self.rng = lengths, batch_size, random.Random(seed)

    def __len__(self) -> int:
        return math.ceil(len(self.lengths) / self.batch_size)

    def __iter__(self) -> Iterator[List[int]]:
        order = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i] + self.rng.random() * 8)
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        self.rng.shuffle(batches)
        return iter(batches)


def collate(samples):
    ids, labels = zip(*samples)
    return pad_sequence(ids, batch_first=True, padding_value=PAD), torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self, vocab: int, dim: int, heads: int, layers: int, max_len: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.positions = nn.Parameter(torch.randn(1, max_len, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, 0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.positions[:, : ids.size(1)]
        return self.head(self.encoder(x, src_key_padding_mask=ids == PAD)[:, 0])


def read_texts(folder: Path):
    texts, labels = [], []
    for label, name in enumerate(("neg", "pos")):
        for path in sorted((folder / name).glob("*.txt")):
            texts.append(path.read_text(encoding="utf-8"))
            labels.append(label)
    return texts, labels


def get_args() -> argparse.Namespace:
    p = argparse.ArgumentParser(description="sentiment")
    p.add_argument("data", type=Path)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--max-len", type=int, default=256)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def run(args: argparse.Namespace) -> None:
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    texts, labels = read_texts(args.data / "texts")
    tok = Tokenizer(texts)
    encoded = [tok.encode(t, args.max_len) for t in texts]
    held_out = set(random.sample(range(len(texts)), 120))
    parts = [[i for i in range(len(texts)) if (i in held_out) == v] for v in (False, True)]
    train, valid = (Reviews([encoded[i] for i in p], [labels[i] for i in p]) for p in parts)
    loader = DataLoader(train, batch_sampler=LengthBatches([len(e) for e in train.encoded], args.batch_size), collate_fn=collate)
    valid_loader = DataLoader(valid, batch_size=args.batch_size, collate_fn=collate)
    print(f"{len(train)} texts to learn from, {len(valid)} held out, {len(tok)} tokens")

    model = Classifier(len(tok), args.dim, args.heads, args.layers, args.max_len)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
    total, seconds = 0, 0.0
    for epoch in range(args.epochs):
        model.train()
        start = time.perf_counter()
        for step, (ids, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(ids), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            warmup.step()
            total += len(y)
            if step % 25 == 0:
                print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.4f}", flush=True)
        seconds += time.perf_counter() - start
        model.eval()
        with torch.inference_mode():
            right = sum(int((model(ids).argmax(1) == y).sum()) for ids, y in valid_loader)
        print(f"epoch {epoch}: {right}/{len(valid)} right")
    print(f"{total / seconds:.1f} samples/s")


if __name__ == "__main__":
    run(get_args())
