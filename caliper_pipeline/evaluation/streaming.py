"""An evaluation as a stream of lines, for a caller that hands each on as it comes."""

import queue
import threading
from collections.abc import Iterator

from caliper_pipeline.domain.records import Line
from caliper_pipeline.evaluation.request import Silent
from caliper_pipeline.evaluation.run import Evaluation
from caliper_pipeline.execution.command import StopToken


class _Queue(Silent):
    """An observer that hands lines to another thread."""

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[Line | BaseException | None] = queue.SimpleQueue()

    def line(self, line: Line) -> None:
        self.lines.put(line)


def stream(evaluation: Evaluation, stop: StopToken) -> Iterator[Line]:
    """Execute in a thread and yield each line once it is durable, the end line last.

    Closing the generator stops the run, cooperatively, and waits for it to come to rest.
    """
    seen = _Queue()

    def work() -> None:
        try:
            evaluation.execute(seen, stop)
        except BaseException as error:
            seen.lines.put(error)
        finally:
            seen.lines.put(None)

    thread = threading.Thread(target=work, name="evaluation")
    thread.start()
    try:
        while (item := seen.lines.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        if thread.is_alive():
            stop.set()
        thread.join()
