"""Views with a row a task: what wavers, what stopped working, what fires where. Text only."""

from caliper_pipeline.storage.history_view import (
    RUN_COLUMNS,
    RUN_UTC,
    SERIES_COLUMNS,
    SERIES_PARTITION,
    SIMULATED,
    View,
)

TASK_VIEWS = (
    View(
        "flaky_tasks",
        "one row a task of a series that neither always passed nor always failed over its last ten measured runs",
        {
            **SERIES_COLUMNS,
            "task_name": "authored name of the task",
            "runs": "runs looked at, at most ten",
            "mixed_runs": "runs in which some attempts passed and some did not",
            "successes": "attempts that passed",
            "usable": "attempts in the denominator",
            "rate": "successes / usable, 0 to 1",
            "rate_low": "lower end of its 95 % interval (Wilson)",
            "rate_high": "upper end of its 95 % interval (Wilson)",
            "last_run_utc": "start of the last of these runs",
            **SIMULATED,
        },
        f"""WITH recent AS (
            SELECT r.spec, r.engine, r.arm, r.series_key, r.run_id, r.simulated, {RUN_UTC} AS run_utc
            FROM runs r WHERE r.scored_tasks > 0
            QUALIFY row_number() OVER (PARTITION BY {SERIES_PARTITION} ORDER BY {RUN_UTC} DESC, r.run_id DESC) <= 10)
        SELECT r.series_key, r.spec, r.engine, r.arm, s.task_name, count(*),
            count(*) FILTER (s.successes > 0 AND s.successes < s.usable),
            sum(s.successes)::BIGINT AS passed, sum(s.usable)::BIGINT AS tried,
            passed / tried, wilson_low(passed, tried), wilson_high(passed, tried), max(r.run_utc), bool_or(r.simulated)
        FROM recent r JOIN scores s USING (run_id) WHERE s.usable > 0
        GROUP BY r.series_key, r.spec, r.engine, r.arm, s.task_name
        HAVING passed > 0 AND passed < tried""",
        "SELECT engine, task_name, runs, mixed_runs, rate, rate_low, rate_high FROM flaky_tasks "
        "WHERE spec = 'inbox-triage' AND arm = 'full' ORDER BY abs(rate - 0.5), engine, task_name",
    ),
    View(
        "stopped_working",
        "one row a task of a series that used to pass reliably (0.8 of the usable attempts in the ten scored runs "
        "up to its last pass) and has not passed once since",
        {
            **SERIES_COLUMNS,
            "task_name": "authored name of the task",
            "since_utc": "start of the first run without a pass",
            "since_run_id": "the first run without a pass",
            "last_pass_utc": "start of the last run with a pass",
            "failing_runs": "scored runs since then",
            "failing_attempts": "usable attempts since then, of which none passed",
            "now_high": "upper end of the 95 % interval (Wilson) of the rate since then, which is 0",
            "before_successes": "passes in the ten scored runs up to the last pass",
            "before_usable": "usable attempts in them",
            "before_rate": "before_successes / before_usable, at least 0.8",
            "before_low": "lower end of its 95 % interval (Wilson)",
            "before_high": "upper end of its 95 % interval (Wilson)",
            "clear": "now_high < before_low: the two intervals do not meet",
            **SIMULATED,
        },
        f"""WITH scored AS (
            SELECT r.spec, r.engine, r.arm, r.series_key, s.task_name, s.run_id, s.successes, s.usable, r.simulated,
                {RUN_UTC} AS run_utc
            FROM runs r JOIN scores s USING (run_id) WHERE s.usable > 0),
        failing AS (
            SELECT spec, engine, arm, series_key, task_name, max(run_utc) FILTER (successes > 0) AS last_pass_utc
            FROM scored GROUP BY ALL HAVING max(run_utc) FILTER (successes > 0) < max(run_utc)),
        asked AS (SELECT l.series_key, t.task_name FROM latest_runs l JOIN tasks t USING (run_id)),
        followed AS (
            SELECT s.*, f.last_pass_utc, s.run_utc > f.last_pass_utc AS since,
                row_number() OVER (PARTITION BY s.series_key, s.task_name, since
                                   ORDER BY s.run_utc DESC, s.run_id DESC) AS place
            FROM scored s JOIN failing f USING (spec, engine, arm, series_key, task_name))
        SELECT series_key, spec, engine, arm, task_name, min(run_utc) FILTER (since),
            min_by(run_id, run_utc) FILTER (since), any_value(last_pass_utc), count(*) FILTER (since),
            sum(usable) FILTER (since)::BIGINT AS failed, wilson_high(0, failed) AS now_high,
            sum(successes) FILTER (NOT since)::BIGINT AS passed, sum(usable) FILTER (NOT since)::BIGINT AS tried,
            passed / tried, wilson_low(passed, tried) AS before_low, wilson_high(passed, tried),
            now_high < before_low, bool_or(simulated)
        FROM followed SEMI JOIN asked USING (series_key, task_name)
        WHERE since OR place <= 10
        GROUP BY series_key, spec, engine, arm, task_name HAVING passed >= 0.8 * tried""",
        "SELECT task_name, since_utc::DATE AS since, failing_attempts, now_high, before_rate, before_low, clear "
        "FROM stopped_working WHERE spec = 'inbox-triage' ORDER BY clear DESC, since_utc",
    ),
    View(
        "activation_matrix",
        "one row a task and skill of each series' latest run: how often the skill fired there",
        {
            **RUN_COLUMNS,
            "task_name": "authored name of the task",
            "skill": "the skill's name",
            "expected": "the task wants it; NULL: the task does not say",
            "fired": "attempts in which it fired",
            "observed": "attempts in which one could have seen it",
            "rate": "fired / observed; NULL: none could be seen",
            "rate_low": "lower end of its 95 % interval (Wilson)",
            "rate_high": "upper end of its 95 % interval (Wilson)",
            **SIMULATED,
        },
        """WITH seen AS (
            SELECT v.run_id, v.task_id, v.activated FROM verdicts v
            SEMI JOIN latest_runs USING (run_id)
            WHERE v.is_latest AND v.activated IS NOT NULL AND v.outcome NOT IN ('infra_error', 'timeout')),
        observed AS (SELECT run_id, task_id, count(*) AS n FROM seen GROUP BY ALL),
        fired AS (
            SELECT run_id, task_id, skill, count(*) AS n
            FROM (SELECT run_id, task_id, unnest(activated) AS skill FROM seen) GROUP BY ALL)
        SELECT l.series_key, l.spec, l.engine, l.arm, l.run_id, l.run_utc, s.task_name, k.skill,
            list_contains(s.activation_expected, k.skill), coalesce(f.n, 0), coalesce(o.n, 0),
            coalesce(f.n, 0) / nullif(o.n, 0), wilson_low(coalesce(f.n, 0), o.n),
            wilson_high(coalesce(f.n, 0), o.n), l.simulated
        FROM latest_runs l JOIN scores s USING (run_id) JOIN skills k ON k.run_id = l.run_id AND k.installed
        LEFT JOIN observed o ON o.run_id = l.run_id AND o.task_id = s.task_id
        LEFT JOIN fired f ON f.run_id = l.run_id AND f.task_id = s.task_id AND f.skill = k.skill""",
        "SELECT task_name, skill, expected, fired, observed, rate_low, rate_high FROM activation_matrix "
        "WHERE spec = 'inbox-triage' AND engine = 'claude-code' ORDER BY task_name, skill",
    ),
)
