"""Logins by account, renewed where they belong before an attempt copies them.

Such a login is a token that lives for some hours and another that buys the next one, once. If an attempt renewed its
copy, the operator's own login would be worth nothing, and so would that of every attempt beside it. So the operator's
CLI renews it, in its own folder and under its own lock, when what is left would not outlast the attempt. It has a
command for that since 0.83.
"""

import functools
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.backends.json_lines import mapping
from caliper_pipeline.execution.backends.pi_cli import Cli
from caliper_pipeline.execution.backends.pi_values import read_file

RENEWS_SINCE = (0, 83, 0)
_OWN_MARGIN_SECONDS = 300.0
"""The CLI renews by itself what has less than that left."""
_MARGIN_SECONDS = _OWN_MARGIN_SECONDS + 60.0
_COMMAND_SECONDS = 30.0
_one_at_a_time = threading.Lock()


def renew(operator: Operator, cli: Cli, auth_file: Path, timeout_seconds: float) -> None:
    """Have renewed what would not last. What cannot be renewed stays; the attempt then says what is wrong."""
    if not cli.since(RENEWS_SINCE) or not _short(auth_file, timeout_seconds):
        return
    with _one_at_a_time:
        # Another attempt may have seen to it meanwhile.
        for provider, expires in _short(auth_file, timeout_seconds).items():
            left = int((timeout_seconds + _MARGIN_SECONDS) * 1000)
            path = os.pathsep.join([*cli.path_prefixes(cli.path), cli.path])
            env = {**operator.environment, "HOME": str(operator.home), "PATH": path}
            command = (*cli.start(path), "auth", "print-bearer-token", "--provider", provider)
            _run((*command, "--min-expiry", f"{left}ms"), tuple(sorted(env.items())), expires)


def _short(auth_file: Path, timeout_seconds: float) -> dict[str, float]:
    """Provider → when its login ends, for those that end too soon."""
    limit = (time.time() + timeout_seconds + _MARGIN_SECONDS) * 1000
    found = {}
    for provider, credential in mapping(read_file(auth_file)).items():
        expires = _expiry(mapping(credential))
        if expires is not None and expires < limit:
            found[provider] = expires
    return found


def _expiry(credential: Mapping[str, Any]) -> float | None:
    expires = credential.get("expires")
    known = isinstance(expires, int | float) and not isinstance(expires, bool)
    return float(expires) if credential.get("type") == "oauth" and known and expires is not None else None


@functools.lru_cache(maxsize=64)
def _run(command: tuple[str, ...], environment: tuple[tuple[str, str], ...], expires: float) -> bool:
    """One that could not be renewed is not tried again before it changes. What is printed is the secret itself."""
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
