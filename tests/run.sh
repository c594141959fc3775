#!/usr/bin/env bash
# Everything a change must pass, with all the set-up it needs: format, lint, types, import contracts, tests.
# Works on a fresh machine with Python 3.11+, npm and (on Debian, as root) apt; `bash tests/run.sh -k WORD` narrows
# the tests down.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${CALIPER_VENV:-.venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'

# The real agent CLIs, pinned: what they print is part of what the tests hold them to.
tools=tests/real_cli
pinned() { # FOLDER: the packages in it are those that its package.json names
    [ -d "$1/node_modules" ] && [ "$1/package.json" -ot "$1/node_modules/.installed" ]
}
for folder in "$tools" "$tools/pi"; do
    if ! pinned "$folder"; then
        rm -rf "$folder/node_modules"
        npm install --prefix "$folder" --no-audit --no-fund --no-package-lock --loglevel=error
        touch "$folder/node_modules/.installed"
    fi
done
# This package links its binary in an install script, which npm may have been told not to run.
"$tools/node_modules/.bin/claude" --version > /dev/null 2>&1 ||
    node "$tools/node_modules/@anthropic-ai/claude-code/install.cjs" > /dev/null
hermes="$tools/.hermes"
if ! [ "$tools/hermes.txt" -ot "$hermes/installed" ]; then
    rm -rf "$hermes"
    python3 -m venv "$hermes"
    "$hermes/bin/python" -m pip install --quiet --disable-pip-version-check -r "$tools/hermes.txt"
    touch "$hermes/installed"
fi
# The product whose results files are exchanged, so that it can say itself what it reads in them.
reference="$tools/.reference"
if ! [ "$tools/reference.txt" -ot "$reference/installed" ]; then
    rm -rf "$reference"
    python3 -m venv --without-pip "$reference"
    "$venv/bin/python" -m pip --python "$reference/bin/python" install --quiet --disable-pip-version-check \
        -r "$tools/reference.txt"
    touch "$reference/installed"
fi

# The browser that looks at the web UI.
if ! command -v chromium > /dev/null && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium > /dev/null
fi

"$venv/bin/ruff" format --check .
"$venv/bin/ruff" check .
"$venv/bin/mypy"
"$venv/bin/lint-imports"
exec "$venv/bin/python" -m pytest -n "${PYTEST_WORKERS:-auto}" --dist loadgroup "$@"
