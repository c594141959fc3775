"""The codex backend: what it finds, starts, reads of a judge, refuses and explains."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import (
    CannotRun,
    CliTooOld,
    LoginRequired,
    MissingCli,
    SpendingCap,
    UnavailableModel,
)
from caliper_pipeline.domain.planted import read_turns
from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation, Operator, Refusal
from caliper_pipeline.execution.backends.codex import Codex
from caliper_pipeline.execution.backends.codex_access import Access
from caliper_pipeline.execution.command import ProcessResult

from .stand_in import operator

ENGINE = Engine("codex")
ARGV = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--color", "never")
NO_APPS, NO_PLUGINS = ("-c", "features.apps=false"), ("-c", "features.plugins=false")
BANNER = "OpenAI Codex v0.171.0\n--------\nmodel: gpt-5.5\n--------\nuser\n{}\n"
TOOL_TRACE = "2026-12-01T02:39:05Z ERROR codex_core::tools::router: error=Exit code: 22\nOutput:\n"


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def command_at(path: Path, says: str = "codex-cli 0.171.0") -> Path:
    return write(path, f"#!/bin/sh\necho '{says}'\necho more\n", 0o755)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """The operator's home."""
    folder = tmp_path / "operator"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The attempt's home."""
    folder = tmp_path / "attempt"
    (folder / ".cache" / "tmp").mkdir(parents=True)
    return folder


def invocation(home: Path, by: Operator, **facts: Any) -> Invocation:
    given: dict[str, Any] = {"engine": ENGINE, "prompt": "Go.", "workdir": home, "timeout_seconds": 60.0, **facts}
    return Invocation(home=home, operator=by, **given)


def judge_invocation(home: Path, by: Operator, **facts: Any) -> JudgeInvocation:
    given: dict[str, Any] = {"engine": ENGINE, "prompt": "Judge.", "workdir": home, "timeout_seconds": 60.0, **facts}
    return JudgeInvocation(home=home, operator=by, **given)


