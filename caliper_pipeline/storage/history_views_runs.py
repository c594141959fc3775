"""Views with a row an attempt, a run, or a task or skill of a run. Text only."""

from caliper_pipeline.storage.history_view import RUN_COLUMNS, RUN_UTC, SERIES_PARTITION, SIMULATED, View

_TOKENS = """CASE
                WHEN coalesce(a.input_tokens, a.output_tokens, a.cache_read_tokens, a.cache_creation_tokens) IS NOT NULL
                THEN coalesce(a.input_tokens, 0) + coalesce(a.output_tokens, 0)
                    + coalesce(a.cache_read_tokens, 0) + coalesce(a.cache_creation_tokens, 0) END"""

RUN_VIEWS = (
    View(
        "latest_runs",
        "one row a series: its run that started last",
        {
            **RUN_COLUMNS,
            "status": "completed, interrupted, stopped; NULL: killed, or still at work",
            "score": "mean of the tasks' success rates, 0 to 1; NULL: nothing was measured",
            "score_low": "lower end of its 95 % interval (Wilson)",
            "score_high": "upper end of its 95 % interval (Wilson)",
            "successes": "attempts that passed",
            "usable": "attempts in the denominator",
            "unusable": "attempts that were lost",
            "activation_score": "mean of the tasks' activation scores, 0 to 1",
            "activation_low": "lower end of its 95 % interval (Wilson)",
            "activation_high": "upper end of its 95 % interval (Wilson)",
            "total_tokens": "of all attempts",
            "agent_seconds": "of all attempts",
            **SIMULATED,
        },
        f"""SELECT r.series_key, r.spec, r.engine, r.arm, r.run_id, {RUN_UTC} AS run_utc, r.status,
            r.score, r.score_low, r.score_high, r.successes, r.usable, r.unusable,
            r.activation_score, r.activation_low, r.activation_high, r.total_tokens, r.agent_seconds, r.simulated
        FROM runs r
        SEMI JOIN (SELECT max_by(r.run_id, ({RUN_UTC}, r.run_id)) AS run_id FROM runs r GROUP BY r.series_key)
            USING (run_id)""",
        "SELECT spec, engine, arm, score, score_low, score_high, usable FROM latest_runs ORDER BY spec, engine, arm",
    ),
    View(
        "score_trend",
        "one row a run: its score with interval, beside that of the run before in its series",
        {
            **RUN_COLUMNS,
            "score": "mean of the tasks' success rates, 0 to 1; NULL: nothing was measured",
            "score_low": "lower end of its 95 % interval (Wilson)",
            "score_high": "upper end of its 95 % interval (Wilson)",
            "successes": "attempts that passed",
            "usable": "attempts in the denominator",
            "unusable": "attempts that were lost",
            "previous_score": "score of the last run before it that measured something",
            "change": "score - previous_score; whether it is more than chance, the intervals tell",
            "spec_changed": "the spec file is not the one of the run before",
            **SIMULATED,
        },
        f"""SELECT r.series_key, r.spec, r.engine, r.arm, r.run_id, {RUN_UTC} AS run_utc,
            r.score, r.score_low, r.score_high, r.successes, r.usable, r.unusable,
            lag(r.score IGNORE NULLS) OVER series AS previous_score,
            r.score - lag(r.score IGNORE NULLS) OVER series,
            r.spec_digest <> lag(r.spec_digest) OVER series, r.simulated
        FROM runs r
        WINDOW series AS (PARTITION BY {SERIES_PARTITION} ORDER BY {RUN_UTC}, r.run_id)""",
        "SELECT run_utc::DATE AS night, score, score_low, score_high, usable, change, spec_changed FROM score_trend "
        "WHERE spec = 'inbox-triage' AND engine = 'claude-code' AND arm = 'full' ORDER BY run_utc",
    ),
    View(
        "task_trend",
        "one row a task of a run: its success rate and activation with intervals, and the text it had then",
        {
            **RUN_COLUMNS,
            "task_id": "the task in that run",
            "task_name": "authored name of the task",
            "score": "successes / usable, 0 to 1; NULL: not measured",
            "score_low": "lower end of its 95 % interval (Wilson)",
            "score_high": "upper end of its 95 % interval (Wilson)",
            "successes": "attempts that passed",
            "usable": "attempts in the denominator",
            "unusable": "attempts that were lost",
            "activation_score": "share of attempts that fired exactly the skills asked for; NULL: not asserted",
            "activation_low": "lower end of its 95 % interval (Wilson)",
            "activation_high": "upper end of its 95 % interval (Wilson)",
            **SIMULATED,
        },
        f"""SELECT r.series_key, r.spec, r.engine, r.arm, r.run_id, {RUN_UTC} AS run_utc, s.task_id, s.task_name,
            s.score, s.score_low, s.score_high, s.successes, s.usable, s.unusable,
            s.activation_score, s.activation_low, s.activation_high, r.simulated
        FROM runs r JOIN scores s USING (run_id)""",
        "SELECT run_utc::DATE AS night, score, score_low, score_high, successes, usable FROM task_trend "
        "WHERE spec = 'inbox-triage' AND task_name = 'Drafts a reply' AND engine = 'claude-code' AND arm = 'full' "
        "ORDER BY run_utc",
    ),
    View(
        "skill_trend",
        "one row a skill of a run: how often it fired when a task wanted it, and when none did",
        {
            **RUN_COLUMNS,
            "skill": "the skill's name",
            "fired_when_wanted": "attempts in which it fired and was wanted",
            "wanted": "attempts whose task wanted it",
            "wanted_rate": "fired_when_wanted / wanted; NULL: no task wanted it",
            "wanted_low": "lower end of its 95 % interval (Wilson)",
            "wanted_high": "upper end of its 95 % interval (Wilson)",
            "fired_when_unwanted": "attempts in which it fired and was not wanted",
            "unwanted": "attempts whose task asked for other skills, or for none",
            "unwanted_rate": "fired_when_unwanted / unwanted",
            "unwanted_low": "lower end of its 95 % interval (Wilson)",
            "unwanted_high": "upper end of its 95 % interval (Wilson)",
            "digest": "sha256 over the skill's files in that run",
            **SIMULATED,
        },
        f"""SELECT r.series_key, r.spec, r.engine, r.arm, r.run_id, {RUN_UTC} AS run_utc, s.skill,
            s.hits, s.expected, s.hits / nullif(s.expected, 0),
            wilson_low(s.hits, s.expected), wilson_high(s.hits, s.expected),
            s.fired - s.hits, s.total - s.expected, (s.fired - s.hits) / nullif(s.total - s.expected, 0),
            wilson_low(s.fired - s.hits, s.total - s.expected), wilson_high(s.fired - s.hits, s.total - s.expected),
            k.digest, r.simulated
        FROM runs r JOIN skill_scores s USING (run_id)
        LEFT JOIN skills k ON k.run_id = s.run_id AND k.skill = s.skill""",
        "SELECT run_utc::DATE AS night, wanted_rate, wanted_low, wanted_high, unwanted_rate, unwanted_low, "
        "unwanted_high "
        "FROM skill_trend WHERE spec = 'inbox-triage' AND skill = 'inbox-triage' AND engine = 'claude-code' "
        "ORDER BY run_utc",
    ),
    View(
        "graded_attempts",
        "one row an attempt with its latest verdict and the run it belongs to",
        {
            **RUN_COLUMNS,
            "task_id": "the task in that run",
            "task_name": "authored name of the task",
            "attempt": "number, from 1",
            "outcome": "what it came to; NULL: not graded yet",
            "usable": "counts in the denominator",
            "agent_seconds": "in the agent",
            "total_tokens": "all tokens; NULL: not reported",
            "activated": "skills that fired; NULL: could not be seen",
            "activation_passed": "exactly the skills asked for; NULL: not asserted",
            "reason": "what the assert, the judge or the failure had to say",
            "output": "end of the final answer",
            "evidence": "folder of the evidence, below .caliper/runs/<run_id>",
            **SIMULATED,
        },
        f"""SELECT r.series_key, r.spec, r.engine, r.arm, r.run_id, {RUN_UTC} AS run_utc,
            a.task_id, a.task_name, a.attempt, v.outcome, v.usable, a.agent_seconds, {_TOKENS},
            v.activated, v.activation_passed,
            coalesce(a.error, nullif(v.assert_evidence, ''), v.autorater_reasoning), a.output, a.evidence, r.simulated
        FROM runs r JOIN attempts a USING (run_id)
        JOIN verdicts v ON v.run_id = r.run_id AND v.task_id = a.task_id AND v.attempt = a.attempt AND v.is_latest
        UNION ALL
        SELECT r.series_key, r.spec, r.engine, r.arm, r.run_id, {RUN_UTC}, a.task_id, a.task_name, a.attempt,
            NULL, NULL, a.agent_seconds, {_TOKENS}, NULL, NULL, a.error, a.output, a.evidence, r.simulated
        FROM runs r JOIN attempts a USING (run_id)
        ANTI JOIN (SELECT v.run_id, v.task_id, v.attempt FROM runs g JOIN verdicts v USING (run_id)
                   WHERE g.graded < g.attempt_count) v
            ON v.run_id = r.run_id AND v.task_id = a.task_id AND v.attempt = a.attempt
        WHERE r.graded < r.attempt_count""",
        "SELECT task_name, attempt, outcome, reason FROM graded_attempts SEMI JOIN latest_runs USING (run_id) "
        "WHERE spec = 'inbox-triage' AND outcome <> 'pass' ORDER BY engine, arm, task_id, attempt LIMIT 6",
    ),
    View(
        "unusable_breakdown",
        "one row a run and kind of loss: attempts that tell nothing about the agent, and what they cost",
        {
            **RUN_COLUMNS,
            "outcome": "infra_error, timeout or judge_error",
            "attempts": "attempts lost this way",
            "graded": "all graded attempts of the run",
            "share": "attempts / graded",
            "share_low": "lower end of its 95 % interval (Wilson)",
            "share_high": "upper end of its 95 % interval (Wilson)",
            "agent_seconds": "time in their agents",
            "total_tokens": "their tokens; NULL: not reported",
            "example": "what one of them had to say",
            **SIMULATED,
        },
        f"""SELECT r.series_key, r.spec, r.engine, r.arm, r.run_id, {RUN_UTC}, v.outcome, count(*) AS lost, r.graded,
            lost / r.graded, wilson_low(lost, r.graded), wilson_high(lost, r.graded),
            sum(a.agent_seconds), sum({_TOKENS})::BIGINT,
            any_value(coalesce(a.error, nullif(v.assert_evidence, ''), v.autorater_reasoning)), r.simulated
        FROM runs r JOIN verdicts v USING (run_id)
        JOIN attempts a ON a.run_id = r.run_id AND a.task_id = v.task_id AND a.attempt = v.attempt
        WHERE r.unusable > 0 AND v.is_latest AND v.outcome IN ('infra_error', 'timeout', 'judge_error')
        GROUP BY r.series_key, r.spec, r.engine, r.arm, r.run_id, {RUN_UTC}, v.outcome, r.graded, r.simulated""",
        "SELECT run_utc::DATE AS night, engine, outcome, attempts, share, share_low, share_high "
        "FROM unusable_breakdown WHERE spec = 'inbox-triage' ORDER BY run_utc, engine, outcome",
    ),
)
