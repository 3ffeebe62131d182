#!/usr/bin/env bash
# Build the wheels for x86-64 and arm64 in dist/: for every Linux with glibc 2.17 or newer, or musl 1.2, and CPython 3.11 or newer.
# zig links against that libc. maturin stops if a wheel needs more of a system than its name says.
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
for target in {x86_64,aarch64}-unknown-linux-{gnu,musl}; do
  if [ ! -d "$(rustc --print target-libdir --target "$target")" ] && ! timeout 120 rustup --quiet target add "$target"; then
    echo "wheels: skipped $target, since rustup cannot add its library: rustup target add $target" >&2
    continue
  fi
  tag=manylinux2014
  [ "${target##*-}" = gnu ] || tag=musllinux_1_2
  maturin build --quiet --release --locked --zig --strip --compatibility $tag --target "$target" --out dist
done
for wheel in dist/*manylinux*.whl; do
  auditwheel show "$wheel" >$env/audit.txt
  tr '\n' ' ' <$env/audit.txt | grep -q 'consistent with the following platform tag: "manylinux_2_17_' ||
    { cat $env/audit.txt >&2; exit 1; }
done
for wheel in dist/*.whl; do
  echo "$wheel: $(($(stat -c %s "$wheel") / 1024)) kB"
done
