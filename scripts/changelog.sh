#!/usr/bin/env bash
# Show the section of CHANGELOG.md that the files in changelog.d/ become. `scripts/changelog.sh VERSION` writes it, and
# deletes these files; VERSION must be that of Cargo.toml, which is the only place that has it. `scripts/changelog.sh --notes`
# prints the section of that version, and refuses if there is none, or if files in changelog.d/ are not in it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
section=$(awk -v heading="## $version (" '/^## / { inside = index($0, heading) == 1; next } inside' CHANGELOG.md)

refuse() { # why
  echo "changelog: $*" >&2
  exit 1
}

if [ "${1:-}" = --notes ]; then
  left=$(find changelog.d -type f ! -name README.md ! -name template.md.jinja -printf '%f ')
  [ -z "$left" ] || refuse "changelog.d must have no fragments, has ${left% }; make changelog VERSION=$version puts them into CHANGELOG.md"
  [[ $section = *[![:space:]]* ]] || refuse "CHANGELOG.md has no section for $version, which Cargo.toml says; write '## $version (YYYY-MM-DD)'"
  echo "${section#$'\n'}"
  exit
fi
[ "${1:-$version}" = "$version" ] || refuse "VERSION must be $version, as Cargo.toml says, got $1; change Cargo.toml first"
mode=--draft
if [ -n "${1:-}" ]; then
  [ -z "$section" ] || refuse "CHANGELOG.md has a section for $version already; change the version in Cargo.toml first"
  mode=--yes
fi
. scripts/wheels_env.sh
towncrier build $mode --version "$version"
