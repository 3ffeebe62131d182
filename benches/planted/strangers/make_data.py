import gzip, json, shutil, struct, sys
from pathlib import Path
import numpy as np, pandas as pd
from PIL import Image
from scipy.io import wavfile
src, out = Path(sys.argv[1]), Path(sys.argv[2])
rng = np.random.default_rng(7)
files = sorted(p for p in src.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
out.mkdir(parents=True, exist_ok=True)
pictures = [Image.open(f).convert("RGB").resize((160, 160)) for f in files[:400]]
def picture(i): return pictures[i % len(pictures)]
def folder(*parts):
    d = out.joinpath(*parts); d.mkdir(parents=True, exist_ok=True); return d

# ratings of films
n = 160_000
users, films = rng.zipf(1.3, n * 3), rng.zipf(1.2, n * 3)
ok = (users <= 4000) & (films <= 2000)
t = pd.DataFrame({"user_id": users[ok][:n], "movie_id": films[ok][:n]})
t["rating"] = rng.integers(1, 11, len(t)) / 2
t["timestamp"] = 1_000_000_000 + np.sort(rng.integers(0, 300_000_000, len(t)))
t.to_csv(out/"ratings.csv", index=False)

# faces as text
rows = []
for i in range(2600):
    x, y = rng.integers(0, 60, 2)
    face = np.asarray(picture(i).convert("L").crop((x, y, x + 100, y + 100)).resize((48, 48)))
    rows.append((i % 7, " ".join(map(str, face.ravel())), "PublicTest" if i % 13 == 0 else "Training"))
pd.DataFrame(rows, columns=["emotion", "pixels", "Usage"]).to_csv(out/"faces.csv", index=False)

# volumes and their masks, as NIfTI
def nifti(path, volume, code, bits):
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *volume.shape, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, code, bits)
    struct.pack_into("<f", header, 108, 352.0)
    header[344:348] = b"n+1\0"
    path.write_bytes(gzip.compress(bytes(header) + volume.tobytes(order="F"), 4))
d = folder("brains")
for i in range(10):
    base = np.stack([np.asarray(picture(i * 12 + k).convert("L").resize((128, 128)), "float32") for k in range(12)], -1)
    volume = np.repeat(base, 8, -1)
    mask = (volume > 140).astype("uint8")
    volume = (volume * 6 - 400 + rng.normal(0, 12, volume.shape)).astype("int16")
    nifti(d/f"sub-{i:02}_T1w.nii.gz", volume, 4, 16); nifti(d/f"sub-{i:02}_seg.nii.gz", mask, 2, 8)

# spoken words
d = folder("speech")
s = np.arange(16000) / 16000
for i in range(560):
    k = i % 8
    wave = np.sin(2 * np.pi * (200 + 90 * k) * s * (1 + 0.1 * rng.random())) * np.exp(-3 * s) + rng.normal(0, 0.05, 16000)
    (d/f"word{k}").mkdir(exist_ok=True); wavfile.write(d/f"word{k}"/f"{i:04}.wav", 16000, (wave * 12000).astype("int16"))

# texts
words = ["".join(rng.choice(list("aeioubcdfghlmnprstv"), rng.integers(2, 8))) for _ in range(2500)]
weights = 1 / np.arange(10, 2510); weights /= weights.sum()
for i in range(1500):
    k = rng.choice(2500, rng.integers(30, 220), p=weights)
    (folder("texts", "pos" if i % 2 else "neg")/f"{i:04}.txt").write_text(" ".join(words[(j * (1 + i % 2)) % 2500] for j in k) + ".\n")

# power, by the quarter of an hour
n = 36_000
t = pd.DataFrame({"date": pd.date_range("2019-01-01", periods=n, freq="15min").strftime("%Y-%m-%d %H:%M:%S")})
for k in range(7): t[f"MT_{k:03}"] = (np.sin(np.arange(n) / (96 + k)) * 40 + 100 + rng.normal(0, 5, n)).round(4)
t.to_csv(out/"power.csv", index=False)

# things in pictures
d, images, anns = folder("shapes", "images"), [], []
for i in range(800):
    picture(i).resize((64, 64)).save(d/f"{i:05}.jpg", quality=90)
    images.append({"id": i, "file_name": f"{i:05}.jpg", "width": 64, "height": 64})
    for _ in range(rng.integers(1, 6)):
        x, y, w, h = (float(v) for v in (*rng.integers(0, 40, 2), *rng.integers(6, 24, 2)))
        anns.append({"id": len(anns), "image_id": i, "bbox": [x, y, w, h], "area": w * h, "iscrowd": 0, "category_id": int(rng.integers(0, 5))})
json.dump({"images": images, "annotations": anns}, open(out/"shapes"/"instances.json", "w"))

# pictures in classes, as arrays, and as files with the class in their name
for i in range(400): picture(i).save(folder("thumbs", f"c{i % 20:02}")/f"{i:03}.jpg", quality=92)
np.save(out/"tiny32.npy", np.stack([np.asarray(picture(i).crop((k := i % 40, k, k + 110, k + 110)).resize((32, 32))) for i in range(3000)]))
d = folder("homework")
for i in range(1400): picture(i * 3 + i // 400).resize((72, 72)).save(d/f"{('cat', 'dog', 'bird', 'car')[i % 4]}.{i}.jpg", quality=90)
d = folder("originals")
for i in range(128): shutil.copy(files[i % len(files)], d/f"{i:03}.jpg")
