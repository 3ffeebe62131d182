#!/usr/bin/env bash
# Build in dist/ all that a release uploads, build it again from its own sdist in an empty folder, and compare every byte.
# Then check each artefact, write the checksums and the notes of the release beside them, and print the commands that upload.
# Uploads nothing. What is not committed, or not in CHANGELOG.md, is refused before anything is built.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() { # why
  echo "release: $*" >&2
  exit 1
}

changed=$(git status --porcelain)
[ -z "$changed" ] || refuse $'the working tree must have no changes that are not committed, has\n'"$changed"
notes=$(scripts/changelog.sh --notes)
. scripts/wheels_env.sh
python scripts/third_party.py --check
scripts/wheels.sh
wheels=(dist/*.whl)
[ ${#wheels[@]} -eq 4 ] || refuse "a release has 4 wheels, dist/ has ${#wheels[@]}: ${wheels[*]}"
maturin sdist --out dist

again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
tar -xzf dist/*.tar.gz -C "$again" --strip-components 1
CARGO_TARGET_DIR=$again/target scripts/wheels.sh "$again" >/dev/null
(cd "$again" && maturin sdist --out dist)
for artefact in dist/*.whl dist/*.tar.gz; do
  cmp "$artefact" "$again/$artefact"
  echo "$artefact: the same bytes when it is built from the sdist"
done
python scripts/check_wheels.py --all

(cd dist && sha256sum -- *.whl *.tar.gz | tee SHA256SUMS)
echo "$notes" >dist/RELEASE-NOTES.md
version=$(basename dist/*.tar.gz .tar.gz)
tag=v${version##*-}
cat <<END

Ready in dist/: ${#wheels[@]} wheels, the sdist, SHA256SUMS and RELEASE-NOTES.md. Nothing has been uploaded. To upload (docs/releasing.md):

  (cd dist && sha256sum --check SHA256SUMS)
  git tag --annotate $tag --message "penstock ${tag#v}" $(git rev-parse HEAD)
  git push origin $tag
  .venv-wheels/bin/uv publish dist/*.whl dist/*.tar.gz
  gh release create $tag --verify-tag --title "penstock ${tag#v}" --notes-file dist/RELEASE-NOTES.md dist/*.whl dist/*.tar.gz dist/SHA256SUMS

Leave out \`uv publish\` where .github/workflows/release.yml is a trusted publisher: it uploads when the tag is pushed.
END
