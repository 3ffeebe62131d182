#!/usr/bin/env bash
# A session on a machine with a CUDA device: tests, pixels and measurements in one run (docs/gpu.md, "On hardware").
#   device_session.sh build FOLDER [--rivals] [--photographs DIR] [--malformed DIR] [--python 3.12] [--part-nbytes N]
#   FOLDER/device_session.sh run FOLDER OUT [--only STAGE,...] [--minutes 8] [--rehearse]
#   device_session.sh report OUT/session.json
# `build` needs the repository, and no device; `run` needs Python with torch, and no compiler: it joins and unpacks the
# parts in FOLDER beside OUT. PYTHON names the Python that runs.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
if [ "$1" = run ] && [ $# -ge 3 ] && [ -f "$2/SHA256SUMS" ]; then
  folder=$(cd "$2" && pwd)
  mkdir -p "$3"
  unpacked=$(mktemp -d "${TMPDIR:-/tmp}/device-session.XXXXXX")
  trap 'rm -rf "$unpacked"' EXIT
  for group in base extras; do
    needed=$(grep -c " $group\." "$folder/SHA256SUMS" || true)
    there=$(find "$folder" -maxdepth 1 -name "$group.[0-9][0-9][0-9]" | wc -l)
    [ "$needed" -gt 0 ] || continue
    if [ "$there" -ne "$needed" ]; then
      echo "device_session: $group has $there of $needed parts in $folder" >&2
      [ "$group" = extras ] || exit 1
      continue
    fi
    (cd "$folder" && grep " $group\." SHA256SUMS | sha256sum --check --quiet)
    cat "$folder/$group".[0-9][0-9][0-9] | tar -xz -C "$unpacked"
  done
  out=$(cd "$3" && pwd)
  shift 3
  cd "$unpacked"
  "${PYTHON:-python3}" -m benches.device run "$unpacked" "$out" "$@"
else
  root=$here/..
  [ -d "$root/benches/device" ] || { echo "device_session: $2 holds no SHA256SUMS: pass what build wrote" >&2; exit 2; }
  python=$root/.venv/bin/python
  [ -x "$python" ] || python=python3
  PYTHONPATH=$root exec "${PYTHON:-$python}" -m benches.device "$@"
fi
