#!/usr/bin/env bash
# Build wheel and sdist, install each in a clean environment, and see that the commands work
# there, that nothing heavy is imported before it is needed, and that the lock file is whole.
# Uses the package index; where that cannot be reached it says so and leaves with 0.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m hatchling build -t wheel -t sdist -d "$work/dist" >/dev/null
wheel=$(echo "$work"/dist/*.whl)
sdist=$(echo "$work"/dist/*.tar.gz)

pip() { # pip NAME ARGUMENTS...: pip of one of the clean environments
  "$work/$1/bin/python" -m pip -qq --disable-pip-version-check "${@:2}"
}

"$python" -m venv "$work/wheel"
if ! pip wheel install --no-compile -c requirements.lock "$wheel"; then
  echo "check-package: the package index cannot be reached; skipped." >&2
  exit 0
fi
pip wheel check

# The sdist needs the same packages, which are there now; it is built as pip would build it.
"$python" -m pip -qq wheel --no-deps --no-build-isolation -w "$work/from-sdist" "$sdist"
"$python" -m venv --without-pip "$work/sdist"
cp -r "$work"/wheel/lib/python*/site-packages/. "$work"/sdist/lib/python*/site-packages/
pip sdist uninstall -y nsys-tracebook
pip sdist install --no-compile --no-deps "$work"/from-sdist/*.whl

# Known holes in what is locked, where the tool and its data base can be had.
if "$python" -m pip_audit --version >/dev/null 2>&1; then
  "$python" -m pip_audit --requirement requirements.lock --no-deps --disable-pip
fi

cd "$work" # away from the checkout, whose package would be imported instead
for kind in wheel sdist; do
  "$work/$kind/bin/tracebook" --version
  "$work/$kind/bin/tracebook" report "$OLDPWD/fixtures/full-recipe/trace.sqlite" --format json \
    >"$work/$kind.json" 2>/dev/null
done
cmp "$work/wheel.json" "$work/sdist.json"

# A report needs no plots: without matplotlib and scipy everything but `plot` and pages works.
pip wheel uninstall -y matplotlib scipy 2>/dev/null || pip wheel uninstall -y matplotlib
"$work/wheel/bin/tracebook" report "$OLDPWD/fixtures/full-recipe/trace.sqlite" --format json \
  2>/dev/null | cmp - "$work/sdist.json"
"$work/wheel/bin/python" -c 'import tracebook; tracebook.analyze'
echo "check-package: wheel and sdist work in clean environments."
