#!/usr/bin/env bash
# Build the wheels for x86-64 and arm64 in dist/: for every Linux with glibc 2.17 or newer, or musl 1.2, and CPython 3.11 or newer.
# zig links against that libc. maturin stops if a wheel needs more of a system than its name says.
# `scripts/wheels.sh FOLDER` builds the sources in a folder, such as those of an sdist, in its own dist/.
set -euo pipefail
sources=$(cd "${1:-$(dirname "$0")/..}" && pwd)
. "$(dirname "$0")/wheels_env.sh"
cd "$sources"
# No path of this machine: a panic's message names a source file.
crates=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="--remap-path-prefix=$sources=. --remap-path-prefix=$crates=cargo"
export CFLAGS="-ffile-prefix-map=$sources=. -ffile-prefix-map=$crates=cargo"
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
  auditwheel show "$wheel" >"$env/audit.txt"
  tr '\n' ' ' <"$env/audit.txt" | grep -q 'consistent with the following platform tag: "manylinux_2_17_' ||
    { cat "$env/audit.txt" >&2; exit 1; }
done
for wheel in dist/*.whl; do
  echo "$wheel: $(($(stat -c %s "$wheel") / 1024)) kB"
done
