"""`caliper.yaml`: where it is found, and what it says."""

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from caliper_pipeline.domain.authored import findings_of
from caliper_pipeline.domain.errors import SpecError
from caliper_pipeline.domain.project import ProjectConfig
from caliper_pipeline.sources.placing import Placer, by_line
from caliper_pipeline.sources.text_file import read_text, refused
from caliper_pipeline.sources.yaml_tree import read_tree

PROJECT_FILE = "caliper.yaml"
STORE_FOLDER = ".caliper"
_LARGEST = 1024**2


def load_project(root: Path) -> ProjectConfig:
    """The configuration of the project at a folder; all defaults without a file. Raises `SpecError`."""
    path = root / PROJECT_FILE
    if not os.path.lexists(path):
        misnamed = root / "caliper.yml"
        if os.path.lexists(misnamed):
            raise refused(str(misnamed), f"is not read: call it {PROJECT_FILE}")
        return ProjectConfig()
    shown = str(path)
    tree = read_tree(read_text(path, shown, limit=_LARGEST).text, shown)
    if tree is None:
        return ProjectConfig()
    try:
        return ProjectConfig.model_validate(tree.data())
    except ValidationError as error:
        raise SpecError(by_line(Placer(shown, tree).problems(findings_of(error)))) from None


def find_project_root(cwd: Path) -> Path:
    """The project that a folder belongs to: the nearest folder upwards that holds `.caliper/` or `caliper.yaml`.

    Never one above the git repository around `cwd`: what lies there belongs to something else. Where there is none, the
    repository's top, or `cwd` itself outside of any.
    """
    folders = list(_upwards(cwd))
    for folder in folders:
        # Unlike Path's own these are False, not an error, where it may not look.
        if os.path.isdir(folder / STORE_FOLDER) or os.path.isfile(folder / PROJECT_FILE):  # noqa: PTH112, PTH113
            return folder
    return folders[-1] if _is_repository(folders[-1]) else folders[0]


def _upwards(cwd: Path) -> Iterator[Path]:
    here = Path(os.path.abspath(cwd))  # noqa: PTH100  as typed: a link in the way is not followed upwards
    for folder in (here, *here.parents):
        yield folder
        if _is_repository(folder):
            return


def _is_repository(folder: Path) -> bool:
    return os.path.exists(folder / ".git")  # noqa: PTH110  a file in worktrees; False where it may not look
