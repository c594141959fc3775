"""The exceptions of this package. What can happen to one attempt is a value, not an exception.

    CaliperError
    ├── BadInput             what was given is wrong: a file, a flag, a name        (exit code 1)
    │   └── SpecError        one or more problems in a spec, a skill or caliper.yaml
    ├── CannotRun            the input is fine, but going on is pointless            (exit code 2)
    │   ├── UnknownBackend   an engine that does not exist or cannot do what is asked
    │   ├── MissingCli       the agent's command is not installed
    │   ├── LoginRequired    the agent or the judge is not logged in
    │   ├── SpendingCap      the account's cap is reached
    │   ├── BudgetReached    what this run may use is used
    │   ├── UnavailableModel the model does not exist or is not accessible
    │   └── CliTooOld        the agent's command rejects an option we need
    └── StorageError         the run store or the history cannot be used             (exit code 2)
        ├── HistoryUnusable  the history file is something else, or damaged
        └── HistoryTooNew    written by a newer version

Only `interfaces` turns an exception into an exit code.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class CaliperError(Exception):
    """A message for a person; `hint` says what would be right, when that is known."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class BadInput(CaliperError):
    exit_code = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file a person wrote."""

    file: str
    message: str
    key: str = ""
    """Where in the file, in the author's words: `tasks → Happy path → assert`. Empty: the file as a whole."""
    line: int | None = None
    """Counted from 1."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}, line {self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class SpecError(BadInput):
    """Everything found wrong in one go, so that an author mends it in one go."""

    def __init__(self, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(problem) for problem in problems), hint=hint)
        self.problems = tuple(problems)


class CannotRun(CaliperError):
    pass


class UnknownBackend(CannotRun):
    pass


class MissingCli(CannotRun):
    pass


class LoginRequired(CannotRun):
    login_command: tuple[str, ...] | None = None
    """What a person runs to log in, once somebody who knows the backend has said so. `None`: there is no command."""


class SpendingCap(CannotRun):
    pass


class BudgetReached(CannotRun):
    pass


class UnavailableModel(CannotRun):
    pass


class CliTooOld(CannotRun):
    pass


class StorageError(CaliperError):
    pass


class HistoryUnusable(StorageError):
    pass


class HistoryTooNew(StorageError):
    pass
