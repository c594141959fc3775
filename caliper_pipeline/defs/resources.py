"""What the assets need from outside, each under a key of its own: backends, judge, run store, history.

They hand out core objects and decide nothing. A test, or another project, puts its own in their place.
"""

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from dagster import ConfigurableResource
from pydantic import Field

from caliper_pipeline.domain.engine import Engine, parse_engine
from caliper_pipeline.evaluation.project import Project, find_project
from caliper_pipeline.evaluation.run import Evaluation
from caliper_pipeline.execution.backends.base import Backend
from caliper_pipeline.execution.backends.customized import customized
from caliper_pipeline.execution.backends.registry import make_backend
from caliper_pipeline.storage import history


class BackendResource(ConfigurableResource, ABC):  # type: ignore[type-arg]
    """One way of running an agent."""

    @abstractmethod
    def backend(self) -> Backend: ...


class AgentCommand(BackendResource, ABC):
    """An agent that is a command on this machine."""

    name: ClassVar[str]

    folder: str = Field(
        default="",
        description="Folder that holds the command. Empty: the first one on PATH, or the one that its own variable "
        "names (CODEX_CLI_PATH, PI_CLI_PATH, HERMES_CLI_PATH).",
    )
    environment: list[str] = Field(
        default=[],
        description="Variables that agents and judges of this backend may see, by name or glob, besides those that "
        "caliper.yaml lets through. For instance ANTHROPIC_BASE_URL.",
    )

    def backend(self) -> Backend:
        return customized(make_backend(self.name), folder=self.folder, environment=self.environment)


class ClaudeCode(AgentCommand):
    """The Claude Code CLI (`claude`), as an agent and as a judge."""

    name = "claude-code"


class Codex(AgentCommand):
    """The Codex CLI (`codex`), as an agent and as a judge."""

    name = "codex"


class Pi(AgentCommand):
    """The pi CLI (`pi`), as an agent and as a judge."""

    name = "pi"


class Hermes(AgentCommand):
    """The Hermes CLI (`hermes`), as an agent and as a judge."""

    name = "hermes"


class ClaudeApi(BackendResource):
    """Anthropic's Messages API with a small agent of our own, and as a judge. The key is ANTHROPIC_API_KEY."""

    base_url: str = Field(default="", description="Its address. Empty: ANTHROPIC_BASE_URL, else Anthropic's.")

    def backend(self) -> Backend:
        return customized(make_backend("claude-api"), settings=_set(ANTHROPIC_BASE_URL=self.base_url))


class OpenaiApi(BackendResource):
    """OpenAI's API, or any server that speaks its chat completions, with a small agent of our own, and as a judge.
    The key is OPENAI_API_KEY; a local server needs none."""

    base_url: str = Field(default="", description="Its address. Empty: OPENAI_BASE_URL, else OpenAI's.")

    def backend(self) -> Backend:
        return customized(make_backend("openai-api"), settings=_set(OPENAI_BASE_URL=self.base_url))


class Scripted(BackendResource):
    """An embedded agent that plays a script (`<spec>.script.yaml`). Its figures are simulated."""

    environment: list[str] = Field(
        default=[],
        description="Variables that the played commands may see, by name or glob, besides those that caliper.yaml "
        "lets through.",
    )

    def backend(self) -> Backend:
        return customized(make_backend("scripted"), environment=self.environment)


class Judge(ConfigurableResource):  # type: ignore[type-arg]
    """Who judges `expect` when a run's own configuration names nobody."""

    engine: str = Field(
        default="",
        description="BACKEND or BACKEND:MODEL. Empty: `judge_model` of caliper.yaml, else the engine under test.",
    )

    def choose(self, wish: str) -> Engine | None:
        """The engine that a run's configuration wishes for, else this resource's. `None`: nobody is named."""
        name = wish or self.engine
        return parse_engine(name, flag="judge") if name else None


class RunStore(ConfigurableResource):  # type: ignore[type-arg]
    """The project whose runs are made and shown: the folder with `.caliper/` and caliper.yaml."""

    root: str = Field(
        default="",
        description="The project's folder. Empty: CALIPER_ROOT, else found from the working directory upwards.",
    )

    def project(self) -> Project:
        if not self.root:
            return find_project(Path.cwd())
        return find_project(Path(self.root), {**os.environ, "CALIPER_ROOT": self.root})


class History(ConfigurableResource):  # type: ignore[type-arg]
    """The DuckDB history that finished runs are published to."""

    path: str = Field(
        default="",
        description="The database file. Empty: `.caliper/history.duckdb` of the project.",
    )

    def without_own(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation as it should be executed: it publishes by itself unless another file is named here."""
        return dataclasses.replace(evaluation, publish_history=False) if self.path else evaluation

    def publish(self, evaluation: Evaluation) -> None:
        """After the run: into the file named here, if one is."""
        if self.path:
            history.publish(Path(self.path), [evaluation.folder])


def _set(**variables: str) -> dict[str, str]:
    return {name: value for name, value in variables.items() if value}


def backends_by_name(resources: Sequence[BackendResource]) -> dict[str, Backend]:
    return {backend.name: backend for backend in (resource.backend() for resource in resources)}


def default_resources() -> dict[str, object]:
    """Key → resource, as the code location serves them."""
    return {
        "claude_code": ClaudeCode(),
        "codex": Codex(),
        "pi": Pi(),
        "hermes": Hermes(),
        "claude_api": ClaudeApi(),
        "openai_api": OpenaiApi(),
        "scripted": Scripted(),
        "judge": Judge(),
        "run_store": RunStore(),
        "history": History(),
    }
