"""Version 2 of the history's schema, as text: resumptions, labels and acknowledgements, who judged each verdict.

Long texts stay in the evidence from here on, and seconds are kept to the millisecond.
"""

COLUMNS = """
runs:
  dagster_run_ids VARCHAR[]: all Dagster runs that executed some of it, in their order; empty: none did
  prices JSON: prices by model, as stated when it began
verdicts:
  judge_backend VARCHAR: backend of the judge that was asked; NULL: none was, or the run's own where nothing is noted
  judge_prompt_version VARCHAR: version of the question it was asked; NULL: as judge_backend
  autorater_script VARCHAR: script that the judge wrote and that decided (files of the reference product)
"""
TABLES = """
resumes: one row each time a run was taken up again, by a person, a schedule or a piece of a backfill
  run_id VARCHAR NOT NULL: the run
  place BIGINT NOT NULL: its place among the run's resumptions, from 1
  resumed_utc TIMESTAMP NOT NULL: when
  k BIGINT NOT NULL: attempts a task from then on
  pid BIGINT: process that took it up; NULL: not recorded
  dagster_run_id VARCHAR: Dagster run that did; NULL: none, or not recorded
labels: one row a judgement by a person on one attempt, as given; the last one of a person counts
  run_id VARCHAR NOT NULL: the run
  task_id VARCHAR NOT NULL: the task in that run
  task_name VARCHAR NOT NULL: authored name of the task
  attempt BIGINT NOT NULL: number of the attempt
  passed BOOLEAN NOT NULL: the person's verdict
  labelled_by VARCHAR NOT NULL: who
  labelled_utc TIMESTAMP NOT NULL: when
  note VARCHAR: what they said about it
acknowledgements: one row each time somebody took note of an alert, or of a change that was meant
  alert_key VARCHAR: the alert; NULL: no alert, but a change of the series
  series_key VARCHAR: the series; NULL: as the alert has it
  task_name VARCHAR: the task; NULL: the series as a whole
  run_id VARCHAR: first run after the change; NULL: from acknowledged_utc on
  acknowledged_by VARCHAR NOT NULL: who
  acknowledged_utc TIMESTAMP NOT NULL: when
  reason VARCHAR: what they said
  new_baseline BOOLEAN NOT NULL: what was measured before it is no longer what later runs are held against
record_files: how much of each file in .caliper/records the tables hold
  kind VARCHAR NOT NULL: labels, acknowledgements or alerts
  bytes_read BIGINT NOT NULL: length of the file that has been read
about: facts about this database itself
  name VARCHAR NOT NULL: views: digest of the views' definitions; view_names: what they are called
  value VARCHAR NOT NULL: the fact
"""
CHANGES = (
    "UPDATE runs SET dagster_run_ids = CASE WHEN dagster_run_id IS NULL THEN [] ELSE [dagster_run_id] END",
    # All rows are made again when the history next catches up: from the run store and the imported files, which hold
    # what there was no column for, and in which long texts now stay. Rows whose source is gone remain as they are.
    "UPDATE runs SET source_bytes = 0",
    "ALTER TABLE attempts ALTER COLUMN output DROP NOT NULL",
    # Nothing ever wrote an acknowledgement here: they have a table of their own.
    "ALTER TABLE alerts DROP COLUMN acknowledged_utc",
    "ALTER TABLE alerts DROP COLUMN acknowledged_by",
    "ALTER TABLE alerts DROP COLUMN acknowledged_reason",
)
COMMENTS = """
runs:
  ended_utc: end; NULL: it was killed
  status: completed, interrupted, stopped; NULL: it was killed
  dagster_run_id: Dagster run that began it; NULL: none did
  source_digest: sha256 of the imported file; its bytes are in .caliper/records/imported under that name
attempts:
  agent_seconds: in the agent, without waits, hooks and judge; to the millisecond
  output: final answer if it is short, else its last 60 characters, or NULL if it passed. Of imported files all of it
  error: why there is nothing to grade, in the CLI's words; at most 120 characters
  evidence: folder with transcript, stream, workdir and judge, below .caliper/runs/<run_id>; holds all texts whole
verdicts:
  assert_evidence: end of a failed assert's output, or why the attempt is lost; at most 120 characters
  autorater_reasoning: its reasons, at most 120 characters; long ones only if they are why the attempt did not pass
alerts:
  kind: what sort: regression, watch or drift
"""
