"""Views that hold two things against each other: a control and its full run, two engines, cost and passes.

Text only.
"""

from caliper_pipeline.storage.history_view import RUN_COLUMNS, RUN_UTC, SIMULATED, View

_TEXTS = ("prompt", "expect", "assert", "setup", "cleanup", "history", "activates")
_SAME_TEXTS = " AND ".join(f"a.{name}_digest IS NOT DISTINCT FROM b.{name}_digest" for name in _TEXTS)

PAIR_VIEWS = (
    View(
        "control_gap",
        "one row a control run, beside the full run of the same spec, engine and setup that started last before it "
        "(or the first after it, when there is none before)",
        {
            "spec": "name of the spec",
            "engine": "backend and model",
            "arm": "what the control lacks",
            "run_utc": "start of the control run, or its end where no start is recorded",
            "full_run_id": "the full run",
            "control_run_id": "the control run",
            "hours_apart": "start of the control - start of the full run, in hours",
            "tasks": "tasks that were measured in both; only they count here",
            "full_score": "mean of their success rates with everything",
            "full_low": "lower end of its 95 % interval (Wilson)",
            "full_high": "upper end of its 95 % interval (Wilson)",
            "control_score": "mean of their success rates without it",
            "control_low": "lower end of its 95 % interval (Wilson)",
            "control_high": "upper end of its 95 % interval (Wilson)",
            "gap": "full_score - control_score: what it brings",
            "gap_low": "lower end of its 95 % interval (Newcombe's square-and-add)",
            "gap_high": "upper end of its 95 % interval (Newcombe's square-and-add)",
            "same_spec": "both ran the same spec file",
            "latest": "no later run of this control is on record",
            **SIMULATED,
        },
        f"""WITH started AS (SELECT r.*, {RUN_UTC} AS run_utc FROM runs r WHERE {RUN_UTC} IS NOT NULL),
        measured AS (SELECT * FROM started WHERE scored_tasks > 0),
        controls AS (
            SELECT *, row_number() OVER (PARTITION BY spec, engine, arm, series_key
                                         ORDER BY run_utc DESC, run_id DESC) = 1 AS latest
            FROM measured WHERE arm <> 'full'),
        full_runs AS (SELECT * FROM measured WHERE arm = 'full'),
        before AS (
            SELECT c.run_id, f.run_id AS full_run_id FROM controls c ASOF JOIN full_runs f
            ON f.spec = c.spec AND f.engine = c.engine AND f.isolated = c.isolated AND c.run_utc >= f.run_utc),
        after AS (
            SELECT c.run_id, f.run_id AS full_run_id FROM controls c ANTI JOIN before USING (run_id)
            ASOF JOIN full_runs f
            ON f.spec = c.spec AND f.engine = c.engine AND f.isolated = c.isolated AND c.run_utc <= f.run_utc),
        pairs AS (FROM before UNION ALL FROM after),
        compared AS (
            SELECT p.run_id, p.full_run_id, count(*) AS tasks,
                avg(f.score) AS full_score, count(*) * count(*) / sum(1 / f.usable) AS full_size,
                avg(c.score) AS control_score, count(*) * count(*) / sum(1 / c.usable) AS control_size
            FROM pairs p JOIN scores c ON c.run_id = p.run_id AND c.usable > 0
            JOIN scores f ON f.run_id = p.full_run_id AND f.usable > 0 AND f.task_name = c.task_name
            GROUP BY ALL),
        ranged AS (
            SELECT *, wilson_low(full_score * full_size, full_size) AS full_low,
                wilson_high(full_score * full_size, full_size) AS full_high,
                wilson_low(control_score * control_size, control_size) AS control_low,
                wilson_high(control_score * control_size, control_size) AS control_high
            FROM compared)
        SELECT c.spec, c.engine, c.arm, c.run_utc, f.run_id AS full_run_id, c.run_id AS control_run_id,
            epoch(c.run_utc - f.run_utc) / 3600,
            g.tasks, g.full_score, g.full_low, g.full_high, g.control_score, g.control_low, g.control_high,
            g.full_score - g.control_score,
            difference_low(g.full_score, g.full_low, g.control_score, g.control_high),
            difference_high(g.full_score, g.full_high, g.control_score, g.control_low),
            f.spec_digest = c.spec_digest, c.latest, f.simulated OR c.simulated
        FROM ranged g JOIN controls c USING (run_id) JOIN full_runs f ON f.run_id = g.full_run_id""",
        "SELECT run_utc::DATE AS night, arm, full_score, control_score, gap, gap_low, gap_high FROM control_gap "
        "WHERE spec = 'inbox-triage' ORDER BY run_utc",
    ),
    View(
        "engine_comparison",
        "one row an ordered pair of engines of a spec: their latest runs of the same arm and setup, over the tasks "
        "whose texts are the same in both",
        {
            "spec": "name of the spec",
            "arm": "'full', or what was taken away from both",
            "isolated": "both ran without the operator's own customizations",
            "engine_a": "the one engine",
            "engine_b": "the other; each pair comes in both orders, so that either can be asked for",
            "run_id_a": "its latest run",
            "run_id_b": "its latest run",
            "run_utc_a": "when that started",
            "run_utc_b": "when that started",
            "tasks": "tasks with the same name and texts that were measured in both; only they count here",
            "other_tasks": "tasks of either run that are left out: other texts, another name, or not measured",
            "score_a": "mean of their success rates with engine_a",
            "score_a_low": "lower end of its 95 % interval (Wilson)",
            "score_a_high": "upper end of its 95 % interval (Wilson)",
            "score_b": "mean of their success rates with engine_b",
            "score_b_low": "lower end of its 95 % interval (Wilson)",
            "score_b_high": "upper end of its 95 % interval (Wilson)",
            "difference": "score_b - score_a",
            "difference_low": "lower end of its 95 % interval (Newcombe's square-and-add)",
            "difference_high": "upper end of its 95 % interval (Newcombe's square-and-add)",
            "same_skills": "the installed skills are the same, file by file; NULL: not recorded",
            "same_judge": "the judge and its question are the same",
            **SIMULATED,
        },
        f"""WITH latest AS (SELECT r.*, l.run_utc FROM latest_runs l JOIN runs r USING (run_id)),
        installed AS (
            SELECT run_id, CASE WHEN count(*) = count(digest) THEN list((skill, digest) ORDER BY skill) END AS skills
            FROM skills SEMI JOIN latest USING (run_id) WHERE installed GROUP BY run_id),
        asked AS (
            SELECT t.*, s.score, s.usable FROM tasks t SEMI JOIN latest USING (run_id)
            LEFT JOIN scores s ON s.run_id = t.run_id AND s.task_id = t.task_id AND s.usable > 0),
        pairs AS (
            SELECT a.run_id AS run_a, b.run_id AS run_b FROM latest a JOIN latest b
            ON a.spec = b.spec AND a.arm = b.arm AND a.isolated = b.isolated AND a.engine <> b.engine),
        compared AS (
            SELECT p.run_a, p.run_b, count(*) AS tasks,
                avg(a.score) AS score_a, count(*) * count(*) / sum(1 / a.usable) AS size_a,
                avg(b.score) AS score_b, count(*) * count(*) / sum(1 / b.usable) AS size_b
            FROM pairs p JOIN asked a ON a.run_id = p.run_a AND a.usable > 0
            JOIN asked b ON b.run_id = p.run_b AND b.usable > 0 AND b.task_name = a.task_name AND {_SAME_TEXTS}
            GROUP BY ALL),
        ranged AS (
            SELECT *, wilson_low(score_a * size_a, size_a) AS a_low, wilson_high(score_a * size_a, size_a) AS a_high,
                wilson_low(score_b * size_b, size_b) AS b_low, wilson_high(score_b * size_b, size_b) AS b_high
            FROM compared),
        names AS (
            SELECT p.run_a, p.run_b, count(DISTINCT t.task_name) AS n
            FROM pairs p JOIN asked t ON t.run_id = p.run_a OR t.run_id = p.run_b GROUP BY ALL)
        SELECT a.spec, a.arm, a.isolated, a.engine AS engine_a, b.engine AS engine_b,
            a.run_id AS run_id_a, b.run_id AS run_id_b, a.run_utc AS run_utc_a, b.run_utc AS run_utc_b,
            g.tasks, n.n - g.tasks, g.score_a, g.a_low, g.a_high, g.score_b, g.b_low, g.b_high,
            g.score_b - g.score_a, difference_low(g.score_b, g.b_low, g.score_a, g.a_high),
            difference_high(g.score_b, g.b_high, g.score_a, g.a_low), sa.skills = sb.skills,
            (a.judge_backend, a.judge_model, a.judge_prompt_version)
                IS NOT DISTINCT FROM (b.judge_backend, b.judge_model, b.judge_prompt_version),
            a.simulated OR b.simulated
        FROM ranged g JOIN latest a ON a.run_id = g.run_a JOIN latest b ON b.run_id = g.run_b
        JOIN names n ON n.run_a = g.run_a AND n.run_b = g.run_b
        LEFT JOIN installed sa ON sa.run_id = g.run_a LEFT JOIN installed sb ON sb.run_id = g.run_b""",
        "SELECT engine_b, tasks, score_a, score_b, difference, difference_low, difference_high "
        "FROM engine_comparison WHERE spec = 'inbox-triage' AND engine_a = 'claude-code'",
    ),
    View(
        "cost_per_pass",
        "one row a run: tokens and time for each attempt and for each pass, and dollars where a price was stated",
        {
            **RUN_COLUMNS,
            "score": "mean of the tasks' success rates, 0 to 1",
            "score_low": "lower end of its 95 % interval (Wilson)",
            "score_high": "upper end of its 95 % interval (Wilson)",
            "successes": "attempts that passed",
            "graded": "attempts with a verdict, lost ones included: they were paid for as well",
            "total_tokens": "of all these attempts; NULL: none were reported",
            "tokens_per_pass": "total_tokens / successes; NULL without a pass",
            "agent_seconds": "time in agents, all attempts together",
            "seconds_per_pass": "agent_seconds / successes; NULL without a pass",
            "judge_seconds": "time in the judge; NULL: it was not called",
            "cost_usd": "agents' tokens at the prices stated when the run began; NULL: no price, no claim",
            "usd_per_pass": "cost_usd / successes; NULL without a pass",
            **SIMULATED,
        },
        f"""WITH used AS (
            SELECT a.run_id, a.model, sum(a.input_tokens) AS i, sum(a.output_tokens) AS o,
                sum(a.cache_read_tokens) AS c, sum(a.cache_creation_tokens) AS d
            FROM runs r JOIN attempts a USING (run_id) WHERE r.prices IS NOT NULL
            GROUP BY a.run_id, a.model HAVING coalesce(i, o, c, d) IS NOT NULL),
        named AS (
            SELECT u.run_id, u.model, unnest(json_keys(r.prices)) AS name, r.backend,
                coalesce(r.backend || ':' || u.model, r.backend) AS answered,
                coalesce(r.backend || ':' || r.model, r.backend) AS asked, r.model AS asked_model
            FROM used u JOIN runs r USING (run_id)),
        fitting AS (
            SELECT run_id, model, name, CASE
                WHEN name = answered THEN 1 WHEN name = model THEN 2
                WHEN answered GLOB name OR model GLOB name THEN 3
                WHEN name = asked THEN 4 WHEN name = asked_model THEN 5
                WHEN asked GLOB name OR asked_model GLOB name THEN 6 END AS place
            FROM named WHERE place IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY run_id, model ORDER BY place, length(name) DESC, name DESC) = 1),
        paid AS (
            SELECT u.run_id, CASE WHEN count(*) = count(f.name) THEN sum(
                token_usd(u.i, r.prices, f.name, 'input_usd') + token_usd(u.o, r.prices, f.name, 'output_usd')
                + token_usd(u.c, r.prices, f.name, 'cache_read_usd')
                + token_usd(u.d, r.prices, f.name, 'cache_creation_usd')) END AS usd
            FROM used u JOIN runs r USING (run_id)
            LEFT JOIN fitting f ON f.run_id = u.run_id AND f.model IS NOT DISTINCT FROM u.model
            GROUP BY u.run_id)
        SELECT r.series_key, r.spec, r.engine, r.arm, r.run_id, {RUN_UTC} AS run_utc, r.score, r.score_low,
            r.score_high, r.successes, r.graded, r.total_tokens, r.total_tokens / nullif(r.successes, 0),
            r.agent_seconds, r.agent_seconds / nullif(r.successes, 0), r.judge_seconds,
            p.usd, p.usd / nullif(r.successes, 0), r.simulated
        FROM runs r LEFT JOIN paid p USING (run_id)""",
        "SELECT run_utc::DATE AS night, engine, successes, tokens_per_pass, seconds_per_pass, usd_per_pass "
        "FROM cost_per_pass WHERE spec = 'inbox-triage' AND arm = 'full' ORDER BY run_utc, engine",
    ),
)
