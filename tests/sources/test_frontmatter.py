"""The head of a SKILL.md, in every shape that real ones have."""

import pytest

from caliper_pipeline.sources.frontmatter import FrontmatterFault, read_frontmatter

DESCRIPTION = "description: Use when asked for tides.\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"---\nname: tides\n{DESCRIPTION}---\n# T\n", "tides"),
        (f"---\r\nname: tides\r\n{DESCRIPTION}\r\n---\r\n", "tides"),
        (f"---\rname: tides\r{DESCRIPTION}\r---\r", "tides"),
        (f"---  \nname: tides\n{DESCRIPTION}---\t\n\n---\nmore\n", "tides"),
        (f"---\nname: tides\n{DESCRIPTION}---", "tides"),  # ends with the fence, no newline
        (f"---\n{DESCRIPTION}name:   tides  \n---\n", "tides"),
        (f"---\nname: 'tides'\n{DESCRIPTION}---\n", "tides"),
        (f'---\nname: "tides" # here\n{DESCRIPTION}---\n', "tides"),
        (f"---\nname: >\n  tides\n{DESCRIPTION}---\n", "tides"),
        (f"---\nname: |-\n  tides\n{DESCRIPTION}---\n", "tides"),
        (f"---\nname: Tide_Table.v2-x\n{DESCRIPTION}---\n", "Tide_Table.v2-x"),
        (f"---\n# head\nname: tides\n{DESCRIPTION}allowed-tools: [Read, 'Bash(x:*)']\n---\n", "tides"),
        (f"---\nname: tides\n{DESCRIPTION}metadata:\n  name: other\n  tags: [a]\nhooks: {{}}\n---\n", "tides"),
        ("---\n{name: tides, description: x}\n---\n", "tides"),
        (f"---\nname: 2024-01-01\n{DESCRIPTION}---\n", "2024-01-01"),
    ],
)
def test_the_name_is_found(text: str, name: str) -> None:
    found = read_frontmatter(text, "SKILL.md")
    assert found.name == name
    assert found.description
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("name: tides\ndescription: Use when: asked, e.g. 'now'", "tides"),
        ("name: 'tides'\ndescription: Use when: asked", "tides"),
        ("name: tides  # the one\ndescription: a: b", "tides"),
        ('name: "tides" # the one\ndescription: a: b', "tides"),
        ("name: tides\ndescription: @x", "tides"),
        ("name: tides\ndescription: !!python/object/apply:os.system ['x']", "tides"),
        ("name: tides\nname: tides\ndescription: x", "tides"),
        ("name: tides\n\tdescription: x", "tides"),
        ("name: tides\ndescription: x\nmetadata:\n  name: inner\nbad: a: b", "tides"),
    ],
)
def test_a_head_that_is_no_yaml_still_names_the_skill_with_a_warning(lines: str, name: str) -> None:
    found = read_frontmatter(f"---\n{lines}\n---\n", "SKILL.md")
    assert found.name == name
    assert "not valid YAML" in found.warnings[0]
    assert "strict agent" in found.warnings[0]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "no frontmatter"),
        ("# Title\n", 1, "no frontmatter"),
        ("\n---\nname: a\n---\n", 1, "blank lines"),
        ("----\nname: a\n----\n", 1, "no frontmatter"),
        (" ---\nname: a\n---\n", 1, "no frontmatter"),
        ("---\nname: a\n", 1, "never ends"),
        ("---\n---\n", 1, "no `name:`"),
        ("---\ndescription: x\n---\n", 1, "no `name:`"),
        ("---\n- name: a\n---\n", 1, "no `name:`"),
        ("---\ndescription: x\nname:\n---\n", 3, "no `name:`"),
        ("---\nname: ' '\n---\n", 2, "no `name:`"),
        ("---\nname: [a]\n---\n", 2, "no `name:`"),
        ("---\nx: 1\nname: 5\n---\n", 3, 'write "5" in quotes'),
        ("---\nname: on\n---\n", 2, 'write "on" in quotes'),
        ("---\nname:\nother: a: b\n---\n", 1, "no `name:`"),  # the look-up stays on its own line
        ("---\nname: # nothing\nother: a: b\n---\n", 1, "no `name:`"),
        ("---\nname: a\nname: b\n---\n", 1, "more than once"),
        ("---\nname: ../../evil\n---\n", 2, "cannot name a folder"),
        ("---\nname: ..\n---\n", 2, "cannot name a folder"),
        ("---\nname: .\n---\n", 2, "cannot name a folder"),
        ("---\nname: /evil\n---\n", 2, "cannot name a folder"),
        ("---\nname: a/b\n---\n", 2, "cannot name a folder"),
        ("---\nname: a\\b\n---\n", 2, "cannot name a folder"),
        ('---\nname: "a\\nb"\n---\n', 2, "cannot name a folder"),
        ('---\nname: "a\\0"\n---\n', 2, "cannot name a folder"),
        ("---\nname: tide table\n---\n", 2, "cannot name a folder"),
        ("---\nname: маrea\n---\n", 2, "cannot name a folder"),
        (f"---\nname: {'a' * 129}\n---\n", 2, "129 characters"),
    ],
)
def test_a_head_without_a_usable_name_is_refused(text: str, line: int, words: str) -> None:
    with pytest.raises(FrontmatterFault) as caught:
        read_frontmatter(text, "SKILL.md")
    assert words in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("name: a", "no description"),
        ("name: a\ndescription:", "no description"),
        ("name: a\ndescription: ' '", "no description"),
        ("name: a\ndescription: [x]", "not text"),
        ("name: a\ndescription: 5", "not text"),
        (f"name: a\ndescription: {'x' * 1025}", "longer than 1024 characters (1,025)"),
        (f"name: a\ndescription: >\n  {'x ' * 300}\n  {'y ' * 300}", "longer than 1024 characters"),
        ("name: a\ndescription: x\ndisable-model-invocation: true", "disable-model-invocation"),
    ],
)
def test_what_keeps_a_skill_from_firing_is_a_warning(lines: str, words: str) -> None:
    (warning,) = read_frontmatter(f"---\n{lines}\n---\n", "SKILL.md").warnings
    assert words in warning


def test_a_description_of_the_longest_length_is_fine() -> None:
    text = f"---\nname: a\ndescription: {'é' * 1024}\n---\n"
    assert read_frontmatter(text, "SKILL.md").warnings == ()
