"""From partition keys back to what they stand for, and the specs of a project by path and by name."""

from pathlib import Path

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.domain.series import Series
from caliper_pipeline.evaluation.discovery import find_spec, find_specs
from caliper_pipeline.evaluation.project import Project, find_project
from caliper_pipeline.evaluation.registry import by_series, look_up, new_series, register, shared_run


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / ".caliper").mkdir()
    return find_project(tmp_path, {"CALIPER_ROOT": str(tmp_path)})


SERIES = Series("mail", Engine("claude-code", "a/b:c"), ("mcp:box", "triage"), isolated=True)
NAMES = ["plain", "a|b", "A|B", "café 🌊"]


def test_a_registered_series_comes_back_as_it_was(project: Project) -> None:
    entry = new_series(SERIES, project.root / "mail.eval.yaml", NAMES)
    register(project, entry)
    assert look_up(project, SERIES.key) == entry
    assert entry.engine == Engine("claude-code", "a/b:c")
    assert entry.ablate == ("mcp:box", "skill:triage")


def test_every_task_is_found_by_its_key(project: Project) -> None:
    register(project, new_series(SERIES, project.root / "mail.eval.yaml", NAMES))
    wanted = [(SERIES.task_key(name), number) for name in NAMES for number in (1, 2)]
    [(entry, chosen)] = by_series(project, wanted)
    assert entry.key == SERIES.key
    assert chosen == {(name, number) for name in NAMES for number in (1, 2)}


def test_a_series_nobody_knows_is_refused_with_what_to_do(project: Project) -> None:
    with pytest.raises(BadInput, match=r"caliper run"):
        look_up(project, "mail/codex")


def test_all_with_one_purpose_share_a_run_a_series(project: Project) -> None:
    def shared(purpose: str, series: str) -> str:
        with shared_run(project, purpose, series) as run_id:
            return run_id

    assert shared("b1", "mail/x") == shared("b1", "mail/x")
    assert len({shared("b1", "mail/x"), shared("b1", "mail/y"), shared("b2", "mail/x")}) == 3


def put(project: Project, *places: str) -> None:
    for place in places:
        path = project.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")


def test_specs_are_found_in_every_folder_that_people_keep_them_in(project: Project) -> None:
    put(project, "a.eval.yaml", "deep/er/b.eval.yml", "not.yaml", ".hidden/c.eval.yaml", "node_modules/d.eval.yaml")
    assert [path.relative_to(project.root).as_posix() for path in find_specs(project)] == [
        "a.eval.yaml",
        "deep/er/b.eval.yml",
    ]


def test_a_spec_is_named_by_path_or_by_name(project: Project) -> None:
    put(project, "deep/b.eval.yaml")
    path = project.root / "deep" / "b.eval.yaml"
    assert find_spec(project, "b") == find_spec(project, "deep/b.eval.yaml") == find_spec(project, str(path)) == path


def test_a_name_that_two_specs_have_is_refused(project: Project) -> None:
    put(project, "a.eval.yaml", "deep/a.eval.yaml")
    with pytest.raises(BadInput, match=r"Several specs are called 'a': a.eval.yaml, deep/a.eval.yaml"):
        find_spec(project, "a")
