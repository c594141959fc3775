"""How a codex call reaches its models: by the operator's stored login, or by their ChatGPT plan.

Whoever signed in with `caliper login chatgpt` has their plan used by every call that would use a login of codex's own,
until `caliper logout chatgpt`. Codex's `auth.json` stays where it is then: the call is given a provider by overrides,
and for it an access token that lasts as long as the call. A configuration that reaches its models in another way (a
provider with a key of its own, another address, `forced_login_method = "api"`) is left as it is.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.backends.codex_config import tries
from caliper_pipeline.execution.backends.codex_home import uses_plan
from caliper_pipeline.execution.chatgpt import session
from caliper_pipeline.execution.chatgpt.service import api_of

PLAN_PROVIDER = "openai_chatgpt_plan"
TOKEN_VARIABLE = "CHATGPT_ACCESS_TOKEN"
_SHARE_OF_LIMIT = 4
"""What the CLI tries again fits into this part of the time limit."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a call reaches the models, where that is not by the operator's stored login."""

    overrides: tuple[str, ...] = ()
    """`key=value`, laid over the configuration by `-c`; visible to everyone on the machine, so no secret."""
    environment: Mapping[str, str] = field(default_factory=dict)
    provider: str | None = None
    """The provider that the overrides select."""
    seeds_login: bool = True
    """False: the stored login stays where it is."""
    plan: bool = False
    """It is a login with a plan, not with a key."""


def chosen_access(operator: Operator, seconds: float) -> Access:
    """The plan where somebody signed in to one, else the operator's own login. Raises `CannotRun`."""
    if not uses_plan(operator):
        return Access()
    token = session.access_token(operator, seconds)
    if token is None:  # signed out a moment ago
        return Access()
    requests, streams = tries(seconds / _SHARE_OF_LIMIT)
    table = {
        "name": "ChatGPT plan",
        "base_url": api_of(operator.environment),
        "env_key": TOKEN_VARIABLE,
        "wire_api": "responses",
        "requires_openai_auth": False,
        "supports_websockets": False,
        "request_max_retries": requests,
        "stream_max_retries": streams,
    }
    return Access(
        overrides=(
            f"model_provider={json.dumps(PLAN_PROVIDER)}",
            *(f"model_providers.{PLAN_PROVIDER}.{key}={json.dumps(value)}" for key, value in table.items()),
        ),
        environment={TOKEN_VARIABLE: token},
        provider=PLAN_PROVIDER,
        seeds_login=False,
        plan=True,
    )


def check_plan(operator: Operator) -> None:
    """Raises `LoginRequired` when the plan is to be used and its login is known to be refused."""
    if uses_plan(operator):
        session.check(operator)


def login_words(operator: Operator, binary: str) -> tuple[str, ...]:
    """What logs a person in to the login that a call would use."""
    try:
        return session.LOG_IN if uses_plan(operator) else (binary, "login")
    except CannotRun:  # the plan's file is damaged: that is what has to be mended
        return session.LOG_IN
