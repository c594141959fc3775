"""Tools traced back to their servers."""

import pytest

from caliper_pipeline.domain.servers import ServerUse, server_of, server_uses


@pytest.mark.parametrize(
    ("tool", "servers", "expected"),
    [
        ("mcp__mail__read", ["mail"], "mail"),
        ("mcp__mail__read__all", ["mail", "other"], "mail"),
        ("mcp__echo-srv__echo", ["echo-srv"], "echo-srv"),
        # A name may hold what stands between name and tool.
        ("mcp__mail__box__read", ["mail", "mail__box"], "mail__box"),
        ("mcp__mail___read", ["mail", "mail_"], "mail_"),
        # Services that take no hyphen; the name as it is goes before the one that is written alike.
        ("mcp__echo_srv__echo", ["echo-srv"], "echo-srv"),
        ("mcp__echo_srv__echo", ["echo-srv", "echo_srv"], "echo_srv"),
        ("mcp_mail_read", ["mail", "ma"], "mail"),
        ("mcp_mail_box_read", ["mail", "mail_box"], "mail_box"),
        ("mcp__mailbox__read", ["mail"], None),
        ("mcp__own__read", ["mail"], None),
        ("Bash", ["mail"], None),
        ("mail__read", ["mail"], None),
        ("mcp__mail", ["mail"], None),
    ],
)
def test_a_tool_is_of_the_server_with_the_longest_name_that_fits(
    tool: str, servers: list[str], expected: str | None
) -> None:
    assert server_of(tool, servers) == expected
    assert server_of(tool, list(reversed(servers))) == expected


def test_uses_are_counted_by_attempt_and_by_call() -> None:
    calls = [{"mcp__a__x": 2, "mcp__a__y": 1, "Bash": 5}, {"mcp__a__x": 1}, {}]
    assert server_uses(calls, ["b", "a"]) == (ServerUse("b", 0, 0), ServerUse("a", 2, 4))
