"""Views of what changed and who was told: drift from run to run, and alerts. Text only."""

from collections.abc import Mapping

from caliper_pipeline.storage.history_view import (
    RUN_COLUMNS,
    RUN_UTC,
    SERIES_COLUMNS,
    SERIES_PARTITION,
    SIMULATED,
    View,
)

_JUDGE = "concat_ws(':', r.judge_backend, r.judge_model)"
_OF_THE_RUN: Mapping[str, str] = {
    "spec": "r.spec_digest",
    "model": "r.reported_model",
    "cli": "r.cli_version",
    "judge": f"nullif({_JUDGE}, '')",
    "judge prompt": "r.judge_prompt_version",
    "judge cli": "r.judge_cli_version",
    "servers": "array_to_string(list_sort(r.mcp_servers), ', ')",
    "customizations": "array_to_string(list_sort(r.loaded_user_customizations), ', ')",
    "boundary": "r.boundary",
    "host": "r.host",
    "timeout": "r.timeout_seconds::VARCHAR",
    "product": "r.product_version",
}
"""What of a run's row can drift → its value as text; NULL: not recorded, so nothing can be said."""
_TEXTS = ("prompt", "expect", "assert", "setup", "cleanup", "history", "activates")

_NOW = ", ".join(f"{value} AS v{n}" for n, value in enumerate(_OF_THE_RUN.values()))
_THEN = ", ".join(f"lag(v{n} IGNORE NULLS) OVER series AS w{n}" for n in range(len(_OF_THE_RUN)))
_PAIRS = ", ".join(
    f"CASE WHEN w{n} <> v{n} THEN {{'what': '{what}', 'name': NULL::VARCHAR, 'before': w{n}, 'after': v{n}}} END"
    for n, what in enumerate(_OF_THE_RUN)
)
_TEXT_PAIRS = ", ".join(
    f"CASE WHEN b.{text}_digest IS DISTINCT FROM a.{text}_digest THEN "
    f"{{'what': 'task {text}', 'name': a.task_name, 'before': b.{text}_digest, 'after': a.{text}_digest}} END"
    for text in _TEXTS
)
_ALL_TEXTS = ", ".join(f"{text}_digest" for text in _TEXTS)
"""All digests of a task. Runs are compared by one number first: few of them differ, and tasks are many."""


