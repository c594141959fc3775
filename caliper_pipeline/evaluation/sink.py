"""Where a run's attempts hand over what they made: the run folder, and then whoever watches."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.records import Line, TaskHeader
from caliper_pipeline.domain.redaction import Redaction
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.evaluation.request import Observer
from caliper_pipeline.storage.evidence import Evidence
from caliper_pipeline.storage.runs import RunFolder

_FREE_TEXT = (
    *("output", "error", "setup_error", "warnings", "reason"),
    *("cheat_evidence", "assert_evidence", "autorater_reasoning"),
)
"""The fields of lines that hold what programs wrote."""


class StoreSink:
    """Takes what attempts hand over into the run folder and tells the observer once it is durable.

    What the variables of the spec's servers stand for, and the keys among the variables that attempts see, is hidden in
    all of it, since an agent can print it. The snapshot of the workdir is kept as it is: an assert that is run again
    must find what the agent left.
    """

    def __init__(self, folder: RunFolder, observer: Observer, secrets: Iterable[str] = ()) -> None:
        self._folder = folder
        self._observer = observer
        self._hidden = Redaction(secrets)

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
        hidden = self._hidden
        return self._folder.save_evidence(
            task.name,
            attempt,
            Evidence(
                turns=tuple(self._turn(turn) for turn in turns),
                final_answer=hidden.text(final_answer),
                prompt=task.prompt,
                raw_stdout=hidden.data(stdout),
                raw_stderr=hidden.data(stderr),
                usage=usage,
                extra=hidden.plain(dict(facts)),
                workdir_tar=workdir_tar,
            ),
        )

    def save_judgement(self, evidence: str, generation: int, asked: str, answered: tuple[str, ...]) -> None:
        told = [self._hidden.text(text) for text in answered]
        self._folder.save_judgement(evidence, generation, self._hidden.text(asked), told)

    def append(self, line: Line) -> None:
        line = self._line(line)
        self._folder.append(line)
        self._observer.line(line)

    def _turn(self, turn: Turn) -> Turn:
        hidden = self._hidden
        return replace(turn, content=hidden.text(turn.content), tool_input=hidden.plain(turn.tool_input))

    def _line(self, line: Line) -> Line:
        changed = {
            name: hidden
            for name in _FREE_TEXT
            if (text := getattr(line, name, None)) and (hidden := self._hidden.plain(text)) != text
        }
        return replace(line, **changed) if changed else line
