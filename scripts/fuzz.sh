#!/usr/bin/env bash
# Fuzz the decoders, the repair, the index, the fused fill and records, for SECONDS each: scripts/fuzz.sh SECONDS
# [TARGET ...], without targets all. Needs Rust's nightly; installs cargo-fuzz into .venv.
# The file of a crash is in native/fuzz/artifacts/; native/fuzz/README.md says where to add it with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "fuzz: Rust's nightly toolchain is needed: rustup toolchain install nightly --profile minimal" >&2
  exit 1
fi
if ! .venv/bin/cargo-fuzz --version >/dev/null 2>&1; then
  echo "==> installing cargo-fuzz into .venv"
  cargo install --quiet --locked --root .venv --no-track cargo-fuzz --version 0.13.2
fi
seeds=$(mktemp -d) # made for a target
trap 'rm -rf "$seeds"' EXIT

# The fixtures of the decoder's tests, and the shared hostile files if they exist.
jpegs=()
for folder in native/core/tests/data tests/hostile/files "${PENSTOCK_DATA:-../shared/data}/hostile-jpeg"; do
  [ -d "$folder" ] && jpegs+=("$folder")
done

fuzz() { # target, libFuzzer's arguments ...; the first folder is written to
  local target=$1
  shift
  local corpus=native/fuzz/corpus/$target
  mkdir -p "$corpus"
  PATH="$PWD/.venv/bin:$PATH" cargo +nightly fuzz run --fuzz-dir native/fuzz "$target" "$corpus" "$@" \
    -max_total_time="$seconds" -rss_limit_mb=2048 -print_final_stats=1
}

make_webps() { # lossy and lossless, with alpha and without
  .venv/bin/python - "$1" <<'PYTHON'
import sys
from pathlib import Path

import numpy as np
from PIL import Image

for channels in (3, 4):
    for lossless in (False, True):
        pixels = np.random.default_rng(channels).integers(0, 256, (24, 40, channels), np.uint8)
        Image.fromarray(pixels).save(Path(sys.argv[1], f"{channels}-{lossless}.webp"), lossless=lossless)
PYTHON
}

make_records() { # of the JPEGs that can be records
  PYTHONPATH=. .venv/bin/python - "$@" <<'PYTHON'
import contextlib
import sys
from pathlib import Path

from penstock import _native

for image in (path for folder in sys.argv[2:] for path in Path(folder).iterdir()):
    with contextlib.suppress(_native.CorruptError, _native.UnsupportedError, _native.TooLargeError):
        Path(sys.argv[1], image.name).write_bytes(_native.coefficients_from_jpeg(image.read_bytes()))
PYTHON
}

[ $# -gt 0 ] || set -- decode repair coefficients index fill png webp records
for target; do
  case $target in
    decode | repair) fuzz "$target" "${jpegs[@]}" -- -timeout=10 ;;
    coefficients)
      make_records "$seeds" "${jpegs[@]}"
      fuzz coefficients "$seeds" "${jpegs[@]}" -- -timeout=10
      ;;
    fill) fuzz fill "${jpegs[@]}" -- -timeout=20 ;;
    index) fuzz index -- -timeout=10 -max_len=600 ;;
    png)
      PYTHONPATH=. .venv/bin/python -m tests.native.png_writer "$seeds"
      fuzz png "$seeds" -- -timeout=10
      ;;
    webp)
      make_webps "$seeds"
      fuzz webp "$seeds" -- -timeout=10
      ;;
    records) fuzz records -- -timeout=10 ;;
    *)
      echo "fuzz: a target must be one of decode, repair, index, fill, png, webp, records, got $target" >&2
      exit 1
      ;;
  esac
done
