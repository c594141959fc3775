"""Small folders of files for the tests."""

from pathlib import Path


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Make files below a folder; gives the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def skill(name: str = "tide-table", description: str = "Use when asked for tides.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n\n# {name}\n"
