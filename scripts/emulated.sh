#!/usr/bin/env bash
# The native core's tests on processors that this machine lacks: arm64 with NEON, then x86-64 without AVX2, by qemu.
# Installs what it lacks of Debian's packages (as root), and Rust's library for arm64, by rustup or from Debian. Where these
# cannot be had, it says so and succeeds. Emulation is slow: tests of memory and of documentation are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
arm=aarch64-unknown-linux-gnu
tests=(--quiet --locked --package penstock-core --lib --test fill_lines --test index --test pixel_kernels --test png_filters
  --test resample_kernels --test stored_pixels)

skip() { # why
  echo "skipped: tests on emulated processors: $*" >&2
  exit 0
}

debian() { # package ...
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    skip "these Debian packages are needed: apt-get install --no-install-recommends $*"
  fi
  { timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends "$@"; } \
    >/dev/null || skip "Debian's packages $* cannot be installed"
}

has_library() { # whether a compiler has Rust's library for arm64
  [ -d "$("$1" --print target-libdir --target $arm 2>/dev/null)" ]
}

[ "$(uname -m)" = x86_64 ] || skip "this machine is $(uname -m), not x86_64"
missing=()
command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu)
[ -e /usr/aarch64-linux-gnu/lib/libc.a ] || missing+=(libc6-dev-arm64-cross)
[ ${#missing[@]} -eq 0 ] || debian "${missing[@]}"
if ! has_library rustc && ! timeout 120 rustup --quiet target add $arm; then
  echo "rustup has no library for $arm: Debian's compiler is used" >&2
  has_library /usr/bin/rustc || { dpkg --add-architecture arm64 && debian rustc-web libstd-rust-web-dev:arm64; }
  export RUSTC=/usr/bin/rustc
fi

# A program that is linked dynamically hangs when it starts a thread under Debian 12's qemu.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64-static
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="qemu-x86_64-static -cpu Nehalem"
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"

echo "==> arm64, NEON"
[ -n "${RUSTC:-}" ] || cargo clippy --quiet --locked --target $arm --package penstock-core --all-targets -- -D warnings
cargo test --target $arm "${tests[@]}"
echo "==> x86-64 without AVX2"
cargo test --target x86_64-unknown-linux-gnu "${tests[@]}"
