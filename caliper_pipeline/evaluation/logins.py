"""What logs a person in, for an error that says one has to; and the plan login's own commands.

A backend knows its login command, an error only that there is no login: the two meet here, where the backend is known.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from caliper_pipeline.domain.errors import CaliperError, CannotRun, LoginRequired
from caliper_pipeline.execution.backends.base import Backend, Operator
from caliper_pipeline.execution.chatgpt.session import SignedOut, sign_out
from caliper_pipeline.execution.environment import operator_from


def as_error(
    explained: Exception, backend: Backend, operator: Operator, extra_path: tuple[str, ...] = ()
) -> CaliperError:
    """What `Backend.explain` gave, with the command that logs in, where that is what is missing and there is one."""
    error = explained if isinstance(explained, CaliperError) else CannotRun(str(explained))
    if isinstance(error, LoginRequired) and error.login_command is None:
        command = backend.login_command(operator)
        error.login_command = None if command is None else _found(command, operator, extra_path)
    return error


def _found(command: tuple[str, ...], operator: Operator, extra_path: tuple[str, ...]) -> tuple[str, ...]:
    """The command as a shell of the operator's would find it, or else where the attempts find it."""
    own = operator.environment.get("PATH") or os.defpath
    if Path(command[0]).is_absolute() or shutil.which(command[0], path=own):
        return command
    elsewhere = shutil.which(command[0], path=os.pathsep.join(extra_path)) if extra_path else None
    return command if elsewhere is None else (elsewhere, *command[1:])


def this_operator() -> Operator:
    """The person at this machine; nothing of a project is needed to log in."""
    return operator_from(os.environ, (), ())


def use_plan(operator: Operator, show: Callable[[str], None]) -> str:
    """Sign in to ChatGPT at the address that is handed to `show`. Gives the account. Raises `CannotRun`."""
    from caliper_pipeline.execution.chatgpt.sign_in import sign_in

    return sign_in(operator, show).account


def forget_plan(operator: Operator) -> SignedOut | None:
    """Sign out of ChatGPT. `None`: nobody was signed in."""
    return sign_out(operator)
