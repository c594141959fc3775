"""The words that people and programs know a refusal by, on every backend, each with what to do about it."""

import re
from pathlib import Path

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import (
    CannotRun,
    CliTooOld,
    LoginRequired,
    MissingCli,
    SpendingCap,
    UnavailableModel,
)
from caliper_pipeline.execution.backends.base import Operator, Refusal
from caliper_pipeline.execution.backends.registry import AVAILABLE, make_backend

REAL = [name for name in AVAILABLE if name != "scripted"]
CLIS = [name for name in REAL if not name.endswith("-api")]
KINDS = {
    "login": (LoginRequired, r"Not logged in", r"(?i)log ?in|set a valid"),
    "cap": (SpendingCap, r"hit a spending or usage cap", r"caliper run --resume"),
    "model": (UnavailableModel, r"is not available", r"{flag}"),
    "option": (CliTooOld, r"rejects an option", r"(?i)update"),
    "configuration": (CannotRun, r"cannot run", r"\w"),
}
"""Kind → the exception, its words, and the words of its remedy."""
PAGE = Path(__file__).parents[2] / "docs" / "logins.md"
CASES = [(name, kind) for name in REAL for kind in KINDS if kind != "option" or name in CLIS]
"""Only a command has options."""


@pytest.mark.parametrize("judge", [False, True])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_refusal_names_engine_part_and_cause_and_its_remedy(name: str, kind: str, judge: bool) -> None:
    expected, words, remedy = KINDS[kind]
    error = make_backend(name).explain(Refusal(kind, "what the service said"), Engine(name, "m-1"), judge=judge)
    assert isinstance(error, CannotRun)
    assert type(error) is expected
    assert error.message.startswith(f"The {name} {'judge' if judge else 'agent'} ")
    assert re.search(words, error.message)
    assert "what the service said" in error.message
    assert error.hint is not None
    assert re.search(remedy.format(flag="--judge-model" if judge else "--model"), error.hint)
    assert not judge or "--model" not in error.hint.replace("--judge-model", "")


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kind in CASES if kind != "cap"])
def test_a_judge_that_is_refused_for_good_cannot_run(name: str, kind: str) -> None:
    error = make_backend(name).explain(Refusal(kind, "text"), Engine(name, "m-1"), judge=True)
    assert str(error).startswith(f"The {name} judge cannot run: ")


@pytest.mark.parametrize("name", CLIS)
def test_a_command_that_is_not_there_is_named_with_how_to_install_it(name: str, tmp_path: Path) -> None:
    nobody = Operator(
        environment={"PATH": str(tmp_path)}, allowed={"PATH": str(tmp_path)}, agent_allowed={}, home=tmp_path
    )
    with pytest.raises(MissingCli) as missing:
        make_backend(name).check(nobody, (), Engine(name), None)
    words = "claude command not found" if name == "claude-code" else f"{name} CLI not found"
    assert missing.value.message.startswith(f"{words}. Searched: {tmp_path}")
    assert re.search(r"(?i)install", str(missing.value.hint))


@pytest.mark.parametrize(("name", "command"), [("claude-code", "claude auth login"), ("codex", "codex login")])
def test_a_login_message_names_the_command_that_logs_in(name: str, command: str) -> None:
    error = make_backend(name).explain(Refusal("login", "text"), Engine(name), judge=False)
    assert f"`{command}`" in str(error)


def test_the_page_on_logins_lists_every_message_and_every_login() -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = [words for _, words, _ in KINDS.values()]
    told += ["claude command not found", *(f"{name} CLI not found" for name in CLIS if name != "claude-code")]
    told += ["The <backend> judge cannot run", "The <backend> judge was rate limited", "Not logged in to ChatGPT"]
    assert [words for words in told if words not in page] == []
    assert [name for name in REAL if f"`{name}`" not in page] == []
