"""The page on caliper.yaml is true: its example loads, and it names every key there is."""

import re
from pathlib import Path

from caliper_pipeline.domain.project import EnvironmentRules, Limits, ProjectConfig
from caliper_pipeline.sources.project_file import load_project

PAGE = Path(__file__).parents[2] / "docs" / "caliper-yaml.md"


def test_the_example_loads_and_shows_the_defaults(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    (tmp_path / "caliper.yaml").write_text(example.group(1), encoding="utf-8")
    shown, default = load_project(tmp_path), ProjectConfig()
    assert shown.limits == default.limits
    for key in ("specs", "model", "k", "workers", "timeout_seconds"):
        assert getattr(shown, key) == getattr(default, key)


def test_every_key_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    keys = {*ProjectConfig.model_fields, *Limits.model_fields, *EnvironmentRules.model_fields}
    assert not [key for key in keys if f"{key}:" not in text]
