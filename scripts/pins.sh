#!/usr/bin/env bash
# Compile requirements/*.in to *.txt: all packages with hashes, for Python 3.11 and newer, without index address.
# `scripts/pins.sh --upgrade` takes the newest versions; without it, pinned versions do not change.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() {
  local name=$1
  shift
  .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --no-emit-find-links --custom-compile-command "make pins" \
    "requirements/$name.in" --output-file "requirements/$name.txt" "$@"
}
compile uv "$@"
compile dev "$@"
compile torch --constraint requirements/dev.txt "$@"
compile torchvision --no-deps "$@"
# Without torch and packages that only torch needs: an existing torch may be used, which must not be replaced.
compile frameworks --constraint requirements/dev.txt --constraint requirements/torch.txt --excludes <(echo torch) "$@"
# Installed into separate environments, before the packages of .venv (scripts/setup.py).
compile clients --constraint requirements/dev.txt --constraint requirements/torch.txt \
  --constraint requirements/frameworks.txt --excludes <(printf '%s\n' torch torchvision opencv-python) "$@"
compile types "$@"
compile site --constraint requirements/dev.txt --constraint requirements/torch.txt \
  --constraint requirements/frameworks.txt "$@"
compile wheels --constraint requirements/dev.txt "$@"
compile device --constraint requirements/dev.txt "$@"
compile device_rivals --constraint requirements/dev.txt --excludes <(printf '%s\n' torch numpy pillow scipy) "$@"
compile composer --excludes <(printf '%s\n' torch torchvision) "$@"
