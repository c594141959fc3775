"""The project configuration, `caliper.yaml`: what would otherwise be repeated on every call. Everything has a default.

The environment rules say which of the operator's variables reach the steps of an attempt. Every step is started with
an allow-list, because what a step does not get it cannot leak, and because attempts of different machines must not
differ by what happens to be exported there. Two things have to come through all the same:

* to **every step**, how this machine reaches the network: proxies (commands read them in upper or in lower case, and
  without `NO_PROXY` a proxy takes loopback traffic too) and the files with additional certificate authorities, of which
  each runtime has a variable of its own;
* to **agents and judges**, how to log in where no login is stored: keys, tokens, and the cloud accounts that agent
  commands can use instead (Bedrock, Vertex, Foundry, Azure). Variables that change what the agent *is* stay out on
  purpose: `ANTHROPIC_MODEL` would pin a model behind the engine's back, and `CLAUDECODE` or `CLAUDE_CODE_ENTRYPOINT`
  of a session that Caliper is started from would tell the agent that it runs inside another. Hooks and asserts get no
  keys.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictBool, StrictInt, field_validator, model_validator

from caliper_pipeline.domain.authored import Authored, SolidText
from caliper_pipeline.domain.engine import Engine, parse_engine
from caliper_pipeline.domain.errors import UnknownBackend
from caliper_pipeline.domain.prices import Price

EVERYWHERE = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("GIT_SSL_CAINFO", "PIP_CERT", "NIX_SSL_CERT_FILE", "DENO_CERT", "AWS_CA_BUNDLE"),
)
"""Reaches every step."""
AGENT = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS"),
    *("ANTHROPIC_BEDROCK_*", "ANTHROPIC_VERTEX_*", "ANTHROPIC_FOUNDRY_*"),
    *("ANTHROPIC_DEFAULT_*_MODEL", "ANTHROPIC_SMALL_FAST_MODEL*"),
    *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
    *("CLAUDE_CODE_SKIP_*_AUTH", "CLAUDE_CODE_CLIENT_CERT", "CLAUDE_CODE_CLIENT_KEY*"),
    *("AWS_*", "CLOUD_ML_REGION", "VERTEX_REGION_*", "GOOGLE_*", "GCLOUD_PROJECT", "CLOUDSDK_CONFIG", "AZURE_*"),
    *("OPENAI_*", "CODEX_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY"),
    *("XAI_API_KEY", "DEEPSEEK_API_KEY", "CEREBRAS_API_KEY", "NOUS_API_KEY", "HF_TOKEN"),
)
"""Reaches agents and judges besides."""
OURS = ("HOME", "PATH", "CALIPER_WORKDIR", "CALIPER_SPEC_DIR", "CLAUDECODE", "CLAUDE_CONFIG_DIR", "PYTHONOPTIMIZE")
"""Set or kept out by Caliper itself; no rule may let them through."""
_VARIABLE = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]*\Z")
_FEWEST_LETTERS = 2
MOST_ATTEMPTS = 10_000
"""Of one task in one run."""
MOST_WORKERS = 512
MOST_SECONDS = 7 * 24 * 3600
MOST_TOKENS = 10**12
MOST_DOLLARS = 1_000_000


def _variable(text: str) -> str:
    if not _VARIABLE.match(text):
        raise ValueError(f"{text!r} is no name of a variable; `*` and `?` stand for any letters")
    if len(re.sub(r"[*?]", "", text)) < _FEWEST_LETTERS:
        raise ValueError(f"{text!r} would let nearly everything through: name what the attempts need")
    caught = [name for name in OURS if fnmatchcase(name, text)]
    if caught:
        raise ValueError(f"{text!r} covers {caught[0]}, which Caliper sets or keeps out itself")
    return text


def _engine(text: str) -> str:
    try:
        parse_engine(text, flag="the value")
    except UnknownBackend as error:
        raise ValueError(f"{error.message} {error.hint or ''}".strip()) from None
    return text


def _spec_glob(text: str) -> str:
    if text.startswith(("/", "~")) or ".." in text.split("/") or "\\" in text:
        raise ValueError(f"{text!r} must stay inside the project, with forward slashes")
    return text


Variable = Annotated[SolidText, AfterValidator(_variable)]
EngineName = Annotated[SolidText, AfterValidator(_engine)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=MOST_SECONDS, allow_inf_nan=False)]
Bytes = Annotated[int, Field(strict=True, ge=0, le=2**40)]


class Limits(Authored):
    """What steps may take."""

    setup_seconds: Seconds = 600.0
    cleanup_seconds: Seconds = 600.0
    assert_seconds: Seconds = 30.0
    judge_seconds: Seconds = 120.0
    mcp_seconds: Seconds = 30.0
    """How long the declared MCP servers may take to answer before a run begins."""
    snapshot_bytes: Bytes = 20 * 1024**2
    """How much of a workdir is kept as evidence."""
    stream_bytes: Bytes = 64 * 1024**2
    """How much of an agent's output is kept."""
    retries: Annotated[StrictInt, Field(ge=0, le=20)] = 2
    """Further calls of an agent or judge that was throttled."""
    backoff_seconds: Seconds = 2.0
    """How long a throttled engine is left alone, after the first throttle; doubled with each further one in a row."""
    backoff_most_seconds: Seconds = 60.0
    throttled_attempts: Annotated[StrictInt, Field(ge=1, le=MOST_ATTEMPTS)] = 5
    """Attempts in a row that may be lost to throttling before a run is stopped."""


