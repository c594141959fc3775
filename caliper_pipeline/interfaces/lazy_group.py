"""Groups of commands that are imported when they are called, so that each starts as fast as what it needs."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """`commands`: name → where it is (`module:function` in this package), and its line in the overview."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module, _, name = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"caliper_pipeline.interfaces.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])
