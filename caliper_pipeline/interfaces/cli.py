"""The `caliper` command: finds the sub-command, turns exceptions into messages and exit codes.

    0  done                      1  bad input (file, flag, name)
    2  could not run cleanly     130  interrupted

Sub-commands are imported when they are called, so that each starts as fast as what it needs.
"""

import os
import sys
from typing import Any

import click

from caliper_pipeline import __version__
from caliper_pipeline.domain.errors import BadInput, CaliperError, CannotRun
from caliper_pipeline.interfaces.lazy_group import LazyGroup
from caliper_pipeline.interfaces.problems import show_error

COMMANDS = {
    "validate": ("validate_command:validate", "Check a spec and its skills, without running anything."),
    "run": ("run_command:run", "Attempt every task of a spec k times, judge, score and record."),
    "list": ("list_command:list_runs", "List the specs and runs on record."),
    "report": ("report_command:report", "Show one run."),
    "compare": ("compare_command:compare", "Show two runs side by side."),
    "sql": ("sql_command:sql", "Ask the history anything in SQL, or open a shell on it."),
    "history": ("history_command:history", "Say what the history holds, check it and take care of it."),
    "export": ("export_command:export", "Write runs in the forms that other programs read."),
    "migrate": ("migrate_command:migrate", "Rewrite a spec of release 0.4 in the present form."),
    "sync": ("sync_command:sync", "Record in the history and in Dagster whatever they lack of the runs on disk."),
    "ui": ("ui_command:ui", "Start the Dagster web UI and daemon for this project."),
    "login": ("login_command:login", "Sign in to ChatGPT, so that codex runs use your plan."),
    "logout": ("login_command:logout", "Sign out of ChatGPT: revoke the login and delete it."),
    "update-cli": ("update_cli_command:update_cli", "Show the agents' commands, their versions, and update them."),
    "demo": ("demo_command:demo", "Copy an example skill and spec into a folder and evaluate it."),
}
"""Name → where it is, and its line in the overview (so that `--help` imports none of them)."""


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="caliper")
def caliper() -> None:
    """Measure whether an AI agent's skill fires, works, earns its place, and holds."""


def main() -> None:
    """Entry point of the `caliper` command."""
    _open_closed_streams()
    _forgive_encodings()
    try:
        _need_a_folder()
        code = caliper.main(standalone_mode=False, prog_name="caliper")
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        code = done.exit_code
    except click.ClickException as wrong:
        wrong.show(file=sys.stderr)
        code = wrong.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        code = 130
    except CaliperError as error:
        show_error(error)
        code = error.exit_code
    except BrokenPipeError:
        # The reader went away: nothing is wrong, and nothing more can be said on that stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        # The seam: a disk that is full, a file that may not be read. What a run had finished is stored all the same.
        show_error(CannotRun(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)))
        code = CannotRun.exit_code
    _leave(code)


def _leave(code: Any) -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader went away or the disk is full: nothing more can be said there
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code if isinstance(code, int) else 0)


def _need_a_folder() -> None:
    """Every command looks around from the working directory, and a shell may stand in one that was removed."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        raise BadInput("The working directory no longer exists.", hint="Change to one that does.") from None


def _open_closed_streams() -> None:
    """A stream that was closed (`>&-`) leads nowhere; left so, the next file opened would take its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


def _forgive_encodings() -> None:
    """What a terminal cannot show becomes `?`, and what its locale cannot say is kept; neither ends a command."""
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=errors)


if __name__ == "__main__":
    main()
