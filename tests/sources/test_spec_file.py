"""Spec files as authors and programs write them, with everything they name."""

import contextlib
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caliper_pipeline.domain.errors import SpecError
from caliper_pipeline.sources.spec_file import LoadedSpec, load_spec
from tests.sources.tree import skill, write

HOME = Path("/nonexistent")
PROBE = "  - {name: Probe, prompt: Go., activates: []}\n"


def load(folder: Path, text: str | bytes, name: str = "case.eval.yaml") -> LoadedSpec:
    write(folder, {name: text})
    return load_spec(folder / name, HOME)


def refusal(folder: Path, text: str | bytes) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(folder, text)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def warnings(folder: Path, text: str) -> list[str]:
    return [str(problem).replace(f"{folder}/", "") for problem in load(folder, text).warnings]


def test_a_loaded_spec_knows_its_place_name_text_and_digest(tmp_path: Path) -> None:
    text = f"tasks:\n{PROBE}"
    loaded = load(tmp_path, text)
    assert (loaded.name, loaded.path, loaded.directory) == ("case", tmp_path / "case.eval.yaml", tmp_path)
    assert loaded.text == text
    assert loaded.digest == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("file", "name"),
    [("x.eval.yaml", "x"), ("x.eval.yml", "x"), ("x.yaml", "x"), ("a.b.eval.yaml", "a.b"), ("é.eval.yaml", "é")],
)
def test_the_name_is_the_stem_without_eval(tmp_path: Path, file: str, name: str) -> None:
    assert load(tmp_path, f"tasks:\n{PROBE}", file).name == name


@pytest.mark.parametrize(
    "file", [".eval.yaml", "..eval.yaml", "...eval.yaml", "a\\b.eval.yaml", "a\nb.eval.yaml", " .eval.yaml"]
)
def test_a_file_whose_name_could_not_name_a_folder_is_refused(tmp_path: Path, file: str) -> None:
    with pytest.raises(SpecError, match="cannot name the folder"):
        load(tmp_path, f"tasks:\n{PROBE}", file)


def test_a_spec_of_another_editor_is_read(tmp_path: Path) -> None:
    loaded = load(
        tmp_path, b"\xef\xbb\xbftasks:\r\n  - name: Windows\r\n    prompt: |\r\n      a\r\n      b\r\n    expect: x\r\n"
    )
    assert loaded.spec.tasks[0].prompt == "a\nb\n"
    assert loaded.text.startswith("tasks")


def test_a_spec_that_a_program_wrote_as_json_is_read(tmp_path: Path) -> None:
    text = '{"tasks": [{"name": "Wave", "prompt": "a \\ud83c\\udf0a b", "assert": "assert True"}]}'
    assert load(tmp_path, text).spec.tasks[0].prompt == "a 🌊 b"