class TestCheck:
    def check(self, by: Operator, *extra_path: str) -> tuple[str | None, str | None]:
        info = Codex().check(by, extra_path, ENGINE, None)
        return info.binary, info.version

    def test_the_version_is_the_first_line_that_the_command_prints(self, tmp_path: Path, theirs: Path) -> None:
        binary = command_at(tmp_path / "bin" / "codex")
        by = operator(theirs, first_on_path=tmp_path / "bin")
        assert self.check(by) == (str(binary), "codex-cli 0.171.0")

    def test_an_update_of_the_command_is_seen(self, tmp_path: Path, theirs: Path) -> None:
        binary = command_at(tmp_path / "bin" / "codex")
        by = operator(theirs, first_on_path=tmp_path / "bin")
        self.check(by)
        os.utime(command_at(binary, "codex-cli 0.172.0"), ns=(1, 1))
        assert self.check(by)[1] == "codex-cli 0.172.0"

    def test_the_specs_own_path_comes_before_the_operators(self, tmp_path: Path, theirs: Path) -> None:
        command_at(tmp_path / "bin" / "codex")
        own = command_at(tmp_path / "extra" / "codex")
        assert self.check(operator(theirs, first_on_path=tmp_path / "bin"), str(tmp_path / "extra"))[0] == str(own)

    def test_a_command_that_is_named_comes_before_all(self, tmp_path: Path, theirs: Path) -> None:
        command_at(tmp_path / "bin" / "codex")
        named = command_at(tmp_path / "named" / "codex-nightly")
        by = operator(theirs, first_on_path=tmp_path / "bin", CODEX_CLI_PATH=str(named))
        assert self.check(by)[0] == str(named)
        assert Codex().command(invocation(tmp_path, by)).argv[0] == str(named)
        assert Codex().login_command(by) == (str(named), "login")

    @pytest.mark.parametrize("stale", ["missing", "folder", "plain", ""])
    def test_a_name_that_leads_nowhere_is_passed_over(self, tmp_path: Path, theirs: Path, stale: str) -> None:
        binary = command_at(tmp_path / "bin" / "codex")
        (tmp_path / "folder").mkdir()
        write(tmp_path / "plain", "no command")
        named = str(tmp_path / stale) if stale else ""
        assert self.check(operator(theirs, first_on_path=tmp_path / "bin", CODEX_CLI_PATH=named))[0] == str(binary)

    @pytest.mark.parametrize("app", ["ChatGPT.app", "Codex.app"])
    def test_the_copy_in_the_desktop_app_comes_last(self, tmp_path: Path, theirs: Path, app: str) -> None:
        bundled = command_at(theirs / "Applications" / app / "Contents" / "Resources" / "codex")
        assert self.check(operator(theirs)) == (str(bundled), "codex-cli 0.171.0")
        binary = command_at(tmp_path / "bin" / "codex")
        assert self.check(operator(theirs, first_on_path=tmp_path / "bin"))[0] == str(binary)

    def test_a_missing_command_is_told_before_anything_is_paid(self, tmp_path: Path, theirs: Path) -> None:
        by = Operator(environment={"PATH": str(tmp_path)}, allowed={}, agent_allowed={}, home=theirs)
        with pytest.raises(MissingCli, match="codex CLI not found") as caught:
            Codex().check(by, ("/first",), ENGINE, None)
        assert f"/first{os.pathsep}{tmp_path}" in caught.value.message

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ("#!/bin/sh\necho 'Missing optional dependency' >&2\nexit 1\n", "Missing optional dependency"),
            ("#!/no/such/interpreter\n", "the interpreter that its first line names"),
        ],
    )
    def test_a_command_that_does_not_start_is_told_as_well(
        self, tmp_path: Path, theirs: Path, script: str, words: str
    ) -> None:
        write(tmp_path / "bin" / "codex", script, 0o755)
        with pytest.raises(CannotRun, match=words):
            self.check(operator(theirs, first_on_path=tmp_path / "bin"))

    def test_a_command_that_says_nothing_may_still_run(self, tmp_path: Path, theirs: Path) -> None:
        binary = write(tmp_path / "bin" / "codex", "#!/bin/sh\n", 0o755)
        assert self.check(operator(theirs, first_on_path=tmp_path / "bin")) == (str(binary), None)

    def test_a_configuration_folder_that_is_none_is_refused(self, theirs: Path) -> None:
        with pytest.raises(CannotRun, match="CODEX_HOME is "):
            self.check(operator(theirs, CODEX_HOME=str(theirs / "missing")))

    @pytest.mark.parametrize("broken", ["model = [", "\x00", "a = 1\na = 2"])
    def test_a_configuration_that_cannot_be_read_is_refused(self, theirs: Path, broken: str) -> None:
        write(theirs / ".codex" / "config.toml", broken)
        with pytest.raises(CannotRun, match=r"config\.toml is no valid TOML"):
            self.check(operator(theirs))


