#!/usr/bin/env bash
# How many x86-64 instructions a training crop takes, by function, with AVX2 kernels: callgrind counts them, the same on each run.
#   benches/instructions.sh IMAGE.jpg ...    (needs valgrind, which does not know AVX-512)
# An estimate: instructions differ in time. What is done once (the first fill, reading files) is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --release --locked --package penstock-core --example decode_bench
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

count() { # rounds: instructions of each function
  valgrind --quiet --tool=callgrind --callgrind-out-file="$folder/$1.callgrind" \
    "${CARGO_TARGET_DIR:-target}/release/examples/decode_bench" --level avx2 --crops --fill 224 --rounds "$@" >/dev/null
  callgrind_annotate --auto=no --inclusive=no --threshold=100 "$folder/$1.callgrind" |
    sed -nE 's/^ *([0-9,]+) +\( *[0-9.]+%\) +[^ ]*:([^[]*[^[ ]).*$/\1 \2/p' | tr -d ','
}

count 1 "$@" >"$folder/one"
count 3 "$@" >"$folder/three"
awk -v images=$# 'NR == FNR { n = $1; $1 = ""; one[$0] += n; next } { n = $1; $1 = ""; three[$0] += n }
  END { for (name in three) { more = (three[name] - one[name]) / 2 / images; all += more; if (more > 1000) printf "%9.0f %s\n", more, name }
    printf "%9.0f all\n", all }' "$folder/one" "$folder/three" | sort -rn
