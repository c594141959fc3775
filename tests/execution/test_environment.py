from pathlib import Path

import pytest

from caliper_pipeline.execution.environment import (
    agent_environment,
    login_values,
    operator_from,
    step_environment,
    temp_folder,
)

ENVIRON = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/ada",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "C",
    "LC_TIME": "C",
    "LCX": "x",
    "TERM": "xterm",
    "TMPDIR": "/scratch",
    "TZ": "UTC",
    "USER": "ada",
    "PYTHONOPTIMIZE": "2",
    "PYTHONPATH": "/somewhere",
    "HTTPS_PROXY": "http://proxy",
    "AWS_REGION": "eu-central-1",
    "AWS_SECRET_ACCESS_KEY": "s",
    "ANTHROPIC_API_KEY": "k",
    "CALIPER_RECORDER": "off",
}
OPERATOR = operator_from(ENVIRON, ["*_PROXY"], ["AWS_*", "ANTHROPIC_API_KEY", "CALIPER_*", "HOME"])
WORK, SPEC = Path("/tmp/w-1/work"), Path("/specs")


def test_hooks_and_asserts_get_the_list_and_nothing_else() -> None:
    assert step_environment(OPERATOR, WORK, SPEC) == {
        "PATH": "/usr/bin:/bin",
        "HOME": "/home/ada",
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C",
        "LC_TIME": "C",
        "TERM": "xterm",
        "TMPDIR": "/scratch",
        "TZ": "UTC",
        "HTTPS_PROXY": "http://proxy",
        "CALIPER_WORKDIR": "/tmp/w-1/work",
        "CALIPER_SPEC_DIR": "/specs",
    }


def test_agents_get_their_own_home_and_the_keys_let_through() -> None:
    home = Path("/tmp/w-1/home")
    assert agent_environment(OPERATOR, home) == {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp/w-1/home",
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C",
        "LC_TIME": "C",
        "TERM": "xterm",
        "TMPDIR": str(temp_folder(home)),
        "TZ": "UTC",
        "HTTPS_PROXY": "http://proxy",
        "AWS_REGION": "eu-central-1",
        "AWS_SECRET_ACCESS_KEY": "s",
        "ANTHROPIC_API_KEY": "k",
    }


def test_nothing_that_an_agent_sees_names_the_product() -> None:
    shown = agent_environment(OPERATOR, Path("/tmp/w-1/home"))
    assert not [item for item in (*shown, *shown.values()) if "caliper" in item.lower()]


@pytest.mark.parametrize(
    ("extra", "prefixes", "path"),
    [
        ((), (), "/usr/bin:/bin"),
        (("/spec/bin",), ("/node",), "/spec/bin:/node:/usr/bin:/bin"),
        (("/bin",), (), "/bin:/usr/bin"),  # moved to the front, not there twice
        ((), ("/bin", "/bin"), "/bin:/usr/bin"),
    ],
)
def test_an_agents_path_has_the_specs_folders_first(
    extra: tuple[str, ...], prefixes: tuple[str, ...], path: str
) -> None:
    env = agent_environment(OPERATOR, Path("/h"), extra_path=extra, path_prefixes=prefixes)
    assert env["PATH"] == path


def test_an_operator_without_home_or_path_still_works() -> None:
    operator = operator_from({}, [], [])
    assert operator.home.is_absolute()
    assert agent_environment(operator, Path("/h"))["PATH"]


def test_keys_among_the_variables_that_attempts_see_are_known_by_their_names() -> None:
    keys = {
        "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef",
        "HF_TOKEN": "hf_0123456789abcdef",
        "AWS_SECRET_ACCESS_KEY": "0123456789abcdef+/xyz",
        "DB_PASSWORD": "correct horse battery",
    }
    others = {
        "OPENAI_API_KEY": "ollama",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/a-long-path/token",
        "OPENAI_BASE_URL": "https://gateway.example/v1",
        "KEYBOARD_LAYOUT": "a long name of a layout",
    }
    unseen = {"OTHER_TOKEN": "0123456789abcdef-other"}
    seen = operator_from({**keys, **others, **unseen}, ["DB_*", "KEY*"], ["A*", "HF*", "OPENAI*"])
    assert login_values(seen) == set(keys.values())