class TestCommand:
    def argv(self, home: Path, by: Operator, **facts: Any) -> tuple[str, ...]:
        return Codex().command(invocation(home, by, **facts)).argv

    def test_the_prompt_goes_to_standard_input_and_connectors_stay_out(self, home: Path, theirs: Path) -> None:
        command = Codex().command(invocation(home, operator(theirs), prompt="--version ü", engine=Engine("codex", "m")))
        assert command.argv == ("codex", "exec", "--model", "m", *ARGV, *NO_APPS, *NO_PLUGINS, "-")
        assert command.stdin == "--version ü".encode()

    def test_ones_own_connectors_stay_unless_a_declared_server_has_their_name(self, home: Path, theirs: Path) -> None:
        by = operator(theirs)
        assert self.argv(home, by, isolated=False) == ("codex", "exec", *ARGV, "-")
        declared = self.argv(home, by, isolated=False, declared_servers=("codex_apps",))
        assert declared == ("codex", "exec", *ARGV, *NO_APPS, "-")

    def test_a_planted_session_is_resumed_by_its_id(self, home: Path, theirs: Path) -> None:
        assert self.argv(home, operator(theirs), session="0-1")[-3:] == ("resume", "0-1", "-")

    def test_the_environment_holds_what_is_let_through_and_nothing_else(self, home: Path, theirs: Path) -> None:
        by = Operator(
            environment={"PATH": "/bin", "SECRET": "x", "HTTPS_PROXY": "http://p", "AZURE_KEY": "k"},
            allowed={"PATH": "/bin", "HTTPS_PROXY": "http://p", "SSL_CERT_FILE": "/ca.pem", "CALIPER_X": "1"},
            agent_allowed={"AZURE_KEY": "k"},
            home=theirs,
        )
        env = Codex().command(invocation(home, by, extra_path=("/extra",))).env
        assert env == {
            "PATH": "/extra:/bin",
            "HTTPS_PROXY": "http://p",
            "SSL_CERT_FILE": "/ca.pem",
            "AZURE_KEY": "k",
            "HOME": str(home),
            "TMPDIR": str(home / ".cache" / "tmp"),
            "CODEX_HOME": str(home / ".codex"),
        }

    @pytest.mark.parametrize(
        ("config", "login", "given", "key"),
        [
            ("", "", {"CODEX_API_KEY": "c"}, "c"),
            ("", "", {"OPENAI_API_KEY": "o"}, "o"),
            ("", "", {"CODEX_API_KEY": "c", "OPENAI_API_KEY": "o"}, "c"),
            ("", "{}", {"CODEX_API_KEY": "c", "OPENAI_API_KEY": "o"}, None),
            ('model_provider = "x"\n[model_providers.x]\nenv_key = "K"', "", {"OPENAI_API_KEY": "o"}, None),
            # The variable that a provider of the operator's own reads its key from.
            ('model_provider = "x"\n[model_providers.x]\nenv_key = "K"', "{}", {"CODEX_API_KEY": "c"}, "c"),
            (
                'model_provider = "x"\n[model_providers.x]\nrequires_openai_auth = true',
                "",
                {"OPENAI_API_KEY": "o"},
                "o",
            ),
        ],
    )
    def test_a_key_takes_the_place_of_a_login_and_never_goes_before_it(
        self, home: Path, theirs: Path, config: str, login: str, given: dict[str, str], key: str | None
    ) -> None:
        write(theirs / ".codex" / "config.toml", config)
        if login:
            write(theirs / ".codex" / "auth.json", login)
        asked = invocation(home, operator(theirs, agent=given))
        Codex().prepare(asked)
        assert Codex().command(asked).env.get("CODEX_API_KEY") == key


class TestAccess:
    """A login that somebody else keeps takes the place of the stored one."""

    backend = Codex(
        lambda operator, seconds: Access(
            overrides=('model_provider="plan"',),
            environment={"PLAN_TOKEN": f"for {seconds:g}s"},
            provider="plan",
            seeds_login=False,
            plan=True,
        )
    )

    def test_the_stored_login_stays_where_it_is(self, home: Path, theirs: Path) -> None:
        write(theirs / ".codex" / "auth.json", "{}")
        self.backend.prepare(invocation(home, operator(theirs)))
        self.backend.prepare_judge(judge_invocation(home, operator(theirs)))
        assert not (home / ".codex" / "auth.json").exists()

    def test_every_call_gets_its_overrides_and_variables(self, home: Path, theirs: Path) -> None:
        by = operator(theirs, agent={"OPENAI_API_KEY": "o"})
        for command in (
            self.backend.command(invocation(home, by)),
            self.backend.judge_command(judge_invocation(home, by)),
        ):
            assert command.argv[-3:-1] == ("-c", 'model_provider="plan"')
            assert command.env["PLAN_TOKEN"] == "for 60s"
            assert "CODEX_API_KEY" not in command.env

    def test_a_planted_session_names_its_provider(self, home: Path, theirs: Path, tmp_path: Path) -> None:
        command_at(tmp_path / "bin" / "codex")
        history, _ = read_turns([{"user": "Hi."}])
        by = operator(theirs, first_on_path=tmp_path / "bin")
        self.backend.plant(invocation(home, by, history=history))
        (session,) = (home / ".codex" / "sessions").rglob("*.jsonl")
        assert '"model_provider": "plan"' in session.read_text(encoding="utf-8")


