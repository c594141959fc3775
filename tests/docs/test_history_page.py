"""docs/history.md shows what the history really answers. `python tests/docs/history_page.py` makes it anew."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_history import build

from caliper_pipeline.interfaces.history_command import SUBCOMMANDS
from caliper_pipeline.storage.history_session import SqlSession
from caliper_pipeline.storage.history_views import VIEWS
from caliper_pipeline.storage.migrations import table_names

from .history_page import COLUMNS, PAGE, QUERIES, columns_of, output_of

TEXT = PAGE.read_text(encoding="utf-8")
SHOWN = [(found[1], found[2]) for found in QUERIES.finditer(TEXT)]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    root = tmp_path_factory.mktemp("example")
    build(root)
    with SqlSession.open(root) as opened:
        yield opened


@pytest.mark.parametrize(("query", "output"), SHOWN, ids=[f"{n}" for n in range(len(SHOWN))])
def test_a_query_on_the_page_gives_what_the_page_shows(session: SqlSession, query: str, output: str) -> None:
    assert output_of(session, query) == output


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_every_view_has_its_example_and_columns_on_the_page(view: object) -> None:
    name, example = view.name, view.example  # type: ignore[attr-defined]
    section = TEXT.partition(f"### {name}\n")[2].partition("\n### ")[0]
    (shown,) = [" ".join(found[1].split()).removesuffix(";") for found in QUERIES.finditer(section)][:1]
    assert shown == " ".join(example.split())
    assert [found[2] for found in COLUMNS.finditer(section)] == [columns_of(name)]


def test_every_example_shows_rows() -> None:
    assert [query for query, output in SHOWN if len(output.splitlines()) < 3] == []


def test_every_table_of_runs_is_named() -> None:
    hidden = {"record_files", "about", "schema_changes"}
    assert {name for name in table_names() if name not in hidden and f"`{name}`" not in TEXT} == set()


def test_every_command_is_described() -> None:
    named = set(re.findall(r"caliper history (\w+)", TEXT))
    assert set(SUBCOMMANDS) - named == set()


def test_the_page_is_where_the_readme_says() -> None:
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert "docs/history.md" in readme
    assert Path(PAGE).exists()
