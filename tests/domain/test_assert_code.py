"""Checks that can never pass or never fail, seen without running them."""

import pytest

from caliper_pipeline.domain.assert_code import examine_assert


@pytest.mark.parametrize(
    "code",
    [
        "assert True",
        "from pathlib import Path\nassert Path('a').exists(), 'no a'",
        "import subprocess\nsubprocess.run(['true'], check=True)",
        "raise SystemExit(0)",
        "exit(0)",
        "from checks import *\ncheck()",
        "exec(open('x').read())\nfoo()",
        "import yaml as y\nassert y.safe_load('1') == 1",
        "def check(a, *b, c=1, **d):\n    return a, b, c, d\nassert check(1)",
        "assert [x for x in range(3)] and {k: v for k, v in {}.items()} == {}",
        "with open('a') as f:\n    assert f.read()",
        "try:\n    import tomllib\nexcept ImportError as e:\n    raise e",
        "match 1:\n    case [a, *b]: assert a and b\n    case {'x': c, **rest}: assert c or rest\n    case d: assert d",
        "assert (n := 5) and n > 4",
        "import os.path\nassert os.path",
        "class A:\n    pass\nassert A",
        "assert __file__ and __name__",
        "def f():\n    global seen\n    seen = 1\nf()\nassert seen",
        "lambda q: q",
    ],
)
def test_working_checks_are_left_alone(code: str) -> None:
    assert examine_assert(code) == ()


@pytest.mark.parametrize(
    ("code", "line", "words"),
    [
        ("test -f list.md || exit 1\ngrep -qi rye list.md", 1, "shell command"),
        ("[ -f list.md ]", 1, "not valid Python"),
        ("echo hi", 1, "not valid Python"),
        ("import os\nassert os.path.exists('a'", 2, "never closed"),
        ("print 'a'", 1, "print"),
        ("return 1", 1, "outside function"),
        ("  assert True\n assert True", None, "indent"),
        ("assert True\x00", None, "null bytes"),
        ("ls -la", 1, "`ls`"),  # a subtraction, in Python
        ("true", 1, "`true`"),
        ("check.sh", 1, "`check`"),
        ("checks/loaf.py # here", 1, "`checks`"),
        ("assert Path('a').exists()", 1, "`Path`"),
        ("x = open(name)", 1, "`name`"),
        ("# later", None, "no statement"),
        ("'''later'''", None, "no statement"),
    ],
)
def test_a_check_that_could_never_do_its_work_is_refused(code: str, line: int | None, words: str) -> None:
    fault = examine_assert(code)[0]
    assert fault.fatal
    assert words in fault.message
    assert line is None or fault.line == line


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("assert (1 == 2, 'always true')", "always true"),
        ("from pathlib import Path\nPath('a').exists()", "throws the result"),
        ("x = 1\nx == 2", "throws the result"),
        ("x = 1\nnot x", "throws the result"),
        ("try:\n    unicode\nexcept NameError:\n    pass", "`unicode`"),
        ("def f():\n    return bar\nf()", "`bar`"),
        ("assert 1 == 1, got", "`got`"),
    ],
)
def test_what_is_likely_not_meant_is_a_warning(code: str, words: str) -> None:
    faults = examine_assert(code)
    assert [fault.fatal for fault in faults] == [False]
    assert words in faults[0].message


@pytest.mark.parametrize("code", ["+".join("1" * 20_000), "(" * 5_000 + ")" * 5_000, "x = " + "-" * 50_000 + "1"])
def test_a_monstrous_expression_ends_in_a_message(code: str) -> None:
    assert all(fault.message for fault in examine_assert(code))
