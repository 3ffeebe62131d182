#!/usr/bin/env bash
# Build in dist/ all that a release uploads, build it again from its own sdist in an empty folder, and compare every byte.
# Then check each artefact, and show the section of CHANGELOG.md that `make changelog VERSION=...` would write. Uploads nothing.
set -euo pipefail
. "$(dirname "$0")/wheels_env.sh"
if [ -n "$(git status --porcelain)" ]; then
  echo "release: the working tree has changes that are not committed, and they are built too" >&2
fi
python scripts/third_party.py --check
scripts/wheels.sh
maturin sdist --out dist

again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
tar -xzf dist/*.tar.gz -C "$again" --strip-components 1
CARGO_TARGET_DIR=$again/target scripts/wheels.sh "$again" >/dev/null
(cd "$again" && maturin sdist --out dist)
for artefact in dist/*.whl dist/*.tar.gz; do
  cmp "$artefact" "$again/$artefact"
  echo "$artefact: the same bytes when it is built from the sdist, sha256 $(sha256sum "$artefact" | cut -d ' ' -f 1)"
done
python scripts/check_wheels.py --all
scripts/changelog.sh