class EnvironmentRules(Authored):
    """Names of variables, or patterns with `*` and `?`. What is written here comes on top of the defaults."""

    defaults: StrictBool = True
    """False: start from nothing, so that only what is written here is let through."""
    everywhere: tuple[Variable, ...] = EVERYWHERE
    """What every step may see."""
    agent: tuple[Variable, ...] = AGENT
    """What agents and judges may see besides."""

    @model_validator(mode="before")
    @classmethod
    def _on_top(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        wanted = data.get("defaults", True) is True
        merged = dict(data)
        for key, given in (("everywhere", EVERYWHERE), ("agent", AGENT)):
            own = data.get(key, ())
            if isinstance(own, list | tuple):
                merged[key] = [*own, *(item for item in given if wanted and item not in own)]
        return merged


Dollars = Annotated[float, Field(strict=True, ge=0, le=MOST_DOLLARS, allow_inf_nan=False)]


class EngineSettings(Authored):
    """What holds for one engine alone, in place of the general settings."""

    workers: Annotated[StrictInt, Field(ge=1, le=MOST_WORKERS)] | None = None
    """Calls at once, of agents and of judges."""
    timeout_seconds: Seconds | None = None


class StatedPrice(Authored):
    """US dollars for a million tokens of each kind."""

    input: Dollars
    """Read anew, neither from nor into a cache."""
    output: Dollars
    cache_read: Dollars | None = None
    cache_creation: Dollars | None = None

    @property
    def price(self) -> Price:
        return Price(self.input, self.output, self.cache_read, self.cache_creation)


class ProjectConfig(Authored):
    """The whole configuration."""

    specs: tuple[Annotated[SolidText, AfterValidator(_spec_glob)], ...] = ("**/*.eval.yaml", "**/*.eval.yml")
    """Where specs are, as patterns from the project's root."""
    model: EngineName = "claude-code"
    """The engine of attempts: `backend`, `backend:model` or a model of the default backend."""
    judge_model: EngineName | None = None
    """The engine of the judge. Absent: the attempts' engine."""
    k: Annotated[StrictInt, Field(ge=1, le=MOST_ATTEMPTS)] = 3
    workers: Annotated[StrictInt, Field(ge=1, le=MOST_WORKERS)] = 4
    timeout_seconds: Seconds = 120.0
    """For one invocation of an agent."""
    user_customizations: StrictBool | None = None
    """Whether attempts see what the operator has set up for the agent, where the spec does not say."""
    limits: Limits = Limits()
    environment: EnvironmentRules = EnvironmentRules()
    engines: dict[EngineName, EngineSettings] = Field(default_factory=dict)
    """Settings by `backend` or `backend:model`; the latter goes before."""
    prices: dict[SolidText, StatedPrice] = Field(default_factory=dict)
    """By model, `backend:model` or a pattern with `*`; without a price no cost is claimed."""

    empty_is_absent = frozenset({"judge_model", "user_customizations", "limits", "environment", "engines", "prices"})

    @field_validator("specs")
    @classmethod
    def _somewhere(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("is empty: no spec would ever be found")
        return value

    def engine_settings(self, engine: Engine) -> EngineSettings:
        """What holds for that engine, each setting from the most exact entry that has it."""
        merged: dict[str, Any] = {}
        for name, settings in self.engines.items():
            stated = parse_engine(name)
            exact = stated == engine
            if exact or (stated.model is None and stated.backend == engine.backend):
                given = settings.model_dump(exclude_none=True)
                merged = {**merged, **given} if exact else {**given, **merged}
        return EngineSettings.model_validate(merged)

    def price_table(self) -> dict[str, Price]:
        return {name: stated.price for name, stated in self.prices.items()}

    @classmethod
    def advice(cls, key: str, value: Any) -> str | None:
        if key in ("timeout", "setup", "cleanup"):
            return f"is written `{'timeout_seconds' if key == 'timeout' else f'{key}_seconds'}`" + (
                "" if key == "timeout" else " and belongs under `limits:`"
            )
        if key in Limits.known_keys():
            return "is in the wrong place: it belongs under `limits:`"
        if key in EnvironmentRules.known_keys():
            return "is in the wrong place: it belongs under `environment:`"
        return None


def project_schema() -> dict[str, Any]:
    """The JSON schema of `caliper.yaml`, for editors."""
    return ProjectConfig.model_json_schema()
