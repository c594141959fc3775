"""Declared servers made ready: variables, anchored paths, and what is refused."""

from pathlib import Path

import pytest

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.domain.spec import McpServer
from caliper_pipeline.execution.servers import resolve_servers, secret_values


def resolved(environment: dict[str, str], **servers: dict[str, object]) -> tuple[object, ...]:
    declared = {name: McpServer.model_validate(data) for name, data in servers.items()}
    return resolve_servers(declared, environment, Path("/specs/demo"), "demo.eval.yaml")


def test_variables_are_filled_in_where_no_process_list_shows_them() -> None:
    (server,) = resolved({"TOKEN": "s3"}, mail={"command": "${TOKEN}", "args": ["${TOKEN}"], "env": {"A": "x${TOKEN}"}})
    assert (server.command, server.args, server.env) == ("${TOKEN}", ("${TOKEN}",), {"A": "xs3"})  # type: ignore[attr-defined]


def test_a_variable_that_is_set_to_nothing_is_taken_as_it_is() -> None:
    (server,) = resolved({"TOKEN": ""}, mail={"type": "http", "url": "http://x/", "headers": {"A": "${TOKEN}"}})
    assert server.headers == {"A": ""}  # type: ignore[attr-defined]


def test_relative_paths_start_at_the_spec() -> None:
    (server,) = resolved({}, mail={"command": "./server", "args": ["../data", "plain", "-x"]})
    assert (server.command, server.args) == ("/specs/demo/server", ("/specs/data", "plain", "-x"))  # type: ignore[attr-defined]


def test_every_variable_that_is_not_set_is_named_with_its_server_and_key() -> None:
    with pytest.raises(CannotRun) as caught:
        resolved(
            {},
            mail={"command": "m", "env": {"A": "${ONE}"}},
            web={"type": "sse", "url": "http://${TWO}/", "headers": {"H": "${ONE}"}},
        )
    assert "mail: env.A: ONE; web: url: TWO; web: headers.H: ONE" in caught.value.message


def test_what_variables_stand_for_is_secret_and_nothing_else() -> None:
    declared = {
        "mail": McpServer.model_validate(
            {"command": "${NO}", "env": {"A": "x${TOKEN}", "B": "plain", "C": "${FOLDER}/x", "D": "${PORT}"}}
        ),
        "web": McpServer.model_validate({"type": "http", "url": "http://${HOST}/", "headers": {"H": "${EMPTY}"}}),
    }
    environment = {"TOKEN": "s3cret", "HOST": "h", "EMPTY": "", "NO": "no", "OTHER": "other"}
    environment |= {"FOLDER": str(Path.cwd()), "PORT": "8080"}
    assert secret_values(declared, environment) == {"s3cret", "h"}
