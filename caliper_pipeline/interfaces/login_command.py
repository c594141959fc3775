"""`caliper login` and `caliper logout`: a ChatGPT plan for the runs of the codex backend."""

import os
import sys
import webbrowser

import click

from caliper_pipeline.evaluation.logins import forget_plan, this_operator, use_plan
from caliper_pipeline.interfaces.login_offer import someone_is_there
from caliper_pipeline.interfaces.problems import say

_SERVICES = click.Choice(["chatgpt"])


@click.command()
@click.argument("service", type=_SERVICES)
@click.option("--no-browser", is_flag=True, help="Only print the address; do not open it.")
def login(service: str, no_browser: bool) -> None:
    """Sign in to ChatGPT, so that agents and judges of the codex backend use your plan (Plus or Pro).

    Opens your browser and waits up to five minutes for you to sign in there. The login is kept in
    ~/.config/caliper/chatgpt.json, readable by you alone; attempts never see it, only access tokens of an hour. As
    long as it is there, codex runs use it instead of codex's own login; `caliper logout chatgpt` ends that.

    Are you on another machine? Forward its port: ssh -L 1455:127.0.0.1:1455 HOST
    """

    def show(address: str) -> None:
        say("Sign in to ChatGPT in your browser, at this address:\n")
        click.echo(address)
        sys.stdout.flush()
        say("\nWaiting for you to sign in (Ctrl-C gives up) …")
        if not no_browser and someone_is_there(os.environ) and _has_screen():
            webbrowser.open(address)

    account = use_plan(this_operator(), show)
    say(f"Signed in to ChatGPT as {account}. Codex runs use your plan from now on.")


@click.command()
@click.argument("service", type=_SERVICES)
def logout(service: str) -> None:
    """Sign out of ChatGPT: revoke the login and delete it. Codex runs use codex's own login again."""
    done = forget_plan(this_operator())
    if done is None:
        say("You are not signed in to ChatGPT.")
        return
    say(f"Signed out of ChatGPT{f' ({done.account})' if done.account else ''}. The login is deleted.")
    if done.not_revoked:
        say(
            f"The service did not confirm that it is revoked: {done.not_revoked}\n"
            "To be sure, remove Caliper among the connected applications in ChatGPT's settings."
        )


def _has_screen() -> bool:
    """Without one, what opens may be a browser that takes over this terminal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
