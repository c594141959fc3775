"""OpenAI's API as an agent and as a judge; with `OPENAI_BASE_URL`, any server that speaks chat completions.

OpenAI's own models keep their thoughts across tool calls only in the Responses API. Local servers (Ollama, llama.cpp,
vLLM) all speak chat completions and want no key.
"""

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.api_backend import ApiBackend
from caliper_pipeline.execution.backends.base import Operator


class OpenaiApi(ApiBackend):
    name = "openai-api"
    sdk = "openai"
    keys = ("OPENAI_API_KEY",)
    variables = (*keys, "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
    url_variable = "OPENAI_BASE_URL"
    vendor_hosts = ("api.openai.com", "us.api.openai.com", "eu.api.openai.com")
    default_model = "gpt-5.4-mini"
    """The small model, as before: nobody should pay for a large one without having asked for it."""

    def __init__(self, *, responses_everywhere: bool = False) -> None:
        self._responses_everywhere = responses_everywhere
        """For gateways that speak the Responses API too."""

    def protocol(self, operator: Operator) -> str:
        return "responses" if self._responses_everywhere or self.base_url(operator) is None else "chat"

    def _check_server(self, url: str, engine: Engine) -> None:
        super()._check_server(url, engine)
        if engine.model is None:
            raise CannotRun(
                f"{self.name}: no model is named, and the server at {url} has no default.",
                hint=f"Name one that it serves: {self.name}:MODEL",
            )
