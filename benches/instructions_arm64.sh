#!/usr/bin/env bash
# How many arm64 instructions a training crop takes, by function, with scalar and with NEON kernels: qemu logs each one.
#   benches/instructions_arm64.sh IMAGE.jpg    (after `make test-emulated`, which installs what this needs)
# An estimate: instructions differ in time, and nothing is known of caches and mispredicted branches. It takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
image=$1
target=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"
cargo build --quiet --release --locked --target $target --package penstock-core --example decode_bench
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

count() { # level, fills: instructions of each function
  qemu-aarch64-static -singlestep -d exec,nochain "${CARGO_TARGET_DIR:-target}/$target/release/examples/decode_bench" \
    --level "$1" --crops --fill 224 --rounds "$2" "$image" 2>&1 >/dev/null |
    LC_ALL=C awk '/^Trace/ { count[$NF]++ } END { for (name in count) print name, count[name] }'
}

for level in scalar neon; do
  count $level 0 >"$folder/none"
  count $level 1 >"$folder/one"
  echo "$level"
  awk 'NR == FNR { none[$1] = $2; next } { more = $2 - none[$1]; all += more; if (more > 50000) print more, $1 }
    END { print all, "all" }' "$folder/none" "$folder/one" | sort -rn | c++filt | sed 's/::h[0-9a-f]\{16\}$//'
done
