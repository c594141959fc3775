"""What of the operator's `settings.json` an attempt gets.

The default model stays also when the attempt is isolated: without it pi would pick a provider of its own, which the
login may not fit. What brings in code, instructions or tools of the operator's goes. The CLI's own tries of a refused
call (by default waits of 2, 4 and 8 s) are cut to what fits into a quarter of the time limit, so that a service that
is down shows as that and not as a timeout; tries of the HTTP client below it, which waits as long as the service
says, are switched off.
"""

from collections.abc import Mapping
from typing import Any

from caliper_pipeline.execution.backends.json_lines import count, mapping

RESOURCES = ("packages", "extensions", "skills", "prompts", "themes")
_CUSTOMIZATIONS = (
    *RESOURCES,
    *("theme", "shellCommandPrefix", "npmCommand", "defaultTools", "codemode", "enableSkillCommands"),
    *("externalEditor", "quietStartup", "keybindings"),
)
_NEVER = ("sessionDir", "selfUpdateCommand", "themes", "theme", "$schema")
_TRIES, _FIRST_WAIT_MS, _LONGEST_WAIT_MS = 3, 2_000, 60_000


def isolated_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in (*_CUSTOMIZATIONS, *_NEVER)}


def loaded_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Without the resources, which stand elsewhere for an attempt."""
    return {key: value for key, value in settings.items() if key not in (*RESOURCES, *_NEVER)}


def for_attempt(settings: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
    """With tries that fit into the time, and nothing told to the makers."""
    quiet = {"enableInstallTelemetry": False, "enableAnalytics": False}
    return {**settings, **quiet, "retry": _retry(mapping(settings.get("retry")), timeout_seconds / 4)}


def _retry(theirs: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    tries = _given(theirs, "maxRetries", _TRIES)
    wait = max(1, _given(theirs, "baseDelayMs", _FIRST_WAIT_MS))
    longest = _given(theirs, "maxAgentDelayMs", _LONGEST_WAIT_MS)
    fitting, total = 0, 0
    while fitting < tries and (total := total + min(wait * 2**fitting, longest)) <= seconds * 1000:
        fitting += 1
    return {**theirs, "maxRetries": fitting, "provider": {**mapping(theirs.get("provider")), "maxRetries": 0}}


def _given(theirs: Mapping[str, Any], key: str, default: int) -> int:
    given = count(theirs.get(key))
    return default if given is None else given
