#!/usr/bin/env bash
# How many arm64 instructions a training crop takes, by function, with scalar and with NEON kernels: qemu logs each one. Then
# those of single kernels on 65,536 pixels.
#   benches/instructions_arm64.sh IMAGE.jpg    (after `make test-emulated`, which installs what this needs)
# An estimate: instructions differ in time, and nothing is known of caches and mispredicted branches. It takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
image=$1
target=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"
cargo build --quiet --release --locked --target $target --package penstock-core --examples
examples="${CARGO_TARGET_DIR:-target}/$target/release/examples"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

log() { # program, argument ...: a line for each instruction
  qemu-aarch64-static -singlestep -d exec,nochain "$examples/$1" "${@:2}" 2>&1 >/dev/null
}

count() { # level, fills: instructions of each function
  log decode_bench --level "$1" --crops --fill 224 --rounds "$2" "$image" |
    LC_ALL=C awk '/^Trace/ { count[$NF]++ } END { for (name in count) print name, count[name] }'
}

for level in scalar neon; do
  count $level 0 >"$folder/none"
  count $level 1 >"$folder/one"
  echo "$level"
  awk 'NR == FNR { none[$1] = $2; next } { more = $2 - none[$1]; all += more; if (more > 50000) print more, $1 }
    END { print all, "all" }' "$folder/none" "$folder/one" | sort -rn | c++filt | sed 's/::h[0-9a-f]\{16\}$//'
done

echo "kernel, scalar and NEON instructions a pixel"
for kernel in affine projective nearest window blur gray {up,sub,average,paeth}{1,3,4}; do
  line=$kernel
  for level in scalar neon; do
    none=$(log kernel_calls $level "$kernel" 0 | grep -c ^Trace)
    one=$(log kernel_calls $level "$kernel" 1 | grep -c ^Trace)
    line+=" $(((one - none) / 65536))"
  done
  echo "$line"
done
