"""Anthropic's Messages API as an agent and as a judge."""

from caliper_pipeline.execution.backends.api_backend import ApiBackend
from caliper_pipeline.execution.backends.base import Operator


class ClaudeApi(ApiBackend):
    name = "claude-api"
    sdk = "anthropic"
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    variables = (*keys, "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS")
    url_variable = "ANTHROPIC_BASE_URL"
    vendor_hosts = ("api.anthropic.com",)
    default_model = "claude-haiku-4-5"
    """The small model, as before: nobody should pay for a large one without having asked for it."""

    def protocol(self, operator: Operator) -> str:
        return "messages"
