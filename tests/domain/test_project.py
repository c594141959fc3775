"""The rules of the project configuration."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from caliper_pipeline.domain.authored import findings_of
from caliper_pipeline.domain.project import AGENT, EVERYWHERE, ProjectConfig, project_schema


def test_a_project_needs_no_configuration() -> None:
    config = ProjectConfig.model_validate({})
    assert (config.model, config.judge_model, config.k, config.workers, config.timeout_seconds) == (
        *("claude-code", None, 3, 4, 120.0),
    )
    assert (config.limits.setup_seconds, config.limits.assert_seconds, config.limits.retries) == (600.0, 30.0, 2)
    assert config.specs == ("**/*.eval.yaml", "**/*.eval.yml")


def test_variables_come_on_top_of_the_defaults() -> None:
    rules = ProjectConfig.model_validate({"environment": {"agent": ["MY_KEY", "AWS_*"]}}).environment
    assert set(rules.agent) == {*AGENT, "MY_KEY"}
    assert rules.everywhere == EVERYWHERE


def test_the_defaults_can_be_left_out() -> None:
    rules = ProjectConfig.model_validate({"environment": {"defaults": False, "agent": ["MY_KEY"]}}).environment
    assert (rules.everywhere, rules.agent) == ((), ("MY_KEY",))


@pytest.mark.parametrize("name", ["ANTHROPIC_MODEL", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CONFIG_DIR"])
def test_what_changes_the_agent_stays_out_by_default(name: str) -> None:
    from fnmatch import fnmatchcase

    assert not any(fnmatchcase(name, pattern) for pattern in (*EVERYWHERE, *AGENT))


@pytest.mark.parametrize(
    ("data", "path", "words"),
    [
        ({"k": 0}, ("k",), "at least 1"),
        ({"k": "3"}, ("k",), "whole number"),
        ({"k": True}, ("k",), "whole number"),
        ({"k": 2.5}, ("k",), "whole number"),
        ({"workers": -1}, ("workers",), "at least 1"),
        ({"timeout_seconds": 0}, ("timeout_seconds",), "more than 0"),
        ({"timeout_seconds": float("inf")}, ("timeout_seconds",), "finite"),
        ({"timeout_seconds": float("nan")}, ("timeout_seconds",), "finite"),
        ({"timeout": 5}, ("timeout",), "`timeout_seconds`"),
        ({"assert_seconds": 5}, ("assert_seconds",), "under `limits:`"),
        ({"agent": []}, ("agent",), "under `environment:`"),
        ({"modle": "x"}, ("modle",), "`model`"),
        ({"model": "nope:x"}, ("model",), "'nope'"),
        ({"judge_model": ""}, ("judge_model",), "blank"),
        ({"specs": []}, ("specs",), "empty"),
        ({"specs": ["../x/*.yaml"]}, ("specs", 0), "inside the project"),
        ({"specs": ["/x"]}, ("specs", 0), "inside the project"),
        ({"specs": "x"}, ("specs",), "must be a list"),
        ({"user_customizations": "no"}, ("user_customizations",), "true or false"),
        ({"limits": {"retries": -1}}, ("limits", "retries"), "at least 0"),
        ({"limits": {"snapshot_bytes": 1.5}}, ("limits", "snapshot_bytes"), "whole number"),
        ({"limits": {"snapshots": 1}}, ("limits", "snapshots"), "no such key"),
        ({"environment": {"agent": ["*"]}}, ("environment", "agent", 0), "nearly everything"),
        ({"environment": {"agent": ["?*"]}}, ("environment", "agent", 0), "nearly everything"),
        ({"environment": {"agent": ["A*"]}}, ("environment", "agent", 0), "nearly everything"),
        ({"environment": {"agent": ["OK", "HO*"]}}, ("environment", "agent", 1), "HOME"),
        ({"environment": {"everywhere": ["CALIPER_*"]}}, ("environment", "everywhere", 0), "CALIPER_WORKDIR"),
        ({"environment": {"everywhere": ["a-b"]}}, ("environment", "everywhere", 0), "no name of a variable"),
        ({"environment": {"everywhere": ["[A-Z]*"]}}, ("environment", "everywhere", 0), "no name of a variable"),
        ({"environment": {"everywhere": ["A=B"]}}, ("environment", "everywhere", 0), "no name of a variable"),
        ([], (), "must be a mapping"),
    ],
)
def test_a_refusal_names_place_and_remedy(data: Any, path: tuple[str | int, ...], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ProjectConfig.model_validate(data)
    found = {finding.path: finding.message for finding in findings_of(caught.value)}
    assert words in found[path]


NAMES = st.lists(st.from_regex(r"MY_[A-Z]{1,8}\*?", fullmatch=True), max_size=3)
SECONDS = st.floats(min_value=0.1, max_value=1e5)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["codex", "opus", "claude-code:x:y"]),
            "judge_model": st.sampled_from(["codex", "opus"]),
            "k": st.integers(1, 100),
            "workers": st.integers(1, 100),
            "timeout_seconds": SECONDS,
            "user_customizations": st.booleans(),
            "limits": st.fixed_dictionaries({}, optional={"setup_seconds": SECONDS, "retries": st.integers(0, 9)}),
            "environment": st.fixed_dictionaries(
                {}, optional={"defaults": st.booleans(), "everywhere": NAMES, "agent": NAMES}
            ),
        },
    )
)
def test_every_configuration_survives_yaml_and_json(data: dict[str, Any]) -> None:
    config = ProjectConfig.model_validate(data)
    plain = config.model_dump(mode="json", exclude_none=True)
    assert ProjectConfig.model_validate(json.loads(json.dumps(plain))) == config
    assert ProjectConfig.model_validate(yaml.safe_load(yaml.safe_dump(plain))) == config


def test_the_schema_describes_every_key() -> None:
    assert set(project_schema()["properties"]) == set(ProjectConfig.known_keys())
