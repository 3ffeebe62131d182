# Sourced by scripts that build what is uploaded: the environment .venv-wheels, first in PATH, and what makes two builds equal.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
env=$PWD/.venv-wheels
if ! cmp -s requirements/wheels.txt "$env/installed.txt"; then
  "${PYTHON:-python3}" -m venv --clear "$env"
  "$env/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement requirements/wheels.txt
  cp requirements/wheels.txt "$env/installed.txt"
fi
PATH="$env/bin:$PATH"
# Times in archives are the last commit's. An sdist has no history: there, they are those of its files.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y pyproject.toml)}
export SOURCE_DATE_EPOCH PATH
