"""The code location: what Dagster serves for the project in CALIPER_ROOT, or in the working directory."""

from dagster import Definitions, in_process_executor

from caliper_pipeline.defs.attempts import attempts_and_verdicts
from caliper_pipeline.defs.eval_runs import eval_runs
from caliper_pipeline.defs.jobs import evaluate_job, register_specs_job
from caliper_pipeline.defs.resources import default_resources
from caliper_pipeline.defs.scores import scoreboard, scores, usable_attempts
from caliper_pipeline.defs.sensors import new_and_edited_specs
from caliper_pipeline.defs.specs import skill_sources, specs

defs = Definitions(
    assets=[specs, skill_sources, eval_runs, attempts_and_verdicts, scores, scoreboard],
    asset_checks=[usable_attempts],
    jobs=[evaluate_job, register_specs_job],
    sensors=[new_and_edited_specs],
    resources=default_resources(),
    # Attempts run in a pool inside the step: a process a step would only add seconds.
    executor=in_process_executor,
)
