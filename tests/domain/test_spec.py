"""The rules of a spec that need no disk."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from caliper_pipeline.domain.authored import findings_of
from caliper_pipeline.domain.spec import EvalSpec, GitSource, legacy_form, script_path

TASK: dict[str, Any] = {"name": "A", "prompt": "Go.", "activates": []}


def found(data: Any) -> dict[tuple[str | int, ...], str]:
    """What is wrong, by place."""
    with pytest.raises(ValidationError) as caught:
        EvalSpec.read(data)
    return {finding.path: finding.message for finding in findings_of(caught.value)}


def one_task(**changes: Any) -> dict[str, Any]:
    task = {**TASK, **changes}
    return {"tasks": [{key.removesuffix("_"): value for key, value in task.items()}]}


def test_a_spec_needs_only_a_task() -> None:
    spec = EvalSpec.read(one_task())
    assert [(task.id, task.name, task.activates) for task in spec.tasks] == [("task-001", "A", ())]
    assert spec.skills == ()
    assert not spec.mcp_declared


def test_ids_come_from_positions_whatever_the_author_wrote() -> None:
    spec = EvalSpec.read({"tasks": [{**TASK, "id": "x"}, {**TASK, "name": "B", "id": 7}]})
    assert [task.id for task in spec.tasks] == ["task-001", "task-002"]


def test_an_empty_mcp_block_counts_as_declared() -> None:
    assert EvalSpec.read({**one_task(), "mcp": {}}).mcp_declared


def test_names_in_activates_stand_once() -> None:
    assert EvalSpec.read(one_task(activates=["b", "a", "b"])).tasks[0].activates == ("b", "a")


@pytest.mark.parametrize(
    ("data", "path", "words"),
    [
        ({}, ("tasks",), "missing"),
        ({"tasks": []}, ("tasks",), "at least one"),
        ({"tasks": None}, ("tasks",), "without a value"),
        ({"tasks": "x"}, ("tasks",), "must be a list, not text"),
        ({"tasks": {"name": "A"}}, ("tasks",), "must be a list, not a mapping"),
        ({"tasks": [3]}, ("tasks", 0), "must be a mapping"),
        ([], (), "must be a mapping"),
        ({**one_task(), "skills": None}, ("skills",), "without a value"),
        ({**one_task(), "skills": "./SKILL.md"}, ("skills",), "must be a list"),
        ({**one_task(), "skills": [5]}, ("skills", 0), "must be the path of a SKILL.md"),
        ({**one_task(), "skills": [" "]}, ("skills", 0), "blank"),
        ({**one_task(), "skills": [{"path": "./a/SKILL.md"}]}, ("skills", 0), "- ./a/SKILL.md"),
        ({**one_task(), "skills": [{"repo": "--upload-pack=x"}]}, ("skills", 0, "repo"), "dash"),
        ({**one_task(), "skills": [{"repo": "a/b", "ref": "-x"}]}, ("skills", 0, "ref"), "dash"),
        ({**one_task(), "skills": [{"repo": "a/b", "path": "../SKILL.md"}]}, ("skills", 0, "path"), "inside"),
        ({**one_task(), "skills": [{"repo": "a/b", "path": "/SKILL.md"}]}, ("skills", 0, "path"), "inside"),
        ({**one_task(), "skills": [{"repo": "a/b", "path": "C:/SKILL.md"}]}, ("skills", 0, "path"), "inside"),
        ({**one_task(), "skills": [{"repo": "a/b", "path": "a\\SKILL.md"}]}, ("skills", 0, "path"), "inside"),
        ({**one_task(), "skills": [{"repo": "a/b", "path": "a/skill.md"}]}, ("skills", 0, "path"), "SKILL.md"),
        ({**one_task(), "mcp": None}, ("mcp",), "without a value"),
        ({**one_task(), "sandbox": None}, ("sandbox",), "without a value"),
        ({**one_task(), "user_customizations": "no"}, ("user_customizations",), "true or false"),
        ({**one_task(), "sandbox": {"forbidden_files": ["("]}}, ("sandbox", "forbidden_files", 0), "not a regular"),
        ({**one_task(), "sandbox": {"forbidden_files": "x"}}, ("sandbox", "forbidden_files"), "must be a list"),
        ({**one_task(), "sandbox": {"extra_path": [""]}}, ("sandbox", "extra_path", 0), "blank"),
        (one_task(name=""), ("tasks", 0, "name"), "blank"),
        (one_task(name="\u200b \u2800"), ("tasks", 0, "name"), "blank"),
        (one_task(name=5), ("tasks", 0, "name"), "must be text, not a number"),
        (one_task(name=True), ("tasks", 0, "name"), "must be text, not true"),
        (one_task(prompt="\n "), ("tasks", 0, "prompt"), "blank"),
        (one_task(prompt="a\0b"), ("tasks", 0, "prompt"), "NUL"),
        (one_task(prompt="a\ud83cb"), ("tasks", 0, "prompt"), "surrogate"),
        (one_task(expect=" "), ("tasks", 0, "expect"), "blank"),
        (one_task(expect=None), ("tasks", 0, "expect"), "without a value"),
        (one_task(assert_=" "), ("tasks", 0, "assert"), "blank"),
        (one_task(history=""), ("tasks", 0, "history"), "blank"),
        (one_task(activates="tides"), ("tasks", 0, "activates"), "must be a list"),
        (one_task(activates=None), ("tasks", 0, "activates"), "without a value"),
        (one_task(activates=[""]), ("tasks", 0, "activates", 0), "blank"),
        (one_task(assert_script="x"), ("tasks", 0, "assert_script"), "`assert`"),  # our own name, not the author's
        (one_task(forbidden_files=[]), ("tasks", 0, "forbidden_files"), "under `sandbox:`"),
        ({**one_task(), "prompt": "x"}, ("prompt",), "under `tasks:`"),
        ({**one_task(), "k": 3}, ("k",), "--k"),
        ({**one_task(), "model": "x"}, ("model",), "--model"),
        ({**one_task(), "judge-model": "x"}, ("judge-model",), "--judge-model"),
        ({"tasks": [{"name": "A", "prompt": "p"}]}, ("tasks", 0), "checks nothing"),
        ({**one_task(), "mcp": {"a b": {"command": "x"}}}, ("mcp", "a b"), "server name"),
        ({**one_task(), "mcp": {"a\n": {"command": "x"}}}, ("mcp", "a\n"), "server name"),
        ({**one_task(), "mcp": {"a": {}}}, ("mcp", "a", "command"), "missing"),
        ({**one_task(), "mcp": {"a": {"command": " "}}}, ("mcp", "a", "command"), "blank"),
        ({**one_task(), "mcp": {"a": {"type": "http"}}}, ("mcp", "a", "url"), "missing"),
        ({**one_task(), "mcp": {"a": {"type": "sse", "url": "u", "env": {}}}}, ("mcp", "a", "env"), "no meaning"),
        ({**one_task(), "mcp": {"a": {"command": "x", "url": "u"}}}, ("mcp", "a", "url"), "no meaning"),
        ({**one_task(), "mcp": {"a": {"type": "ws"}}}, ("mcp", "a", "type"), "'stdio', 'http' or 'sse'"),
        ({**one_task(), "mcp": {"a": {"command": "x", "env": {"N": 1}}}}, ("mcp", "a", "env", "N"), "must be text"),
    ],
)
def test_a_refusal_names_place_and_remedy(data: Any, path: tuple[str | int, ...], words: str) -> None:
    assert words in found(data)[path]


@pytest.mark.parametrize("key", ["setup", "cleanup"])
def test_a_hook_without_a_value_is_no_hook(key: str) -> None:
    assert getattr(EvalSpec.read(one_task(**{key: None})).tasks[0], key) is None


def test_everything_wrong_is_found_in_one_go() -> None:
    places = found(
        {
            "skils": [],
            "sandbox": {"forbiden_files": [], "extra_path": [1]},
            "tasks": [{"name": "A", "prompt": "", "asert": "x"}, {"name": "A", "prompt": 5}, {"promt": "p"}],
        }
    )
    assert set(places) == {
        ("skils",),
        ("sandbox", "forbiden_files"),
        ("sandbox", "extra_path", 0),
        ("tasks", 0, "prompt"),
        ("tasks", 0, "asert"),
        ("tasks", 1),
        ("tasks", 1, "name"),
        ("tasks", 1, "prompt"),
        ("tasks", 2),
        ("tasks", 2, "name"),
        ("tasks", 2, "promt"),
    }


def test_a_misspelt_check_is_told_once_and_not_also_as_a_missing_check() -> None:
    assert found({"tasks": [{"name": "A", "prompt": "p", "asert": "x"}]}) == {
        ("tasks", 0, "asert"): "there is no such key. Did you mean `assert`?"
    }


@pytest.mark.parametrize(
    ("names", "twins"),
    [
        (["Happy path", "Happy path"], True),
        (["Happy path", "Happy path "], True),
        (["Happy path", " Happy  path"], True),
        (["Happy path", "Happy\tpath"], True),
        (["Happy path", "Happy\u00a0path"], True),
        (["Happy path", "Happy\u200b path"], True),
        (["Happy path", "Happy path\ufeff"], True),
        (["Happy path", "Happy \u202epath"], True),
        (["caf\u00e9", "cafe\u0301"], True),  # composed and decomposed
        (["Happy path", "happy path"], False),  # letter case can be seen
        (["a.b", "a_b"], False),
        (["m\u00b2", "m2"], False),
        (["\u0430b", "ab"], False),  # another script's letter: can be seen in some fonts, and is meant in others
    ],
)
def test_names_that_no_eye_can_tell_apart_are_refused(names: list[str], twins: bool) -> None:
    data = {"tasks": [{**TASK, "name": name} for name in names]}
    if twins:
        assert "too" in found(data)["tasks", 1, "name"]
    else:
        assert len(EvalSpec.read(data).tasks) == 2


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ("./x.py", "./x.py"),
        ("\n  checks/x.py \n", "checks/x.py"),
        ("assert True", None),
        ("import x\n./x.py", None),
        ("./x.sh", None),
    ],
)
def test_a_single_line_that_ends_in_py_is_a_path(script: str, path: str | None) -> None:
    assert script_path(script) == path


@pytest.mark.parametrize(
    ("data", "block", "flags"),
    [
        ({"skill": {"path": "./a/SKILL.md"}}, "skills:\n  - ./a/SKILL.md", ()),
        ({"skill": "./a/SKILL.md"}, "skills:\n  - ./a/SKILL.md", ()),
        ({"skill": {"path": "a: b #c"}}, 'skills:\n  - "a: b #c"', ()),
        ({"skill": {"backend": "codex"}}, "skills: []", ("--model codex",)),
        ({"skill": {"path": "a", "model": "m"}}, "skills:\n  - a", ("--model m",)),
        (
            {"skill": {"backend": "codex", "model": "m n"}, "judge": {"backend": "pi"}},
            "skills: []",
            ("--model 'codex:m n'", "--judge-model pi"),
        ),
        ({"judge": "codex"}, None, ("--judge-model codex",)),
        ({"skill": None, "judge": None}, "skills: []", ()),
        ({"tasks": []}, None, ()),
    ],
)
def test_the_old_grammar_is_shown_in_its_new_form(data: Any, block: str | None, flags: tuple[str, ...]) -> None:
    assert legacy_form(data) == (block, flags)


def test_old_keys_are_refused_together_and_say_where_they_went() -> None:
    places = found({"skill": {"path": "a", "backend": "codex", "model": "m"}, "judge": {}, **one_task()})
    assert set(places) == {("skill",), ("skill", "backend"), ("skill", "model"), ("judge",)}
    assert "--model" in places["skill", "model"]
    assert "--judge-model" in places["judge",]


def test_an_interpolation_that_is_not_understood_is_remarked() -> None:
    server = {"type": "http", "url": "${HOST}/x", "headers": {"Key": "${KEY:-none}"}}
    remarks = list(EvalSpec.read({**one_task(), "mcp": {"a": server}}).remarks())
    assert [remark.path for remark in remarks] == [("mcp", "a", "headers", "Key")]


# -- properties --------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
SOLID = TEXT.map(lambda text: f"{text}x")


@st.composite
def tasks(draw: st.DrawFn, name: str) -> dict[str, Any]:
    task: dict[str, Any] = {"name": name, "prompt": draw(SOLID), "expect": draw(SOLID)}
    for key, values in {
        "assert": SOLID,
        "activates": st.lists(SOLID, unique=True, max_size=3),
        "setup": TEXT,
        "cleanup": TEXT,
        "history": SOLID,
    }.items():
        if draw(st.booleans()):
            task[key] = draw(values)
    return task


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=4, unique=True))
    spec: dict[str, Any] = {"tasks": [draw(tasks(name)) for name in names]}
    git = st.fixed_dictionaries(
        {"repo": st.just("a/b")}, optional={"ref": st.just("v1"), "path": st.just("x/SKILL.md")}
    )
    stdio = st.fixed_dictionaries(
        {"command": SOLID},
        optional={"args": st.lists(TEXT, max_size=2), "env": st.dictionaries(SOLID, TEXT, max_size=2)},
    )
    remote = st.fixed_dictionaries(
        {"type": st.sampled_from(["http", "sse"]), "url": SOLID},
        optional={"headers": st.dictionaries(SOLID, TEXT, max_size=2)},
    )
    for key, values in {
        "skills": st.lists(SOLID | git, max_size=3),
        "sandbox": st.fixed_dictionaries(
            {}, optional={"forbidden_files": st.just(["answers/.*"]), "extra_path": st.lists(SOLID, max_size=2)}
        ),
        "mcp": st.dictionaries(st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True), stdio | remote, max_size=2),
        "user_customizations": st.booleans(),
    }.items():
        if draw(st.booleans()):
            spec[key] = draw(values)
    return spec


@settings(deadline=None)
@given(specs())
def test_every_spec_survives_yaml_and_json(data: dict[str, Any]) -> None:
    spec = EvalSpec.read(data)
    for copy in (
        json.loads(json.dumps(spec.authored())),
        yaml.safe_load(yaml.safe_dump(spec.authored())),
    ):
        again = EvalSpec.read(copy)
        assert again == spec
        assert again.mcp_declared == spec.mcp_declared
        assert again.authored() == spec.authored()


def test_a_git_source_is_named_by_repository_ref_and_path() -> None:
    assert str(GitSource(repo="a/b", ref="v1")) == "a/b@v1:SKILL.md"
