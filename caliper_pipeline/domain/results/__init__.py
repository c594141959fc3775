"""The results of one run as the published JSON has them: their values, read from a file, written, made from a log.

The schema is that of the reference product, so that tools which read its files go on working; what we know besides
stands under keys of our own next to the known ones. Transcripts are not held here: they are large, and storage
streams them through the file.
"""

from caliper_pipeline.domain.results.assembly import assemble
from caliper_pipeline.domain.results.reading import parse_results
from caliper_pipeline.domain.results.usage import UsageTotals, usage_totals
from caliper_pipeline.domain.results.values import (
    ERA,
    AttemptResult,
    Results,
    RunInfo,
    SkillSnapshot,
    SnapshotFile,
    TaskResult,
)
from caliper_pipeline.domain.results.writing import attempt_dict, results_dict, run_dict, task_dict, usage_totals_dict

__all__ = [
    "ERA",
    "AttemptResult",
    "Results",
    "RunInfo",
    "SkillSnapshot",
    "SnapshotFile",
    "TaskResult",
    "UsageTotals",
    "assemble",
    "attempt_dict",
    "parse_results",
    "results_dict",
    "run_dict",
    "task_dict",
    "usage_totals",
    "usage_totals_dict",
]
