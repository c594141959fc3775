"""What a command prints counts; what it writes, lists, tests, copies or mentions does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caliper_pipeline.domain.shell_reads import shell_reads

X = "x/SKILL.md"


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("cat x/SKILL.md", [X]),
        ("cat 'x/SKILL.md' \"y/SKILL.md\"", [X, "y/SKILL.md"]),
        ("cat 'my dir/x/SKILL.md'", ["my dir/x/SKILL.md"]),
        ("cat my\\ dir/x/SKILL.md", ["my dir/x/SKILL.md"]),
        ("cat x\\SKILL.md", ["x\\SKILL.md"]),  # a backslash may part folders
        ("head -20 x/SKILL.md; tail -n 5 y/SKILL.md", [X, "y/SKILL.md"]),
        ("sed -n '1,20p' x/SKILL.md", [X]),
        ("sed -n -e '1,20p' x/SKILL.md", [X]),
        ("awk '/a/ {print $1}' x/SKILL.md", [X]),
        ("grep -n usage x/SKILL.md", [X]),
        ("grep -e usage x/SKILL.md", [X]),
        ("cat < x/SKILL.md", [X]),
        ("cat x/SKILL.md | head -5", [X]),
        ("cat x/SKILL.md 2>/dev/null", [X]),
        ("cat x/SKILL.md 2>&1 | tee log", [X]),
        ("sudo -n env A=b cat x/SKILL.md", [X]),
        ("timeout 5 /bin/cat x/SKILL.md", [X]),
        ("cd skills/x && cat SKILL.md", ["skills/x/SKILL.md"]),
        ("cd skills; cd x; cat ./SKILL.md", ["skills/x/SKILL.md"]),
        ("(cd x; cat SKILL.md)", [X]),
        ("cd ~/.claude/skills && cat x/SKILL.md", ["~/.claude/skills/x/SKILL.md"]),
        ("cd skills && cat /opt/x/SKILL.md", ["/opt/x/SKILL.md"]),
        ('F=x/SKILL.md; cat "$F"', [X]),
        ("for s in x y; do cat $s/SKILL.md; done", [X, "y/SKILL.md"]),
        ("for f in skills/*; do head -50 $f/SKILL.md; done", ["skills/*/SKILL.md"]),
        ("cat skills/*/SKILL.md", ["skills/*/SKILL.md"]),
        ("if [ -f x/SKILL.md ]; then cat x/SKILL.md; fi", [X]),
        ('echo "$(cat x/SKILL.md)"', [X]),
        ("echo `cat x/SKILL.md`", [X]),
        ("bash -lc 'cat $HOME/skills/x/SKILL.md'", ["$HOME/skills/x/SKILL.md"]),
        ("bash <<EOF\ncat x/SKILL.md\nEOF", [X]),
        ("cat x/SKILL.md && cat <<EOF > y\nq\nEOF", [X]),
        ("cat \\\n  x/SKILL.md", [X]),
        ("# a note\ncat x/SKILL.md # and one more", [X]),
    ],
)
def test_files_that_are_printed(command: str, paths: list[str]) -> None:
    assert [path for path in shell_reads(command).paths if path.endswith("SKILL.md")] == paths


@pytest.mark.parametrize(
    "command",
    [
        "cat > x/SKILL.md <<'EOF'\ncat y/SKILL.md\nEOF",
        "cat notes > x/SKILL.md",
        "echo hi >> x/SKILL.md",
        "tee x/SKILL.md < notes.txt",
        "ls x/SKILL.md",
        "[ -f x/SKILL.md ] && echo yes",
        "test -e x/SKILL.md",
        "cp x/SKILL.md y/",
        "git add x/SKILL.md && git commit -m 'add x/SKILL.md'",
        "grep -rn 'x/SKILL.md' .",
        "grep -l foo x/SKILL.md",
        "grep -q foo x/SKILL.md",
        "grep --files-with-matches foo x/SKILL.md",
        "rg --files -g 'x/SKILL.md'",
        "rg --files -g 'x/SKILL.md' | head",
        "rg -l foo x/SKILL.md | sort",
        "sed -i s/a/b/ x/SKILL.md",
        "cat x/SKILL.md | wc -l",
        "cat x/SKILL.md > copy.md",
        "cat x/SKILL.md &> copy.md",
        "text=$(cat x/SKILL.md)",
        "find . -name SKILL.md",
        "cat <<< x/SKILL.md",
        "echo 'cat x/SKILL.md'",
        "# cat x/SKILL.md",
        "apply_patch '*** x/SKILL.md'",
    ],
)
def test_files_that_are_not(command: str) -> None:
    found = shell_reads(command)
    assert not any(path.endswith(X) for path in found.paths)
    assert not found.uncertain


@pytest.mark.parametrize(
    "command",
    [
        "find . -name SKILL.md -exec cat {} +",
        "find . -name SKILL.md | xargs cat",
        "ls skills | while read s; do cat skills/$s/SKILL.md; done",
        "cat $1",
        "cat `pick`/SKILL.md",
        "cat SKILL.md",  # wherever an earlier command went
        "python3 -c \"print(open('x/SKILL.md').read())\"",
        "git show HEAD:x/SKILL.md",
        "rg '' --glob 'x/SKILL.md'",
        "grep -rn foo --include=SKILL.md skills",
        "unclosed ' quote",
        "bash script.sh",
        "while read -r line; do echo $line; done < x/SKILL.md",
    ],
)
def test_commands_whose_output_has_to_tell(command: str) -> None:
    assert shell_reads(command).uncertain


@given(st.text(alphabet="cat x/SKILL.md'\"`$(){}|&;<>\\\n*=#-", max_size=80))
def test_any_text_is_read_without_an_error(command: str) -> None:
    shell_reads(command)
