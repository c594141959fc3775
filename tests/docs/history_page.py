"""What docs/history.md shows, made anew from the example history.

    python tests/docs/history_page.py        rewrites the page

An output is whatever stands in a ```text block right behind a ```sql block; a list of columns stands between
`<!-- columns of VIEW -->` and `<!-- end -->`. Everything else on the page is written by hand.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from example_history import build  # noqa: E402

from caliper_pipeline.interfaces.render.rows_table import show_rows  # noqa: E402
from caliper_pipeline.storage.history_session import SqlSession  # noqa: E402
from caliper_pipeline.storage.history_views import VIEWS  # noqa: E402

PAGE = TESTS.parent / "docs" / "history.md"
QUERIES = re.compile(r"```sql\n(.*?)```\n\n```text\n(.*?)```\n", re.DOTALL)
COLUMNS = re.compile(r"<!-- columns of (\w+) -->\n(.*?)<!-- end -->\n", re.DOTALL)
WIDTH = "100"


def rewritten(page: str, session: SqlSession) -> str:
    """The page with every output and every list of columns as it would be now."""
    page = QUERIES.sub(lambda found: f"```sql\n{found[1]}```\n\n```text\n{output_of(session, found[1])}```\n", page)
    return COLUMNS.sub(lambda found: f"<!-- columns of {found[1]} -->\n{columns_of(found[1])}<!-- end -->\n", page)


def output_of(session: SqlSession, query: str) -> str:
    """What `caliper sql` prints for it, without the blanks at the ends of lines."""
    (statement,) = session.statements(query)
    answer = session.ask(statement)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), environment("COLUMNS", WIDTH):
        show_rows(answer.columns, answer.types, answer.fetch(sys.maxsize))
    return "".join(f"{line.rstrip()}\n" for line in shown.getvalue().splitlines())


def columns_of(name: str) -> str:
    (view,) = (view for view in VIEWS if view.name == name)
    rows = "".join(f"| `{column}` | {about.replace('|', chr(92) + '|')} |\n" for column, about in view.columns.items())
    return f"| column | meaning |\n|---|---|\n{rows}"


@contextlib.contextmanager
def environment(name: str, value: str):  # type: ignore[no-untyped-def]
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def with_example(use: Callable[[SqlSession], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        with SqlSession.open(Path(folder)) as session:
            use(session)


def main() -> None:
    def rewrite(session: SqlSession) -> None:
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), session), encoding="utf-8")

    with_example(rewrite)


if __name__ == "__main__":
    main()
