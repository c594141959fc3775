"""The views of the history: the questions people ask, ready to read. Text only; made anew after every schema change.

Each says what one row is and what its columns mean, and gives an example to start from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from caliper_pipeline.storage.migrations import comment

_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class View:
    name: str
    about: str
    columns: Mapping[str, str]
    """Name → comment, for all columns, in order."""
    select: str
    example: str


_SERIES_COLUMNS = {
    "series_key": "what is followed over time",
    "spec": "name of the spec",
    "engine": "backend and model",
    "arm": "'full', or what was taken away",
}

MACROS = (
    (
        "wilson_low",
        f"""CREATE OR REPLACE MACRO wilson_low(successes, trials) AS CASE
            WHEN trials IS NULL OR trials = 0 THEN NULL
            WHEN successes = 0 THEN 0.0
            ELSE greatest(0.0, (successes / trials + {_Z * _Z} / (2 * trials)
                - {_Z} * sqrt(successes / trials * (1 - successes / trials) / trials
                              + {_Z * _Z} / (4 * trials * trials))) / (1 + {_Z * _Z} / trials)) END""",
        "lower end of the 95 % Wilson interval of successes in trials",
    ),
    (
        "wilson_high",
        f"""CREATE OR REPLACE MACRO wilson_high(successes, trials) AS CASE
            WHEN trials IS NULL OR trials = 0 THEN NULL
            WHEN successes = trials THEN 1.0
            ELSE least(1.0, (successes / trials + {_Z * _Z} / (2 * trials)
                + {_Z} * sqrt(successes / trials * (1 - successes / trials) / trials
                              + {_Z * _Z} / (4 * trials * trials))) / (1 + {_Z * _Z} / trials)) END""",
        "upper end of the 95 % Wilson interval of successes in trials",
    ),
)

VIEWS = (
    View(
        "graded_attempts",
        "one row an attempt with its latest verdict and the run it belongs to",
        {
            **_SERIES_COLUMNS,
            "run_id": "the run",
            "run_utc": "start of the run, or its end where no start is recorded",
            "task_id": "the task in that run",
            "task_name": "authored name of the task",
            "attempt": "number, from 1",
            "outcome": "what it came to; NULL: not graded yet",
            "usable": "counts in the denominator",
            "agent_seconds": "in the agent",
            "total_tokens": "all tokens; NULL: not reported",
            "activated": "skills that fired",
            "activation_passed": "exactly the skills asked for",
            "reason": "what the assert, the judge or the failure had to say",
            "output": "end of the final answer",
            "evidence": "folder of the evidence, below .caliper/runs/<run_id>",
            "simulated": "a script played the agent",
        },
        """SELECT r.series_key, r.spec, r.engine, r.arm, a.run_id, coalesce(r.started_utc, r.ended_utc),
            a.task_id, a.task_name, a.attempt, v.outcome, v.usable, a.agent_seconds,
            CASE WHEN a.has_usage AND coalesce(a.input_tokens, a.output_tokens, a.cache_read_tokens,
                                               a.cache_creation_tokens) IS NOT NULL
                 THEN coalesce(a.input_tokens, 0) + coalesce(a.output_tokens, 0)
                    + coalesce(a.cache_read_tokens, 0) + coalesce(a.cache_creation_tokens, 0) END,
            v.activated, v.activation_passed,
            coalesce(a.error, nullif(v.assert_evidence, ''), v.autorater_reasoning), a.output, a.evidence, r.simulated
        FROM attempts a JOIN runs r USING (run_id)
        LEFT JOIN verdicts v ON v.run_id = a.run_id AND v.task_id = a.task_id AND v.attempt = a.attempt
            AND v.is_latest""",
        "SELECT task_name, attempt, outcome, reason FROM graded_attempts WHERE outcome <> 'pass' LIMIT 20",
    ),
    View(
        "latest_runs",
        "one row a series: its run that started last",
        {
            **_SERIES_COLUMNS,
            "run_id": "the run",
            "run_utc": "start of the run, or its end where no start is recorded",
            "status": "completed, interrupted, stopped; NULL: killed, or still at work",
            "score": "mean of the tasks' success rates; NULL: nothing was measured",
            "score_low": "lower end of its 95 % interval",
            "score_high": "upper end of its 95 % interval",
            "successes": "attempts that passed",
            "usable": "attempts in the denominator",
            "unusable": "attempts that were lost",
            "activation_score": "mean of the tasks' activation scores",
            "total_tokens": "of all attempts",
            "agent_seconds": "of all attempts",
            "simulated": "a script played the agent",
        },
        """SELECT series_key, spec, engine, arm, run_id, coalesce(started_utc, ended_utc) AS run_utc, status,
            score, score_low, score_high, successes, usable, unusable, activation_score, total_tokens,
            agent_seconds, simulated
        FROM runs
        QUALIFY row_number() OVER (PARTITION BY series_key
                                   ORDER BY coalesce(started_utc, ended_utc) DESC, run_id DESC) = 1""",
        "SELECT spec, engine, arm, score, score_low, score_high FROM latest_runs ORDER BY score",
    ),
    View(
        "score_trend",
        "one row a run: its score with interval beside that of the run before in its series",
        {
            **_SERIES_COLUMNS,
            "run_id": "the run",
            "run_utc": "start of the run, or its end where no start is recorded",
            "score": "mean of the tasks' success rates; NULL: nothing was measured",
            "score_low": "lower end of its 95 % interval (Wilson)",
            "score_high": "upper end of its 95 % interval (Wilson)",
            "successes": "attempts that passed",
            "usable": "attempts in the denominator",
            "previous_score": "score of the run before",
            "change": "score - previous_score",
            "spec_changed": "the spec file is not the one of the run before",
            "simulated": "a script played the agent",
        },
        """SELECT series_key, spec, engine, arm, run_id, coalesce(started_utc, ended_utc) AS run_utc,
            score, score_low, score_high, successes, usable,
            lag(score) OVER series AS previous_score, score - lag(score) OVER series,
            spec_digest <> lag(spec_digest) OVER series, simulated
        FROM runs
        WINDOW series AS (PARTITION BY series_key ORDER BY coalesce(started_utc, ended_utc), run_id)""",
        "SELECT run_utc, score, score_low, score_high, change FROM score_trend WHERE spec = 'demo' ORDER BY run_utc",
    ),
    View(
        "flaky_tasks",
        "one row a task of a series that neither always passed nor always failed over its last ten scored runs",
        {
            **_SERIES_COLUMNS,
            "task_name": "authored name of the task",
            "runs": "runs looked at, at most ten",
            "mixed_runs": "runs in which some attempts passed and some did not",
            "successes": "attempts that passed",
            "usable": "attempts in the denominator",
            "rate": "successes / usable",
            "rate_low": "lower end of its 95 % interval (Wilson)",
            "rate_high": "upper end of its 95 % interval (Wilson)",
            "last_run_utc": "start of the last of these runs",
            "simulated": "a script played the agent in some of them",
        },
        """WITH recent AS (
            SELECT r.series_key, r.spec, r.engine, r.arm, s.task_name, s.successes, s.usable, r.simulated,
                coalesce(r.started_utc, r.ended_utc) AS run_utc
            FROM scores s JOIN runs r USING (run_id) WHERE s.usable > 0
            QUALIFY row_number() OVER (PARTITION BY r.series_key, s.task_name
                                       ORDER BY coalesce(r.started_utc, r.ended_utc) DESC, r.run_id DESC) <= 10)
        SELECT series_key, any_value(spec), any_value(engine), any_value(arm), task_name, count(*),
            count(*) FILTER (successes > 0 AND successes < usable), sum(successes)::BIGINT, sum(usable)::BIGINT,
            sum(successes) / sum(usable), wilson_low(sum(successes), sum(usable)),
            wilson_high(sum(successes), sum(usable)), max(run_utc), bool_or(simulated)
        FROM recent GROUP BY series_key, task_name
        HAVING sum(successes) > 0 AND sum(successes) < sum(usable)""",
        "SELECT spec, task_name, rate, rate_low, rate_high FROM flaky_tasks ORDER BY abs(rate - 0.5)",
    ),
    View(
        "unusable_breakdown",
        "one row a run and kind of loss: attempts that tell nothing about the agent, and what they cost",
        {
            **_SERIES_COLUMNS,
            "run_id": "the run",
            "run_utc": "start of the run, or its end where no start is recorded",
            "outcome": "infra_error, timeout or judge_error",
            "attempts": "attempts lost this way",
            "share": "of the run's graded attempts",
            "agent_seconds": "time in their agents",
            "tokens": "their tokens; NULL: not reported",
            "example": "what one of them had to say",
        },
        """SELECT r.series_key, r.spec, r.engine, r.arm, v.run_id, coalesce(r.started_utc, r.ended_utc), v.outcome,
            count(*), count(*) / r.graded, sum(a.agent_seconds),
            sum(CASE WHEN coalesce(a.input_tokens, a.output_tokens, a.cache_read_tokens, a.cache_creation_tokens)
                          IS NOT NULL
                     THEN coalesce(a.input_tokens, 0) + coalesce(a.output_tokens, 0)
                        + coalesce(a.cache_read_tokens, 0) + coalesce(a.cache_creation_tokens, 0) END)::BIGINT,
            any_value(coalesce(a.error, nullif(v.assert_evidence, ''), v.autorater_reasoning))
        FROM verdicts v JOIN runs r USING (run_id)
        JOIN attempts a ON a.run_id = v.run_id AND a.task_id = v.task_id AND a.attempt = v.attempt
        WHERE v.is_latest AND v.outcome IN ('infra_error', 'timeout', 'judge_error')
        GROUP BY r.series_key, r.spec, r.engine, r.arm, v.run_id, r.started_utc, r.ended_utc, v.outcome, r.graded""",
        "SELECT spec, outcome, sum(attempts), sum(agent_seconds) FROM unusable_breakdown GROUP BY ALL",
    ),
    View(
        "activation_matrix",
        "one row a task and skill of each series' latest run: how often the skill fired there",
        {
            **_SERIES_COLUMNS,
            "run_id": "the run",
            "task_name": "authored name of the task",
            "skill": "the skill's name",
            "expected": "the task wants it; NULL: the task does not say",
            "fired": "attempts in which it fired",
            "observed": "attempts in which one could have seen it",
            "rate": "fired / observed; NULL: none could be seen",
            "rate_low": "lower end of its 95 % interval (Wilson)",
            "rate_high": "upper end of its 95 % interval (Wilson)",
        },
        """WITH seen AS (
            SELECT v.run_id, v.task_id, v.activated FROM verdicts v
            SEMI JOIN latest_runs USING (run_id)
            WHERE v.is_latest AND v.activated IS NOT NULL AND v.outcome NOT IN ('infra_error', 'timeout')),
        observed AS (SELECT run_id, task_id, count(*) AS n FROM seen GROUP BY ALL),
        fired AS (
            SELECT run_id, task_id, skill, count(*) AS n
            FROM (SELECT run_id, task_id, unnest(activated) AS skill FROM seen) GROUP BY ALL)
        SELECT l.series_key, l.spec, l.engine, l.arm, l.run_id, s.task_name, k.skill,
            list_contains(s.activation_expected, k.skill), coalesce(f.n, 0), coalesce(o.n, 0),
            coalesce(f.n, 0) / nullif(o.n, 0), wilson_low(coalesce(f.n, 0), o.n), wilson_high(coalesce(f.n, 0), o.n)
        FROM latest_runs l JOIN scores s USING (run_id) JOIN skills k ON k.run_id = l.run_id AND k.installed
        LEFT JOIN observed o ON o.run_id = l.run_id AND o.task_id = s.task_id
        LEFT JOIN fired f ON f.run_id = l.run_id AND f.task_id = s.task_id AND f.skill = k.skill""",
        "SELECT task_name, skill, expected, fired, observed FROM activation_matrix WHERE spec = 'demo'",
    ),
    View(
        "control_gap",
        "one row a control: the latest run with something taken away beside the latest full run of the same kind",
        {
            "spec": "name of the spec",
            "engine": "backend and model",
            "arm": "what the control lacks",
            "full_run_id": "the full run",
            "control_run_id": "the control run",
            "full_score": "success rate with everything",
            "control_score": "success rate without it",
            "gap": "full_score - control_score: what it brings",
            "gap_low": "lower end of its 95 % interval (Newcombe's square-and-add)",
            "gap_high": "upper end of its 95 % interval (Newcombe's square-and-add)",
            "same_spec": "both ran the same spec file",
            "simulated": "a script played the agent",
        },
        """SELECT c.spec, c.engine, c.arm, f.run_id, c.run_id, f.score, c.score, f.score - c.score,
            f.score - c.score - sqrt((f.score - f.score_low) ** 2 + (c.score_high - c.score) ** 2),
            f.score - c.score + sqrt((f.score_high - f.score) ** 2 + (c.score - c.score_low) ** 2),
            fr.spec_digest = cr.spec_digest, f.simulated OR c.simulated
        FROM latest_runs c JOIN runs cr ON cr.run_id = c.run_id
        JOIN latest_runs f ON f.spec = c.spec AND f.engine = c.engine AND f.arm = 'full'
        JOIN runs fr ON fr.run_id = f.run_id AND fr.isolated = cr.isolated
        WHERE c.arm <> 'full'""",
        "SELECT spec, engine, arm, gap, gap_low, gap_high FROM control_gap ORDER BY gap",
    ),
)


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