class TestJudge:
    def test_it_is_asked_without_the_means_to_do_anything(self, home: Path, theirs: Path) -> None:
        command = Codex().judge_command(judge_invocation(home, operator(theirs), prompt="Judge this."))
        assert command.argv == (
            *("codex", "exec", "--skip-git-repo-check", "--sandbox", "read-only", "--color", "never"),
            *("--output-last-message", str(home / ".cache" / "tmp" / "last-message.txt")),
            *(*NO_APPS, *NO_PLUGINS, "-"),
        )
        assert command.stdin == b"Judge this."

    @pytest.mark.parametrize(
        ("login", "key"),
        [
            ("", "model_instructions_file"),
            ('{"OPENAI_API_KEY": "k"}', "model_instructions_file"),
            ('{"OPENAI_API_KEY": "k", "tokens": {"access_token": "t"}}', "model_instructions_file"),
            ('{"OPENAI_API_KEY": null, "tokens": {"access_token": "t"}}', "developer_instructions"),
            ("[", "model_instructions_file"),
        ],
    )
    def test_its_role_is_given_where_the_service_takes_it(self, home: Path, theirs: Path, login: str, key: str) -> None:
        if login:
            write(theirs / ".codex" / "auth.json", login)
        Codex().prepare_judge(judge_invocation(home, operator(theirs), system="You judge."))
        config = (home / ".codex" / "config.toml").read_text(encoding="utf-8")
        assert f"\n{key} = " in f"\n{config}"
        given = config if key == "developer_instructions" else (home / ".codex" / "instructions.md").read_text("utf-8")
        assert "You judge." in given

    def test_its_home_holds_nothing_but_the_login(self, home: Path, theirs: Path) -> None:
        write(theirs / ".codex" / "auth.json", "{}")
        write(theirs / ".codex" / "AGENTS.md", "rules")
        Codex().prepare_judge(judge_invocation(home, operator(theirs)))
        assert {path.name for path in home.rglob("*") if path.is_file()} == {"auth.json", "config.toml"}

    def read(self, home: Path, theirs: Path, *, said: str = "", prompt: str = "Judge.", **facts: Any) -> Any:
        asked = judge_invocation(home, operator(theirs), prompt=prompt)
        if said:
            write(home / ".cache" / "tmp" / "last-message.txt", said)
        result = ProcessResult(**{"exit_code": 0, **facts})
        answer = Codex().read_judge(result, asked)
        return answer, Codex().judge_refusal(result, answer)

    def test_its_last_message_is_the_answer(self, home: Path, theirs: Path) -> None:
        answer, refusal = self.read(home, theirs, said='{"passed": true}\n', stdout=b"noise", stderr=b"ERROR: 401")
        assert (answer.text, answer.cli_error, refusal) == ('{"passed": true}', None, None)

    def test_without_a_file_it_is_what_it_printed(self, home: Path, theirs: Path) -> None:
        assert self.read(home, theirs, stdout=b" printed \n")[0].text == "printed"

    def test_events_that_it_printed_are_read_as_such(self, home: Path, theirs: Path) -> None:
        event = b'{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"{\\"passed\\": true}"}}'
        assert self.read(home, theirs, stdout=b"noise\n" + event)[0].text == '{"passed": true}'

    def test_the_question_is_not_what_went_wrong(self, home: Path, theirs: Path) -> None:
        prompt = "Transcript:\nERROR: 429 rate limit\nQuota exceeded.\nerror: unexpected argument"
        last = "ERROR: unexpected status 401 Unauthorized: no, url: http://127.0.0.1:4290/v1\n"
        answer, refusal = self.read(
            home, theirs, prompt=prompt, exit_code=1, stderr=(BANNER.format(prompt) + 2 * last).encode()
        )
        assert answer.cli_error == last.removeprefix("ERROR:").strip()
        assert refusal.kind == "login"

    def test_what_it_said_before_it_failed_is_not_what_went_wrong(self, home: Path, theirs: Path) -> None:
        told = BANNER.format("Judge.") + "codex\nThe agent hit a usage limit.\n"
        answer, refusal = self.read(home, theirs, exit_code=1, stderr=told.encode())
        assert (answer.cli_error, refusal) == (None, None)

    @pytest.mark.parametrize(
        ("stderr", "kind", "too_long"),
        [
            (BANNER.format("Judge.") + "ERROR: You’ve hit your usage limit. Try again later.", "cap", False),
            (
                BANNER.format("Judge.") + "ERROR: exceeded retry limit, last status: 429 Too Many Requests",
                "throttle",
                False,
            ),
            (
                BANNER.format("Judge.")
                + "ERROR: The 'gpt-9' model is not supported when using Codex with a ChatGPT account.",
                "model",
                False,
            ),
            (BANNER.format("Judge.") + "ERROR: Codex ran out of room in the model's context window.", None, True),
            (
                BANNER.format("Judge.")
                + "Error: turn/start failed: Input exceeds the maximum length of 1048576 characters.",
                None,
                True,
            ),
            ("Error loading config.toml:\n/h/config.toml:1:10: unclosed array\n", "configuration", False),
            ("error: unexpected argument '--sandbox' found\n", "option", False),
            ("Not logged in\n", "login", False),
            ("Segmentation fault\n", None, False),
        ],
    )
    def test_what_went_wrong_is_told_apart(
        self, home: Path, theirs: Path, stderr: str, kind: str | None, too_long: bool
    ) -> None:
        answer, refusal = self.read(home, theirs, exit_code=1, stderr=stderr.encode())
        assert (refusal.kind if refusal else None, answer.too_long, answer.text) == (kind, too_long, "")

    def test_no_answer_at_all_is_told_by_the_error_beside_it(self, home: Path, theirs: Path) -> None:
        answer, refusal = self.read(home, theirs, stderr=(BANNER.format("Judge.") + "ERROR: Quota exceeded.").encode())
        assert (answer.cli_error, refusal.kind) == ("Quota exceeded.", "cap")

    def test_a_call_that_was_ended_by_us_is_no_refusal(self, home: Path, theirs: Path) -> None:
        told = (BANNER.format("Judge.") + "ERROR: 429 rate limit").encode()
        assert self.read(home, theirs, exit_code=-15, timed_out=True, stderr=told)[1] is None


