"""The views of the history: the questions people ask, ready to read. Text only; made anew after every schema change.

Each says what one row is and what its columns mean, and gives an example to start from. They are written so that a
filter on spec, engine, arm or run reaches the tables, and wide texts are touched last: a million attempts are asked in
less than 0.2 s (tests/benchmarks/views.py).
"""

from collections.abc import Iterator

from caliper_pipeline.storage.history_view import View
from caliper_pipeline.storage.history_views_changes import CHANGE_VIEWS
from caliper_pipeline.storage.history_views_pairs import PAIR_VIEWS
from caliper_pipeline.storage.history_views_runs import RUN_VIEWS
from caliper_pipeline.storage.history_views_tasks import TASK_VIEWS
from caliper_pipeline.storage.migrations import comment

__all__ = ["MACROS", "VIEWS", "View", "view_statements"]

_Z = 1.959963984540054

MACROS = (
    (
        "wilson_low",
        f"""CREATE OR REPLACE MACRO wilson_low(successes, trials) AS CASE
            WHEN trials IS NULL OR trials = 0 THEN NULL
            WHEN successes = 0 THEN 0.0
            ELSE greatest(0.0, (successes / trials + {_Z * _Z} / (2 * trials)
                - {_Z} * sqrt(greatest(0.0, successes / trials * (1 - successes / trials) / trials)
                              + {_Z * _Z} / (4 * trials * trials))) / (1 + {_Z * _Z} / trials)) END""",
        "lower end of the 95 % Wilson interval of successes in trials",
    ),
    (
        "wilson_high",
        f"""CREATE OR REPLACE MACRO wilson_high(successes, trials) AS CASE
            WHEN trials IS NULL OR trials = 0 THEN NULL
            WHEN successes >= trials THEN 1.0
            ELSE least(1.0, (successes / trials + {_Z * _Z} / (2 * trials)
                + {_Z} * sqrt(greatest(0.0, successes / trials * (1 - successes / trials) / trials)
                              + {_Z * _Z} / (4 * trials * trials))) / (1 + {_Z * _Z} / trials)) END""",
        "upper end of the 95 % Wilson interval of successes in trials",
    ),
    (
        "difference_low",
        """CREATE OR REPLACE MACRO difference_low(more, more_low, less, less_high) AS
            more - less - sqrt((more - more_low) ** 2 + (less_high - less) ** 2)""",
        "lower end of the 95 % interval of more - less, from the ends of theirs (Newcombe 1998, method 10)",
    ),
    (
        "difference_high",
        """CREATE OR REPLACE MACRO difference_high(more, more_high, less, less_low) AS
            more - less + sqrt((more_high - more) ** 2 + (less - less_low) ** 2)""",
        "upper end of the 95 % interval of more - less, from the ends of theirs (Newcombe 1998, method 10)",
    ),
    (
        "token_usd",
        """CREATE OR REPLACE MACRO token_usd(tokens, prices, name, kind) AS CASE
            WHEN coalesce(tokens, 0) = 0 THEN 0.0
            ELSE tokens * json_extract_string(prices, '$."' || name || '".' || kind)::DOUBLE / 1e6 END""",
        "dollars for tokens of a kind at the price of that name, which is stated for a million; NULL: there is none",
    ),
)
"""Name, statement, comment."""

VIEWS = (*RUN_VIEWS, *TASK_VIEWS, *PAIR_VIEWS, *CHANGE_VIEWS)


def view_statements() -> Iterator[str]:
    """Makes every macro and view anew, with its comments."""
    for name, statement, about in MACROS:
        yield statement
        yield comment("MACRO", name, about)
    for view in VIEWS:
        yield f"CREATE OR REPLACE VIEW {view.name} ({', '.join(view.columns)}) AS {view.select}"
        yield comment("VIEW", view.name, f"{view.about}. Example: {view.example}")
        for column, about in view.columns.items():
            yield comment("COLUMN", f"{view.name}.{column}", about)
