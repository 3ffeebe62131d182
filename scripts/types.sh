#!/usr/bin/env bash
# Check what users' editors see of penstock: pyright in strict mode over tests/types, where no type of ours may be unknown
# and no line is ignored, and over examples/tutorials (but for two that need libraries of .venv-clients), where torch's own missing types (`Tensor.tolist`) are passed over.
# The files are copied to a folder of their own, so that penstock is an installed package with py.typed.
set -euo pipefail
cd "$(dirname "$0")/.."
env=.venv-types
if ! cmp -s requirements/types.txt $env/installed.txt; then
  "${PYTHON:-python3}" -m venv --clear $env
  if ! $env/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/types.txt; then
    echo "types: skipped, since pyright cannot be installed (requirements/types.txt)" >&2
    exit 0
  fi
  cp requirements/types.txt $env/installed.txt
fi
project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT
mkdir "$project/types" "$project/tutorials"
cp tests/types/*.py "$project/types"
cp examples/tutorials/*.py "$project/tutorials"
rm "$project"/tutorials/with_{timm,transformers}.py # these libraries are in .venv-clients alone
if grep -rnE "(type|pyright): *ignore" "$project"; then
  echo "types: what users write needs no ignore" >&2
  exit 1
fi
check() { # folder, further settings: strict, with the packages of .venv
  cat >"$project/$1/pyrightconfig.json" <<JSON
{"typeCheckingMode": "strict", "pythonVersion": "3.11", "venvPath": "$PWD", "venv": ".venv"$2}
JSON
  PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $env/bin/pyright --project "$project/$1" | sed "s|$project/||"
}
check types ""
unknown=$(printf ', "reportUnknown%sType": false' Member Variable Argument Parameter Lambda)
check tutorials "$unknown, \"reportMissingTypeStubs\": false"
