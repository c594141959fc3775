"""Version 1 of the history's schema, as text. Published, so never edited; `migrations` says how it is read."""

TABLES = """
runs: one row a run, with everything that went into it and what it came to
  run_id VARCHAR NOT NULL: id of the run; sorts by time. Imported files have one made from their content
  series_key VARCHAR NOT NULL: what is followed over time: spec, engine, arm and setup in one key
  spec VARCHAR NOT NULL: name of the spec: its file's name without .eval.yaml
  spec_path VARCHAR: where the spec was, absolute
  spec_digest VARCHAR: sha256 of the spec file; its text is in texts
  backend VARCHAR NOT NULL: agent CLI that ran
  model VARCHAR: model asked for; NULL: what the backend uses by itself
  reported_model VARCHAR: model that most attempts name in their streams
  engine VARCHAR NOT NULL: backend and model as --model has them
  arm VARCHAR NOT NULL: 'full', or the names taken away, joined by +
  ablated VARCHAR[] NOT NULL: names taken away; servers as mcp:name
  isolated BOOLEAN NOT NULL: attempts ran without the operator's own customizations
  loaded_user_customizations VARCHAR[]: what of the operator's own was loaded; NULL: isolated, or not known
  mcp_servers VARCHAR[]: declared servers left after ablation; NULL: not recorded
  forbidden_files VARCHAR[]: patterns an attempt may not read
  k BIGINT NOT NULL: attempts asked for per task
  workers BIGINT: attempts at once
  timeout_seconds DOUBLE: limit of one agent call
  fail_fast BIGINT: lost attempts in a row after which a task is given up; NULL: never
  limits JSON: other limits, by name
  started_utc TIMESTAMP: start; NULL: not recorded (files of other products)
  ended_utc TIMESTAMP: end, or the last sign of life of a run that was killed
  status VARCHAR: completed, interrupted, stopped; NULL: it was killed or still runs
  stop_reason VARCHAR: why it ended early
  resumes BIGINT NOT NULL: times it was taken up again
  era VARCHAR: way of loading skills; runs of different eras do not measure the same thing
  simulated BOOLEAN NOT NULL: a script played the agent
  boundary VARCHAR: what kept the agents apart from the machine
  judge_backend VARCHAR: backend of the judge; NULL: no task is judged by a model
  judge_model VARCHAR: model asked of the judge
  judge_prompt_version VARCHAR: version of the judge's question
  cli_version VARCHAR: version of the agent CLI
  judge_cli_version VARCHAR: version of the judge's CLI
  product_version VARCHAR: version of this product
  python_version VARCHAR: version of the interpreter
  host VARCHAR: machine
  platform VARCHAR: operating system
  cpu_count BIGINT: processors of the machine
  git_commit VARCHAR: commit of the repository the spec is in
  git_dirty BOOLEAN: it held uncommitted changes
  origin VARCHAR NOT NULL: who started it: cli, dagster, or import for a results file
  dagster_run_id VARCHAR: Dagster run it belongs to
  pid BIGINT: process that started it
  task_count BIGINT NOT NULL: tasks of the spec
  attempt_count BIGINT NOT NULL: attempts that ran
  graded BIGINT NOT NULL: attempts with a verdict
  successes BIGINT NOT NULL: attempts that passed
  usable BIGINT NOT NULL: attempts in the denominator: pass, task_fail, cheat
  unusable BIGINT NOT NULL: attempts lost to the execution or the judge
  scored_tasks BIGINT NOT NULL: tasks with a success rate
  score DOUBLE: mean of the tasks' success rates, 0 to 1; NULL: nothing was measured
  score_low DOUBLE: lower end of its 95 % interval
  score_high DOUBLE: upper end of its 95 % interval
  activation_score DOUBLE: mean of the tasks' activation scores, 0 to 1; NULL: not asserted or not measured
  activation_low DOUBLE: lower end of its 95 % interval
  activation_high DOUBLE: upper end of its 95 % interval
  activation_tasks BIGINT NOT NULL: tasks with an activation score
  activation_asserted BIGINT NOT NULL: tasks that assert activation
  total_tokens BIGINT: tokens of all attempts; NULL: none were reported
  agent_seconds DOUBLE NOT NULL: time in agents, all attempts together
  judge_seconds DOUBLE: time in the judge; NULL: it was not called
  results_file VARCHAR: its results file, relative to the project's root
  header_schema BIGINT: version of run.json
  source VARCHAR NOT NULL: run_store, or file for an imported one
  source_digest VARCHAR: sha256 of the imported file
  source_bytes BIGINT NOT NULL: length of what the rows were made from; a longer log or file is newer
  published_utc TIMESTAMP NOT NULL: when these rows were written
tasks: one row a task of a run, as it was written then
  run_id VARCHAR NOT NULL: the run
  task_id VARCHAR NOT NULL: position in the spec: task-001, task-002
  task_name VARCHAR NOT NULL: authored name, the task's identity over runs
  task_key VARCHAR: its partition key in Dagster
  prompt_digest VARCHAR: sha256 of the prompt; text in texts
  expect_digest VARCHAR: sha256 of what the judge is asked to look for; text in texts
  assert_digest VARCHAR: sha256 of the assert; text in texts
  setup_digest VARCHAR: sha256 of the setup; text in texts
  cleanup_digest VARCHAR: sha256 of the cleanup; text in texts
  history_digest VARCHAR: sha256 of the planted history; text in texts
  activates_digest VARCHAR: sha256 of what is to fire
  assert_path VARCHAR: file the assert came from
  activates VARCHAR[]: skills that are to fire, exactly; NULL: not asserted
  aborted_after BIGINT: attempt after which --fail-fast gave it up
texts: each text of a spec or task once, under its sha256
  digest VARCHAR NOT NULL: sha256
  text VARCHAR NOT NULL: the text
attempts: one row an attempt whose evidence is kept, graded or not
  run_id VARCHAR NOT NULL: the run
  task_id VARCHAR NOT NULL: the task in that run
  task_name VARCHAR NOT NULL: authored name of the task
  attempt BIGINT NOT NULL: number, from 1
  started_utc TIMESTAMP: start of the attempt; NULL: not recorded
  ended_utc TIMESTAMP: end of its agent
  agent_seconds DOUBLE NOT NULL: in the agent, without waits, hooks and judge
  setup_seconds DOUBLE: in the setup hook; NULL: there is none
  exit_code BIGINT: of the agent; NULL: it did not start, or not recorded
  timed_out BOOLEAN: the agent passed its limit; NULL: not recorded
  setup_error VARCHAR: the setup failed, and no agent ran
  error VARCHAR: why there is nothing to grade, in the CLI's words
  spoke BOOLEAN: a model was really called; NULL: not recorded
  output VARCHAR NOT NULL: final answer; where there is evidence, which holds all of it, the last 500 characters
  has_usage BOOLEAN NOT NULL: the backend told token counts
  input_tokens BIGINT: read anew
  output_tokens BIGINT: written
  cache_read_tokens BIGINT: read from the cache
  cache_creation_tokens BIGINT: read into the cache
  model VARCHAR: model that answered, as the stream tells
  retries BIGINT NOT NULL: calls beyond the first
  turns BIGINT: length of the transcript; NULL: none was kept
  boundary VARCHAR: what kept the agent apart from the machine
  evidence VARCHAR: folder of the evidence, relative to the run's folder in .caliper/runs
  snapshot_files BIGINT: files kept of the workdir; NULL: no snapshot
  snapshot_left_out BIGINT: files the limits kept out of it
  warnings VARCHAR[] NOT NULL: what was odd about it
verdicts: one row a judgement on an attempt; regrading adds generations
  run_id VARCHAR NOT NULL: the run
  task_id VARCHAR NOT NULL: the task in that run
  task_name VARCHAR NOT NULL: authored name of the task
  attempt BIGINT NOT NULL: number of the attempt
  generation BIGINT NOT NULL: from 1; regrading makes higher ones
  is_latest BOOLEAN NOT NULL: the generation that counts
  outcome VARCHAR NOT NULL: pass, task_fail, cheat (usable); infra_error, timeout, judge_error (lost); not_checked
  usable BOOLEAN NOT NULL: counts in the denominator
  graded_utc TIMESTAMP: when it was judged
  activated VARCHAR[]: installed skills that came into the context; NULL: could not be seen
  activation_passed BOOLEAN: exactly the skills asked for; NULL: not asserted, or nothing to judge it on
  builtin_activated VARCHAR[]: the CLI's own skills that came into the context
  cheat_evidence VARCHAR[] NOT NULL: reads of forbidden files
  assert_passed BOOLEAN: the assert's word; NULL: none ran
  assert_evidence VARCHAR: end of a failed assert's output, or why the attempt is lost
  autorater_passed BOOLEAN: the model's word; NULL: it was not asked
  autorater_reasoning VARCHAR: its reasons
  judge_seconds DOUBLE: in the judge; NULL: it was not called
  judge_model VARCHAR: model that judged
  judge_has_usage BOOLEAN NOT NULL: the judge told token counts
  judge_input_tokens BIGINT: read anew by the judge
  judge_output_tokens BIGINT: written by the judge
  judge_cache_read_tokens BIGINT: read from the cache by the judge
  judge_cache_creation_tokens BIGINT: read into the cache by the judge
  judge_retries BIGINT NOT NULL: calls of the judge beyond the first
scores: one row a task of a run: what its attempts come to, by their latest verdicts
  run_id VARCHAR NOT NULL: the run
  task_id VARCHAR NOT NULL: the task in that run
  task_name VARCHAR NOT NULL: authored name of the task
  graded BIGINT NOT NULL: attempts with a verdict
  successes BIGINT NOT NULL: passes
  usable BIGINT NOT NULL: passes, fails and cheats
  unusable BIGINT NOT NULL: lost to the execution or the judge
  score DOUBLE: successes / usable, 0 to 1; NULL: not measured
  score_low DOUBLE: lower end of its 95 % interval (Wilson)
  score_high DOUBLE: upper end of its 95 % interval (Wilson)
  pass_at_k DOUBLE: 1 - (1 - score)^usable, as the reference product has it
  pass_hat_k DOUBLE: score^usable, as the reference product has it
  trigger_only BOOLEAN NOT NULL: a probe: activation is all it asks for
  activation_expected VARCHAR[]: skills that were to fire; NULL: not asserted, or a skill was taken away
  activation_usable BIGINT NOT NULL: attempts with a verdict on activation
  activation_successes BIGINT NOT NULL: attempts that fired exactly the skills asked for
  activation_score DOUBLE: activation_successes / activation_usable; NULL: not measured
  activation_low DOUBLE: lower end of its 95 % interval (Wilson)
  activation_high DOUBLE: upper end of its 95 % interval (Wilson)
  task_fails BIGINT NOT NULL: attempts that failed the task
  cheats BIGINT NOT NULL: attempts that read a forbidden file
  infra_errors BIGINT NOT NULL: attempts lost to the machine, the CLI or the service
  timeouts BIGINT NOT NULL: attempts that passed the limit
  judge_errors BIGINT NOT NULL: attempts the judge could not judge
  not_checked BIGINT NOT NULL: attempts without a check
  input_tokens BIGINT: of all graded attempts; NULL: none were reported
  output_tokens BIGINT: of all graded attempts
  cache_read_tokens BIGINT: of all graded attempts
  cache_creation_tokens BIGINT: of all graded attempts
  unusable_tokens BIGINT: tokens of lost attempts, all kinds together
  agent_seconds DOUBLE NOT NULL: of all graded attempts
  unusable_seconds DOUBLE NOT NULL: agent_seconds of lost attempts
  judge_seconds DOUBLE: in the judge; NULL: it was not called
  retries BIGINT NOT NULL: agent calls beyond the first
skills: one row a skill that a run's spec declared
  run_id VARCHAR NOT NULL: the run
  skill VARCHAR NOT NULL: the skill's name
  place BIGINT NOT NULL: place in the spec, from 0
  installed BOOLEAN NOT NULL: FALSE: taken away by --ablate
  path VARCHAR: its SKILL.md
  description VARCHAR: what its frontmatter says
  source_kind VARCHAR NOT NULL: path or git
  digest VARCHAR: sha256 over path:hash of all files; files in skill_files
  git_repo VARCHAR: repository it came from
  git_sha VARCHAR: commit it came from
  git_dirty BOOLEAN: its folder held uncommitted changes
skill_scores: one row a skill of a run: how it fired where activation was asserted
  run_id VARCHAR NOT NULL: the run
  skill VARCHAR NOT NULL: the skill's name
  total BIGINT NOT NULL: attempts with a verdict on activation
  expected BIGINT NOT NULL: attempts whose task wanted it
  fired BIGINT NOT NULL: attempts in which it fired
  hits BIGINT NOT NULL: attempts in which it fired and was wanted
skill_files: the files of each version of a skill, each version once
  digest VARCHAR NOT NULL: the skill's digest
  path VARCHAR NOT NULL: file, relative to the skill's folder
  hash VARCHAR NOT NULL: sha256 of its bytes
hook_failures: one row a setup or cleanup that failed
  run_id VARCHAR NOT NULL: the run
  task_id VARCHAR NOT NULL: the task in that run
  task_name VARCHAR NOT NULL: authored name of the task
  attempt BIGINT NOT NULL: number of the attempt
  phase VARCHAR NOT NULL: setup or cleanup
  exit_code BIGINT: NULL: it passed its limit
  output VARCHAR NOT NULL: its last 4,000 characters
alerts: one row an alert that was raised
  alert_key VARCHAR NOT NULL: what it is about; one alert a key
  raised_utc TIMESTAMP NOT NULL: when
  kind VARCHAR NOT NULL: regression or drift
  series_key VARCHAR: the series it is about
  spec VARCHAR: the spec it is about
  task_name VARCHAR: the task it is about; NULL: the series as a whole
  run_id VARCHAR: the run that raised it
  message VARCHAR NOT NULL: what happened, for a person
  details JSON: the figures behind it
  acknowledged_utc TIMESTAMP: when somebody took note
  acknowledged_by VARCHAR: who did
  acknowledged_reason VARCHAR: what they said
"""