CHANGE_VIEWS = (
    View(
        "drift_log",
        "one row a thing that is not what it was in the run before of the same series, though its name is unchanged",
        {
            **RUN_COLUMNS,
            "previous_run_id": "the run before in the series",
            "what": f"{', '.join(_OF_THE_RUN)}; skill, skill added, skill removed; "
            f"{', '.join('task ' + text for text in _TEXTS)}",
            "name": "the skill or task that changed; NULL: the run as a whole",
            "before": "last recorded value: a version, a name, or a sha256 (texts are in the table texts)",
            "after": "value in this run",
            **SIMULATED,
        },
        f"""WITH runs_now AS (
            SELECT r.spec, r.engine, r.arm, r.series_key, r.run_id, {RUN_UTC} AS run_utc, r.simulated, {_NOW}
            FROM runs r),
        followed AS (
            SELECT *, lag(run_id) OVER series AS previous_run_id, {_THEN} FROM runs_now
            WINDOW series AS (PARTITION BY {SERIES_PARTITION.replace("r.", "")} ORDER BY run_utc, run_id)),
        of_runs AS (
            SELECT * EXCLUDE change, unnest(change) FROM (
                SELECT series_key, spec, engine, arm, run_id, run_utc, previous_run_id, simulated,
                    unnest([{_PAIRS}]) AS change
                FROM followed WHERE previous_run_id IS NOT NULL)
            WHERE change IS NOT NULL),
        texts_of AS (SELECT run_id, bit_xor(hash(task_name, {_ALL_TEXTS})) AS mark FROM tasks GROUP BY run_id),
        edited AS (
            SELECT f.* FROM followed f JOIN texts_of a ON a.run_id = f.run_id
            JOIN texts_of b ON b.run_id = f.previous_run_id WHERE a.mark <> b.mark),
        of_tasks AS (
            SELECT * EXCLUDE change, unnest(change) FROM (
                SELECT f.series_key, f.spec, f.engine, f.arm, f.run_id, f.run_utc, f.previous_run_id, f.simulated,
                    unnest([{_TEXT_PAIRS}]) AS change
                FROM edited f JOIN tasks a ON a.run_id = f.run_id
                JOIN tasks b ON b.run_id = f.previous_run_id AND b.task_name = a.task_name)
            WHERE change IS NOT NULL),
        of_skills AS (
            SELECT f.series_key, f.spec, f.engine, f.arm, f.run_id, f.run_utc, f.previous_run_id, f.simulated,
                CASE WHEN b.run_id IS NULL THEN 'skill added' ELSE 'skill' END AS what, k.skill AS name,
                b.digest AS before, k.digest AS after
            FROM followed f JOIN skills k ON k.run_id = f.run_id AND k.installed
            LEFT JOIN skills b ON b.run_id = f.previous_run_id AND b.skill = k.skill AND b.installed
            WHERE f.previous_run_id IS NOT NULL AND (b.run_id IS NULL OR b.digest <> k.digest)
            UNION ALL
            SELECT f.series_key, f.spec, f.engine, f.arm, f.run_id, f.run_utc, f.previous_run_id, f.simulated,
                'skill removed', b.skill, b.digest, NULL
            FROM followed f JOIN skills b ON b.run_id = f.previous_run_id AND b.installed
            ANTI JOIN skills k ON k.run_id = f.run_id AND k.skill = b.skill AND k.installed),
        changes AS (
            FROM of_runs UNION ALL BY NAME FROM of_tasks UNION ALL BY NAME FROM of_skills)
        SELECT series_key, spec, engine, arm, run_id, run_utc, previous_run_id, what, name, before, after, simulated
        FROM changes""",
        "SELECT run_utc::DATE AS night, what, name, before[:12] AS before, after[:12] AS after FROM drift_log "
        "WHERE spec = 'inbox-triage' AND engine = 'claude-code' AND arm = 'full' ORDER BY run_utc, what, name",
    ),
    View(
        "alert_log",
        "one row an alert, with the last word of whoever took note of it",
        {
            "alert_key": "what it is about; one alert a key",
            "raised_utc": "when",
            "kind": "what sort: regression, watch, drift",
            **SERIES_COLUMNS,
            "task_name": "the task it is about; NULL: the series as a whole",
            "run_id": "the run that raised it",
            "message": "what happened, for a person",
            "state": "open, or acknowledged",
            "acknowledged_utc": "when somebody last took note; NULL: nobody did",
            "acknowledged_by": "who",
            "reason": "what they said",
            "new_baseline": "the change was meant: later runs are held against what came after it",
            **SIMULATED,
        },
        """WITH noted AS (
            SELECT * FROM acknowledgements WHERE alert_key IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY alert_key ORDER BY acknowledged_utc DESC, rowid DESC) = 1)
        SELECT a.alert_key, a.raised_utc, a.kind, coalesce(a.series_key, r.series_key), coalesce(a.spec, r.spec),
            r.engine, r.arm, a.task_name, a.run_id, a.message,
            CASE WHEN n.alert_key IS NULL THEN 'open' ELSE 'acknowledged' END,
            n.acknowledged_utc, n.acknowledged_by, n.reason, n.new_baseline, coalesce(r.simulated, FALSE)
        FROM alerts a LEFT JOIN runs r USING (run_id) LEFT JOIN noted n ON n.alert_key = a.alert_key""",
        "SELECT raised_utc::DATE AS raised, kind, message, state, acknowledged_by, reason FROM alert_log "
        "ORDER BY raised_utc, kind",
    ),
)
