"""Where a run's attempts hand over what they made: the run folder, and then whoever watches."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.records import Line, TaskHeader
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.evaluation.request import Observer
from caliper_pipeline.storage.evidence import Evidence
from caliper_pipeline.storage.runs import RunFolder


class StoreSink:
    """Takes what attempts hand over into the run folder and tells the observer once it is durable."""

    def __init__(self, folder: RunFolder, observer: Observer) -> None:
        self._folder = folder
        self._observer = observer

    def save_evidence(
        self,
        task: TaskHeader,
        attempt: int,
        *,
        turns: tuple[Turn, ...],
        final_answer: str,
        usage: Usage | None,
        stdout: bytes,
        stderr: bytes,
        facts: Mapping[str, Any],
        workdir_tar: Path | None,
    ) -> str:
        return self._folder.save_evidence(
            task.name,
            attempt,
            Evidence(
                turns=turns,
                final_answer=final_answer,
                prompt=task.prompt,
                raw_stdout=stdout,
                raw_stderr=stderr,
                usage=usage,
                extra=dict(facts),
                workdir_tar=workdir_tar,
            ),
        )

    def save_judgement(self, evidence: str, generation: int, asked: str, answered: tuple[str, ...]) -> None:
        self._folder.save_judgement(evidence, generation, asked, list(answered))

    def append(self, line: Line) -> None:
        self._folder.append(line)
        self._observer.line(line)
