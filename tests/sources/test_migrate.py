"""Specs of release 0.4 in the present form."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from caliper_pipeline.domain.errors import BadInput, SpecError
from caliper_pipeline.sources.migrate import migrate_spec, migrate_text
from tests.sources.tree import write

OLD = """\
# Tides, as of spring
skill:   # the one under test
  # do not move
  path: ./tide/SKILL.md   # canonical
  backend: codex  # fast
  model: gpt-5

# the judge is another family
judge:
  backend: claude-code   # careful
  model: "opus"
  # undecided: sonnet

# And now the tasks
tasks:   # all of them
  - name: A   # keep
    prompt: "skill: not me"
    expect: >
      # no comment, this
      judge: nor this
"""
NEW = """\
# Tides, as of spring
# Engines are chosen when it runs: --model codex:gpt-5 --judge-model claude-code:opus
skills:   # the one under test
  # do not move
  - ./tide/SKILL.md   # canonical
# fast

# the judge is another family
# careful
  # undecided: sonnet

# And now the tasks
tasks:   # all of them
  - name: A   # keep
    prompt: "skill: not me"
    expect: >
      # no comment, this
      judge: nor this
"""


def test_only_the_old_keys_change_and_every_comment_stays() -> None:
    assert migrate_text(OLD) == NEW


def test_line_ends_stay_as_they_are() -> None:
    assert migrate_text(OLD.replace("\n", "\r\n")) == NEW.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tasks: []\n", "tasks: []\n"),
        ("skills: [a]  # x\ntasks: []\n", "skills: [a]  # x\ntasks: []\n"),
        ("", ""),
        ("skill: ./a/SKILL.md\n", "skills: [./a/SKILL.md]\n"),
        ("skill: './a, b/SKILL.md'\n", "skills: ['./a, b/SKILL.md']\n"),
        ("skill: ./a,b/SKILL.md\n", 'skills: ["./a,b/SKILL.md"]\n'),
        ("skill:\n  path: ./a,b/SKILL.md\n", "skills:\n  - ./a,b/SKILL.md\n"),
        ("skill:\ntasks: []", "skills: []\ntasks: []"),
        ("skill: {}\n", "skills: []\n"),
        ("skill: {path: a/SKILL.md}  # c\ntasks: []\n", "skills: [a/SKILL.md]\n# c\ntasks: []\n"),
        ("skill:\n    path: a/SKILL.md\ntasks: []", "skills:\n    - a/SKILL.md\ntasks: []"),
        ("skill:\n  path: >-\n    a/SKILL.md\ntasks: []", "skills:\n  - a/SKILL.md\ntasks: []"),
        ("skill:\n  path: &p a/SKILL.md\nx: [*p]\n", "skills:\n  - &p a/SKILL.md\nx: [*p]\n"),
        ("judge:\n", ""),
        ("tasks: []\njudge: codex\n", "tasks: []\n# Engines are chosen when it runs: --judge-model codex\n"),
        ("{skill: {path: a}, tasks: []}", "{skills: [a], tasks: []}"),
        ("{tasks: [], skill: {path: a}}", "{tasks: [], skills: [a]}"),
        ("{judge: {model: m}, tasks: []}", "{tasks: []}"),
        ("{tasks: [], judge: {model: m}}", "{tasks: []}"),
        ("{tasks: [],\n judge: m,\n skill: {path: 'a'}}\n", "{tasks: [],\n skills: ['a']}\n"),
        (
            '{"name\\ud83c\\udf0a": 1, "skill": {"path": "a"}, "judge": "m", "tasks": []}',
            '{"name\\ud83c\\udf0a": 1, "skills": ["a"], "tasks": []}',
        ),
    ],
)
def test_each_way_to_write_the_old_keys_has_its_new_form(old: str, new: str) -> None:
    found = migrate_spec(old, "f").text
    assert found == new or (new == "" and not found.strip())


def test_a_migrated_spec_needs_no_migration() -> None:
    once = migrate_spec(OLD, "f")
    assert once.changed
    assert once.flags == ("--model codex:gpt-5", "--judge-model claude-code:opus")
    assert not migrate_spec(once.text, "f").changed


def test_a_path_that_names_the_folder_is_completed(tmp_path: Any) -> None:
    write(tmp_path, {"tide/SKILL.md": "x"})
    assert migrate_spec("skill: {path: ./tide/}\n", "f", tmp_path).text == "skills: [./tide/SKILL.md]\n"
    assert migrate_spec("skill: {path: ./none}\n", "f", tmp_path).text == "skills: [./none]\n"


def test_what_cannot_be_rewritten_safely_is_left_alone() -> None:
    with pytest.raises(BadInput, match="cannot be rewritten safely"):
        migrate_spec("skill:\n  path: a\n  model: &m opus\nx: *m\n", "f")


def test_both_forms_at_once_are_for_a_person_to_merge() -> None:
    with pytest.raises(SpecError, match="both"):
        migrate_spec("skills: []\nskill: {path: a}\n", "f")


PATHS = st.from_regex(r"(\./)?[a-z]{1,4}[ ,'\":#]?[a-z]{1,3}/SKILL\.md", fullmatch=True)
ENGINES = st.fixed_dictionaries(
    {}, optional={"backend": st.sampled_from(["codex", "pi"]), "model": st.sampled_from(["a b", "m#1", "x: y"])}
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["skill", "judge", "tasks", "sandbox"]), st.none(), min_size=1).map(list),
    PATHS,
    ENGINES,
    st.sampled_from([None, True, False]),
)
def test_the_rest_of_a_spec_never_changes(
    keys: list[str], path: str, engine: dict[str, Any], flow: bool | None
) -> None:
    values = {
        "skill": {"path": path, **engine},
        "judge": engine,
        "tasks": [{"name": "A", "prompt": "judge:\n  x\n# skill:", "expect": "skill: {}"}],
        "sandbox": {"extra_path": ["skill"]},
    }
    old = {key: values[key] for key in keys}
    new = yaml.safe_load(migrate_text(yaml.safe_dump(old, default_flow_style=flow, sort_keys=False))) or {}
    assert new == {
        **{key: value for key, value in old.items() if key not in ("skill", "judge")},
        **({"skills": [path]} if "skill" in old else {}),
    }