def test_a_linked_spec_belongs_where_the_link_is(tmp_path: Path) -> None:
    write(tmp_path, {"store/x.eval.yaml": f"skills: [./SKILL.md]\ntasks:\n{PROBE}", "here/SKILL.md": skill("here")})
    (tmp_path / "here/x.eval.yaml").symlink_to("../store/x.eval.yaml")
    loaded = load_spec(tmp_path / "here/x.eval.yaml", HOME)
    assert loaded.skills[0].name == "here"
    assert loaded.real_path == (tmp_path / "store/x.eval.yaml").resolve()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["case.eval.yaml: is empty: a spec needs at least `tasks:`"]),
        ("# nothing yet\n", ["case.eval.yaml: is empty: a spec needs at least `tasks:`"]),
        ("- a\n", ["case.eval.yaml, line 1: must hold a mapping with `tasks:`, not a list"]),
        ("just text", ["case.eval.yaml, line 1: must hold a mapping with `tasks:`, not text ('just text')"]),
        (
            "tasks:\n  - name: yes\n    prompt: Go.\n    expect: x\n",
            [
                (
                    "case.eval.yaml, line 2: tasks → yes → name: must be text, not true (a yes/no value). "
                    'YAML takes yes for something else: write "yes" in quotes'
                )
            ],
        ),
        (
            "sandbox:\n  extra_pth: []\ntasks:\n  - name: T\n    prompt: Go.\n    asert: x\n",
            [
                "case.eval.yaml, line 2: sandbox → extra_pth: there is no such key. Did you mean `extra_path`?",
                "case.eval.yaml, line 6: tasks → T → asert: there is no such key. Did you mean `assert`?",
            ],
        ),
        (
            "tasks:\n  - prompt: Go.\n    expect: x\n  - name: B\n",
            [
                "case.eval.yaml, line 2: tasks → #1 → name: is missing",
                "case.eval.yaml, line 4: tasks → B: checks nothing: give it `expect:`, `assert:` or `activates:`",
                "case.eval.yaml, line 4: tasks → B → prompt: is missing",
            ],
        ),
        (
            f"tasks:\n{PROBE}mcp:\n  a: {{type: http}}\n",
            ["case.eval.yaml, line 4: mcp → a → url: is missing: a server of type http needs it"],
        ),
        (
            'tasks:\n  - name: "\\e[31mb"\n    expect: x\n',  # what could steer a terminal is shown, not sent
            ["case.eval.yaml, line 2: tasks → \\x1b[31mb → prompt: is missing"],
        ),
    ],
)
def test_a_refusal_reads_well(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert refusal(tmp_path, text) == expected


def test_the_spec_its_scripts_histories_folders_and_skills_are_checked_in_one_go(tmp_path: Path) -> None:
    write(tmp_path, {"h.yaml": "- assistant: x\n", "bad.py": "import os\nassert (\n"})
    found = refusal(
        tmp_path,
        "skills: [./none/SKILL.md]\n"
        "sandbox:\n  extra_path: [./bin, ~/bin]\n  forbidden_files: ['(a+)+$']\n"
        "tasks:\n"
        "  - {name: A, prompt: Go., assert: ./none.py, histroy: x}\n"
        "  - {name: B, prompt: Go., assert: ./bad.py, history: ./h.yaml}\n"
        "  - {name: C, prompt: Go., history: ./none.yaml, assert: 'ls'}\n",
    )
    assert [line.split(": ")[0] for line in found] == [
        "case.eval.yaml, line 1",
        "case.eval.yaml, line 3",
        "case.eval.yaml, line 3",
        "case.eval.yaml, line 4",
        "case.eval.yaml, line 6",
        "case.eval.yaml, line 6",
        "case.eval.yaml, line 8",
        "case.eval.yaml, line 8",
        "./bad.py, line 2",
        "./h.yaml, line 1",
    ]


# -- assert ------------------------------------------------------------------------------------------------------------


def test_a_script_in_the_spec_and_one_in_a_file_are_both_read(tmp_path: Path) -> None:
    write(tmp_path, {"checks/a.py": b"\xef\xbb\xbfassert True\r\n"})
    loaded = load(
        tmp_path,
        "tasks:\n  - name: A\n    prompt: Go.\n    assert: |\n      ./checks/a.py\n"
        "  - {name: B, prompt: Go., assert: assert 1}\n  - {name: C, prompt: Go., expect: x}\n",
    )
    assert {key: (source.text, source.path) for key, source in loaded.asserts.items()} == {
        "task-001": ("assert True\r\n", tmp_path / "checks/a.py"),
        "task-002": ("assert 1", None),
    }


@pytest.mark.parametrize(
    ("script", "line", "words"),
    [
        ("|\n      test -f list.md || exit 1\n      grep -qi rye list.md", 5, "not valid Python"),
        ("|\n      import os\n\n      assert os.path.exists('a'", 7, "never closed"),
        ("test -f a", 4, "not valid Python"),
        (">\n      assert x\n      and y", 4, "`x`"),
        ("./laof.py", 4, "the script ./laof.py does not exist"),
        ("|\n      ./laof.py", 4, "the script ./laof.py does not exist"),
        ("~/a.py", 4, "the script ~/a.py does not exist"),
        ("|\n      assert 'x' in open('a').read() # see a.py", 4, "taken for the path of a script"),
        ("./folder.py", 4, "is a folder"),
        ("./latin.py", 4, "byte 0xE9 at offset 3"),
        ("'# nothing'", 4, "no statement"),
    ],
)
def test_a_script_that_could_never_judge_is_refused_with_its_task(
    tmp_path: Path, script: str, line: int, words: str
) -> None:
    write(tmp_path, {"folder.py/x": "", "latin.py": "# \u00e9\u00e9".encode("latin-1").replace(b"# ", b"#  ")})
    (message,) = refusal(tmp_path, f"tasks:\n  - name: Leaves a list\n    prompt: Go.\n    assert: {script}\n")
    assert message.startswith(f"case.eval.yaml, line {line}: tasks → Leaves a list → assert: ")
    assert words in message


def test_a_fault_in_a_script_file_names_that_file_and_the_task(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import os\nls\n"})
    (message,) = refusal(tmp_path, "tasks:\n  - {name: A, prompt: Go., assert: ./a.py}\n")
    assert message.startswith("./a.py, line 2: tasks → A → assert: uses `ls`")


def test_nothing_in_a_spec_is_run(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": f"open({str(tmp_path / 'ran')!r}, 'w')\n"})
    load(tmp_path, f"tasks:\n  - {{name: A, prompt: Go., assert: ./a.py, setup: 'touch {tmp_path}/ran'}}\n")
    assert not (tmp_path / "ran").exists()


# -- history -----------------------------------------------------------------------------------------------------------

TASK_WITH_HISTORY = "tasks:\n  - {name: Resumes, prompt: Go., expect: x, history: ./h.yaml}\n"


def test_a_planted_history_is_read_with_its_text(tmp_path: Path) -> None:
    text = "- user: Start.\n- assistant: Done.\n  shell: [{run: ls, output: a}]\n"
    write(tmp_path, {"h.yaml": text})
    history = load(tmp_path, TASK_WITH_HISTORY).histories["task-001"]
    assert history.text == text
    assert [turn.user for turn in history.turns] == ["Start.", None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- assistant: Hi\n- user: x\n", "./h.yaml, line 1: turn 1: must be a turn of the user"),
        ("- user: x\n- asistant: y\n", "./h.yaml, line 2: turn 2 → asistant: there is no such key"),
        (
            "- user: x\n- assistant: y\n  shell:\n    - {run: ls, outptu: a}\n",
            "./h.yaml, line 4: turn 2 → shell → #1 → outptu",
        ),
        ("", "./h.yaml: is empty: it needs at least one turn"),
        ("user: x", "./h.yaml, line 1: must be a list of turns, not a mapping"),
        ("- user: x\n  user: y\n", "./h.yaml, line 2: duplicate key `user`"),
        ("- user: [\n", "./h.yaml"),
        (None, "case.eval.yaml, line 2: tasks → Resumes → history: the history ./h.yaml does not exist"),
        (b"\xff\xfe- ", "case.eval.yaml, line 2: tasks → Resumes → history: the history ./h.yaml is saved as UTF-16"),
    ],
)
def test_a_history_that_cannot_be_taken_up_is_refused(tmp_path: Path, text: str | bytes | None, expected: str) -> None:
    if text is not None:
        write(tmp_path, {"h.yaml": text})
    assert refusal(tmp_path, TASK_WITH_HISTORY)[0].startswith(expected)


def test_a_slash_command_that_no_declared_skill_answers_is_warned_of(tmp_path: Path) -> None:
    write(tmp_path, {"h.yaml": "- user: /tide-table now\n- assistant: a\n- user: /other\n- assistant: b\n"})
    write(tmp_path, {"s/SKILL.md": skill()})
    found = warnings(tmp_path, f"skills: [./s/SKILL.md]\n{TASK_WITH_HISTORY}")
    assert found == ["./h.yaml, line 3: turn 3 → user: /other is no declared skill, so the agent gets it as plain text"]


# -- sandbox -----------------------------------------------------------------------------------------------------------


def test_extra_path_is_absolute_once_loaded(tmp_path: Path) -> None:
    write(tmp_path, {"bin/x": "", "sub/x": ""})
    loaded = load(tmp_path, f"sandbox: {{extra_path: [./bin, {tmp_path}/sub]}}\ntasks:\n{PROBE}")
    assert loaded.spec.sandbox.extra_path == (str(tmp_path / "bin"), str(tmp_path / "sub"))


# -- activates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["[tide-tabel]", "[Tide-table]", "['tide-table ']", "[tide-table, other]"])
def test_activates_may_only_name_declared_skills(tmp_path: Path, names: str) -> None:
    write(tmp_path, {"s/SKILL.md": skill()})
    text = f"skills: [./s/SKILL.md]\ntasks:\n  - {{name: A, prompt: Go., activates: {names}}}\n"
    (message,) = refusal(tmp_path, text)
    assert message.startswith("case.eval.yaml, line 3: tasks → A → activates → #")
    assert "Declared: tide-table" in message


def test_a_bare_agent_can_activate_nothing(tmp_path: Path) -> None:
    (message,) = refusal(tmp_path, "tasks:\n  - {name: A, prompt: Go., activates: [x]}\n")
    assert "Declared: none" in message


def test_the_check_stands_down_visibly_while_a_skill_is_not_fetched(tmp_path: Path) -> None:
    found = warnings(tmp_path, "skills: [{repo: a/b}]\ntasks:\n  - {name: A, prompt: Go., activates: [x]}\n")
    assert len(found) == 1
    assert found[0].startswith("case.eval.yaml, line 1: skills: some declared skills are fetched with git")


# -- lint --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "prompt", "warned"),
    [
        ("tide-table", "Use the tide-table skill.", True),
        ("tide-table", "Use Tide-Table.", True),
        ("tide-table", "/tide-table now", True),
        ("tide-table", "Make a tide table.", False),
        ("tide-table", "See my-tide-table and tide-tables and tide-table.md", False),
        ("pdf", "Make a pdf of it.", False),  # a plain word, hardly meant as a name
        ("pdf", "Use the pdf skill.", True),
        ("pdf", "Use `pdf`.", True),
        ("pdf", "Run /pdf on it.", True),
        ("pdf", "Look at a/pdf/b.", False),
    ],
)
def test_a_prompt_that_names_a_skill_is_warned_of(tmp_path: Path, name: str, prompt: str, warned: bool) -> None:
    write(tmp_path, {"s/SKILL.md": skill(name)})
    found = warnings(tmp_path, f"skills: [./s/SKILL.md]\ntasks:\n  - {{name: A, prompt: '{prompt}', expect: x}}\n")
    assert [message.split(": ")[1] for message in found] == (["tasks → A → prompt"] if warned else [])


def test_a_check_that_would_be_installed_with_the_skill_is_warned_of(tmp_path: Path) -> None:
    write(tmp_path, {"SKILL.md": skill(), "checks/a.py": "assert True", "h.yaml": "- user: x\n"})
    task = "tasks:\n  - {name: A, prompt: Go., assert: ./checks/a.py, history: ./h.yaml}\n"
    found = warnings(tmp_path, f"skills: [./SKILL.md]\n{task}")
    assert [message.split(": ")[1] for message in found] == ["tasks → A → assert", "tasks → A → history"]
    kept_out = "sandbox: {forbidden_files: [^checks/, '^h\\.yaml$']}\n"
    assert warnings(tmp_path, f"skills: [./SKILL.md]\n{kept_out}{task}") == []


def test_an_authored_id_and_invisible_letters_in_a_name_are_warned_of(tmp_path: Path) -> None:
    found = warnings(
        tmp_path,
        'tasks:\n  - {name: "a\\x1bb", prompt: p, expect: x, id: 7}\n  - {name: "c ", prompt: p, expect: x}\n',
    )
    assert [message.split(": ", 1)[1].replace("\\x1b", "") for message in found] == [
        "tasks → ab → id: is ignored: tasks are known by their names",
        "tasks → ab → name: holds what cannot be seen: 'ab'",
        "tasks → c → name: begins or ends with a blank, which is part of the name",
    ]


# -- the old grammar ---------------------------------------------------------------------------------------------------


def test_an_old_spec_is_refused_with_its_new_form(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, f"skill:\n  path: ./mine/SKILL.md\n  model: opus\njudge: {{backend: codex}}\ntasks:\n{PROBE}")
    assert [problem.key for problem in caught.value.problems] == ["skill", "skill → model", "judge"]
    hint = caught.value.hint or ""
    assert "skills:\n  - ./mine/SKILL.md" in hint
    assert "--model opus --judge-model codex" in hint
    assert "caliper migrate" in hint


# -- files that are none -----------------------------------------------------------------------------------------------


def test_a_missing_spec_suggests_the_one_that_is_there(tmp_path: Path) -> None:
    write(tmp_path, {"tides.eval.yaml": f"tasks:\n{PROBE}"})
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "tide.eval.yaml", HOME)
    assert caught.value.hint == f"Did you mean {tmp_path / 'tides.eval.yaml'}?"


