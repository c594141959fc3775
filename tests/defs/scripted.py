"""Small projects whose agent is a script."""

from pathlib import Path

SKILL = "---\nname: triage\ndescription: Sorts mail.\n---\nSort it.\n"
SPEC = """\
skills: [./SKILL.md]
tasks:
  - name: One
    prompt: Go.
    assert: open("flag").read()
    activates: [triage]
  - name: Two
    prompt: Go.
    assert: open("flag").read()
"""
SCRIPT = """\
tasks:
  One:
    - steps: [{skill: triage}, {run: echo x >> flag}, {say: Flagged.}]
  Two:
    full:
      - steps: [{say: I did not.}]
    ablated:
      - steps: [{run: echo x >> flag}, {say: Flagged.}]
"""
SLOW = """\
tasks:
  One:
    - steps: [{run: echo x >> flag}, {say: Flagged.}]
  Two:
    - steps: [{wait: 60}]
"""


def lay_out(root: Path, *, name: str = "mail", spec: str = SPEC, script: str = SCRIPT) -> Path:
    (root / "SKILL.md").write_text(SKILL, encoding="utf-8")
    path = root / f"{name}.eval.yaml"
    path.write_text(spec, encoding="utf-8")
    (root / f"{name}.script.yaml").write_text(script, encoding="utf-8")
    return path
