#!/usr/bin/env bash
# Build the wheels for x86-64 and arm64 in dist/: for every Linux with glibc 2.17 or newer and CPython 3.11 or newer.
# zig links against that glibc. maturin stops if a wheel needs more of a system than its name says.
set -euo pipefail
cd "$(dirname "$0")/.."
env=.venv-wheels
if ! cmp -s requirements/wheels.txt $env/installed.txt; then
  "${PYTHON:-python3}" -m venv --clear $env
  $env/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/wheels.txt
  cp requirements/wheels.txt $env/installed.txt
fi
PATH="$PWD/$env/bin:$PATH"
rm -rf dist
for machine in x86_64 aarch64; do
  target=$machine-unknown-linux-gnu
  if [ ! -d "$(rustc --print target-libdir --target "$target")" ] && ! timeout 120 rustup --quiet target add "$target"; then
    echo "wheels: skipped $machine, since rustup cannot add its library: rustup target add $target" >&2
    continue
  fi
  maturin build --quiet --release --locked --zig --strip --compatibility manylinux2014 --target "$target" --out dist
done
for wheel in dist/*.whl; do
  auditwheel show "$wheel" >$env/audit.txt
  tr '\n' ' ' <$env/audit.txt | grep -q 'consistent with the following platform tag: "manylinux_2_17_' ||
    { cat $env/audit.txt >&2; exit 1; }
  echo "$wheel: $(($(stat -c %s "$wheel") / 1024)) kB"
done
