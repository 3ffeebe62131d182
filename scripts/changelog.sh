#!/usr/bin/env bash
# Show the section of CHANGELOG.md that the files in changelog.d/ become. `scripts/changelog.sh VERSION` writes it, and
# deletes these files; VERSION must be that of Cargo.toml, which is the only place that has it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
if [ "${1:-$version}" != "$version" ]; then
  echo "changelog: VERSION must be $version, as Cargo.toml says, got $1; change Cargo.toml first" >&2
  exit 1
fi
. scripts/wheels_env.sh
if [ -z "${1:-}" ]; then
  towncrier build --draft --version "$version"
else
  towncrier build --yes --version "$version"
fi
