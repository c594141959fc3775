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
GATED = """\
tasks:
  One:
    - steps: [{run: echo x >> flag}, {say: Flagged.}]
  Two:
    - steps: [{run: "until [ -e GATE ]; do sleep 0.05; done"}]
"""
"""The second task goes on when the gate is there."""


def lay_out(root: Path, *, name: str = "mail", spec: str = SPEC, script: str = SCRIPT) -> Path:
    (root / "SKILL.md").write_text(SKILL, encoding="utf-8")
    path = root / f"{name}.eval.yaml"
    path.write_text(spec, encoding="utf-8")
    (root / f"{name}.script.yaml").write_text(script.replace("GATE", str(root / "gate")), encoding="utf-8")
    return path
