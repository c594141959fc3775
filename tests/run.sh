#!/usr/bin/env bash
# Everything a change must pass, with all the set-up it needs: format, lint, types, import contracts, tests.
# Works on a fresh machine with Python 3.11+, npm and (on Debian, as root) apt; `bash tests/run.sh -k WORD` narrows
# the tests down.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${CALIPER_VENV:-.venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'

# The real agent CLI, pinned; its install step links a native binary, so scripts must be allowed.
tools=tests/real_cli
if [ ! -x "$tools/node_modules/.bin/claude" ] || ! "$tools/node_modules/.bin/claude" --version | grep -q "$(sed -nE 's/.*claude-code": "([0-9.]+)".*/\1/p' "$tools/package.json")"; then
    npm install --prefix "$tools" --no-audit --no-fund --no-package-lock --loglevel=error
    node "$tools/node_modules/@anthropic-ai/claude-code/install.cjs" > /dev/null
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