def test_a_pipe_or_folder_in_place_of_a_spec_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.eval.yaml")
    with pytest.raises(SpecError, match="is a pipe"):
        load_spec(tmp_path / "p.eval.yaml", HOME)
    with pytest.raises(SpecError, match="is a folder"):
        load_spec(tmp_path, HOME)


def test_a_spec_reached_over_a_linked_folder_is_the_one_the_system_opens(tmp_path: Path) -> None:
    write(tmp_path, {"far/inner/x": "", "far/case.eval.yaml": f"skills: [./s/SKILL.md]\ntasks:\n{PROBE}"})
    write(tmp_path, {"far/s/SKILL.md": skill("far")})
    (tmp_path / "link").symlink_to("far/inner")
    loaded = load_spec(tmp_path / "link/../case.eval.yaml", HOME)
    assert loaded.directory == (tmp_path / "far").resolve()
    assert loaded.skills[0].name == "far"


# -- anything at all ---------------------------------------------------------------------------------------------------

SEED = b"""\
skills: [./s/SKILL.md, {repo: a/b, ref: v1}]
sandbox: {forbidden_files: ["answers/.*"], extra_path: [./s]}
mcp: {mail: {command: x, env: {A: "1"}}}
user_customizations: no
tasks:
  - &t
    name: A
    prompt: Go.
    activates: [tide-table]
    assert: |
      import os
      assert os.path
  - {<<: *t, name: "B \\ud83c\\udf0a", expect: !!str 5, history: ./h.yaml}
"""


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(SEED)),
            st.integers(0, 6),
            st.binary(max_size=3) | st.sampled_from([b"\t", b"- ", b": ", b"{", b"*t", b"\xff", b"\0", b"~"]),
        ),
        max_size=4,
    )
)
def test_a_damaged_spec_is_read_or_refused_and_nothing_else(
    tmp_path: Path, edits: list[tuple[int, int, bytes]]
) -> None:
    write(tmp_path, {"s/SKILL.md": skill(), "h.yaml": "- user: x\n"})
    data = SEED
    for place, cut, new in edits:
        data = data[:place] + new + data[place + cut :]
    if not edits:
        assert len(load(tmp_path, data).spec.tasks) == 2
    with contextlib.suppress(SpecError):
        load(tmp_path, data)