class TestRefusal:
    def refusal(self, stdout: str = "", stderr: str = "", exit_code: int | None = 1, **facts: Any) -> Refusal | None:
        result = ProcessResult(exit_code, stdout.encode(), stderr.encode(), **facts)
        return Codex().refusal(result, Codex().read(result))

    @pytest.mark.parametrize(
        ("words", "kind"),
        [
            ("You've hit your usage limit. Upgrade to Pro (https://x) or try again at 3:04 PM.", "cap"),
            ("Your workspace is out of credits. Add credits to continue.", "cap"),
            ("You hit your spend cap set by the owner of your workspace.", "cap"),
            ("unexpected status 402 Payment Required: , url: http://127.0.0.1/v1/responses", "cap"),
            ("Quota exceeded on your subscription. Please log in again.", "cap"),  # a cap before a login
            ("exceeded retry limit, last status: 429 Too Many Requests", "throttle"),
            ("unexpected status 503 Service Unavailable: busy", "throttle"),
            ("Selected model is at capacity. Please try a different model.", "throttle"),
            ("unexpected status 401 Unauthorized: {}, url: http://127.0.0.1:4290/v1/responses", "login"),
            ("Your access token could not be refreshed. Please log out and sign in again.", "login"),
            ("The 'gpt-9' model is not supported when using Codex with a ChatGPT account.", "model"),
            ("The 'gpt-9' model requires a newer version of Codex. Please upgrade to the latest app or CLI", "model"),
            ('{"error": {"message": "x", "code": "model_not_found"}}', "model"),
            ("Missing environment variable: `AZURE_KEY`.", "configuration"),
            ("unexpected status 502 Bad Gateway: 429", None),  # the status outweighs numbers in the text
            ("stream disconnected before completion: connection closed", None),
        ],
    )
    def test_it_is_told_by_the_words_that_closed_the_turn(self, words: str, kind: str | None) -> None:
        event = Refusal("", words).text.replace('"', '\\"')
        for exit_code in (0, 1):
            refused = self.refusal(f'{{"type":"turn.failed","error":{{"message":"{event}"}}}}\n', exit_code=exit_code)
            assert (refused.kind if refused else None) == kind

    @pytest.mark.parametrize(
        ("stderr", "kind"),
        [
            ("error: unexpected argument '--color' found\n\n  tip: x", "option"),
            ("Error loading config.toml:\n/h/.codex/config.toml:1:10: unclosed array, expected `]`\n", "configuration"),
            ("Not inside a trusted directory and --skip-git-repo-check was not specified.", "configuration"),
            ("Error: Missing optional dependency @openai/codex-linux-x64. Reinstall Codex", "configuration"),
            ("Error: not logged in. Please run `codex login`.", "login"),
            # What tools and servers said, and what was only warned of.
            ("2026-12-01T02:39:05Z ERROR codex_core::tools::router: error=429 rate limit, not logged in", None),
            (
                TOOL_TRACE + "Error: HTTP 429, not logged in\nexit\n",
                None,
            ),
            (
                TOOL_TRACE + "no\nError: not logged in.\n",
                "login",
            ),
            ("2026-12-01T02:39:05Z ERROR rmcp::transport::worker: 401 unauthorized", None),
            ("WARNING: proceeding, even though 429\nReading additional input from stdin...", None),
            ("thread 'main' panicked at core/src/lib.rs:1:1", None),
        ],
    )
    def test_without_events_it_is_told_by_standard_error(self, stderr: str, kind: str | None) -> None:
        refused = self.refusal(stderr=stderr)
        assert (refused.kind if refused else None) == kind

    def test_a_broken_configuration_is_quoted_with_its_place(self) -> None:
        refused = self.refusal(stderr="Error loading config.toml:\n/h/config.toml:1:10: unclosed array\n  |\n")
        assert refused is not None
        assert "/h/config.toml:1:10: unclosed array" in refused.text

    def test_words_on_standard_output_outside_the_events_are_the_clis(self) -> None:
        refused = self.refusal("Not logged in. Run codex login.\n", exit_code=0)
        assert refused is not None
        assert refused.kind == "login"

    def test_a_finished_turn_is_never_refused(self) -> None:
        assert self.refusal('{"type":"turn.completed","usage":{}}\n', "Error: 429 not logged in", exit_code=0) is None

    @pytest.mark.parametrize("facts", [{"timed_out": True}, {"cancelled": True}, {"exit_code": None}])
    def test_what_we_ended_is_never_refused(self, facts: dict[str, Any]) -> None:
        assert self.refusal(stderr="Error: 429 rate limit", **facts) is None

    @pytest.mark.parametrize(
        ("words", "seconds"),
        [("Please try again in 1s.", 1.0), ("try again in 250ms", 0.25), ("try again in 2m", 120.0), ("later", None)],
    )
    def test_how_long_to_wait_is_told(self, words: str, seconds: float | None) -> None:
        refused = self.refusal(f'{{"type":"error","message":"rate limit exceeded: Rate limit reached. {words}"}}\n')
        assert refused is not None
        assert refused.retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("login", LoginRequired, ("cannot run: Not logged in", "`codex login`", "CODEX_API_KEY", "keyring")),
        ("cap", SpendingCap, ("spending or usage cap", "--resume")),
        ("model", UnavailableModel, ("gpt-9 is not available", "model codex:gpt-5.5", "npm install -g @openai/codex")),
        ("option", CliTooOld, ("rejects an option", "npm install -g @openai/codex")),
        ("configuration", CannotRun, ("cannot run",)),
    ],
)
@pytest.mark.parametrize("judge", [False, True])
def test_each_refusal_is_explained_with_its_remedy(
    kind: str, error: type[Exception], words: tuple[str, ...], judge: bool
) -> None:
    told = Codex().explain(Refusal(kind, "the words of the CLI"), Engine("codex", "gpt-9"), judge=judge)
    assert type(told) is error
    assert str(told).startswith(f"The codex {'judge' if judge else 'agent'} ")
    assert "the words of the CLI" in str(told)
    for word in words:
        assert word in str(told)
    if kind == "model":
        assert ("--judge-model" in str(told)) == judge


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("Missing environment variable: `AZURE_KEY`.", "caliper.yaml"),
        ("Error: Missing optional dependency @openai/codex-linux-x64.", "Install it anew"),
        ("Error loading config.toml: x", "--no-user-customizations"),
    ],
)
def test_a_wrong_setup_is_explained_by_what_mends_it(text: str, remedy: str) -> None:
    assert remedy in str(Codex().explain(Refusal("configuration", text), ENGINE, judge=False))


def test_what_is_written_into_a_home_is_for_its_owner_alone(home: Path, theirs: Path) -> None:
    write(theirs / ".codex" / "auth.json", "{}")
    Codex().prepare(invocation(home, operator(theirs)))
    Codex().prepare_judge(judge_invocation(home, operator(theirs), system="x"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home / ".codex").iterdir()}
    assert modes == {"auth.json": 0o600, "config.toml": 0o600, "instructions.md": 0o600}
