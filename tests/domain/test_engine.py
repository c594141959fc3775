import pytest

from caliper_pipeline.domain.engine import Engine, parse_engine
from caliper_pipeline.domain.errors import UnknownBackend


@pytest.mark.parametrize(
    ("value", "engine"),
    [
        ("codex", Engine("codex")),
        (" Codex ", Engine("codex")),
        ("claude_code:opus", Engine("claude-code", "opus")),
        ("codex: gpt-5.5 ", Engine("codex", "gpt-5.5")),
        ("pi:provider/family:7b:high", Engine("pi", "provider/family:7b:high")),
        ("OpenAI:GPT-5", Engine("openai-api", "GPT-5")),
        ("sonnet", Engine("claude-code", "sonnet")),
        ("provider/model", Engine("claude-code", "provider/model")),
    ],
)
def test_a_value_names_an_engine(value: str, engine: Engine) -> None:
    assert parse_engine(value) == engine


@pytest.mark.parametrize("value", ["codx:gpt", ":gpt", "family:7b", "gemini:pro"])
def test_a_backend_that_there_is_not_is_refused_with_those_there_are(value: str) -> None:
    with pytest.raises(UnknownBackend, match="there is no backend") as caught:
        parse_engine(value, flag="--judge-model")
    assert caught.value.message.startswith(f"--judge-model {value}: ")
    assert "claude-code, codex, pi, hermes, claude-api, openai-api" in (caught.value.hint or "")


@pytest.mark.parametrize("value", ["", "  ", "codex:", "codex:  "])
def test_an_empty_name_is_refused(value: str) -> None:
    with pytest.raises(UnknownBackend):
        parse_engine(value)


@pytest.mark.parametrize("value", ["--k", "-m", "codex:-c", "codex: --yolo"])
def test_an_option_is_no_model(value: str) -> None:
    with pytest.raises(UnknownBackend, match="does not begin with a dash"):
        parse_engine(value)
