import io, json, os, pickle, random, shutil, sqlite3, sys, zipfile
from pathlib import Path
import cv2, h5py, numpy as np, pandas as pd
from PIL import Image
from scipy.io import wavfile
src, out = Path(sys.argv[1]), Path(sys.argv[2])
rng = np.random.default_rng(0)
files = sorted(p for p in src.rglob("*") if p.suffix.lower() in (".jpg",".jpeg"))
out.mkdir(parents=True, exist_ok=True)
for i, f in enumerate(files[:400]):
    d = out/"photos"/f"class{i%10}"; d.mkdir(parents=True, exist_ok=True); shutil.copy(f, d/f"{i:04}.jpg")
(out/"camera").mkdir(exist_ok=True); (out/"png").mkdir(exist_ok=True)
for i, f in enumerate(files[:60]):
    im = Image.open(f).convert("RGB").resize((4000, 3000)); im.save(out/"camera"/f"{i:03}.jpg", quality=90)
    if i < 24: Image.open(f).convert("RGB").resize((1600, 1200)).save(out/"png"/f"{i:03}.png")
(out/"small").mkdir(exist_ok=True)
anns = {}
for i in range(1600):
    im = Image.open(files[i % len(files)]).convert("RGB").resize((128, 96))
    n = f"{i:05}.jpg"; im.save(out/"small"/n, quality=90)
    anns[n] = {"category": i % 10, "boxes": [[1.5, 2.5, 30.25, 40.0]] * 8}
    d = out/"small_classes"/f"class{i%10}"; d.mkdir(parents=True, exist_ok=True); shutil.copy(out/"small"/n, d/n)
json.dump(anns, open(out/"annotations.json", "w"))
with zipfile.ZipFile(out/"small.zip", "w") as z:
    for p in sorted((out/"small").iterdir()): z.write(p, p.name)
np.save(out/"features.npy", rng.random((4000, 1024), "float32")); np.save(out/"labels.npy", rng.integers(0, 10, 4000))
t = pd.DataFrame(rng.random((12000, 30)), columns=[f"c{i}" for i in range(30)]); t["label"] = rng.integers(0, 10, len(t))
t.to_csv(out/"table.csv", index=False); t.to_parquet(out/"table.parquet")
with h5py.File(out/"images.h5", "w") as f:
    f.create_dataset("images", data=rng.integers(0, 255, (4000, 3, 64, 64), "uint8"), chunks=(1, 3, 64, 64), compression="gzip")
    f["labels"] = rng.integers(0, 10, 4000)
(out/"sound").mkdir(exist_ok=True)
for i in range(100): wavfile.write(out/"sound"/f"{i:03}.wav", 16000, rng.integers(-20000, 20000, 16000 * 4, "int16"))
words = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), rng.integers(2, 9))) for _ in range(3000)]
with open(out/"reviews.jsonl", "w") as f:
    for i in range(4000): f.write(json.dumps({"text": " ".join(rng.choice(words, rng.integers(50, 600))) + "!", "label": int(i % 2)}) + "\n")
with open(out/"vectors.jsonl", "w") as f:
    for i in range(8000): f.write(json.dumps({"x": rng.random(256).tolist(), "y": int(i % 10)}) + "\n")
for k in ("images", "masks"): (out/"seg"/k).mkdir(parents=True, exist_ok=True)
for i, p in enumerate(files[:120]):
    im = Image.open(p).convert("RGB"); im.save(out/"seg"/"images"/f"{i:03}.jpg")
    Image.fromarray((np.asarray(im.convert("L")) // 52).astype("uint8")).save(out/"seg"/"masks"/f"{i:03}.png")
db = sqlite3.connect(out/"measurements.db"); db.execute("drop table if exists m"); db.execute("create table m (number integer, x blob, y integer)")
db.executemany("insert into m values (?,?,?)", [(i, rng.random(128, "float32").tobytes(), i % 10) for i in range(6000)]); db.commit(); db.close()
(out/"pickles").mkdir(exist_ok=True)
for i in range(2000): pickle.dump({"signal": rng.random(2000).tolist(), "label": i % 10}, open(out/"pickles"/f"{i:05}.pkl", "wb"))
v = cv2.VideoWriter(str(out/"video.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 25, (640, 480))
for i in range(500): v.write(cv2.resize(cv2.imread(str(files[i // 10])), (640, 480)))
v.release()
