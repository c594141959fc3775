"""How an agent's command was installed, judged by where it really lies, and what updates that very installation.

Nothing here asks for more rights than the person has: where a folder is not theirs to write to, the command is shown
and not run.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from caliper_pipeline.execution.backends.hermes_binary import has_mcp, python_script

_OWN_FOLDERS = {".pnpm": "pnpm", "pnpm": "pnpm", ".bun": "bun", "yarn": "yarn"}
_ADDS = {"pnpm": ("pnpm", "add", "-g"), "bun": ("bun", "add", "-g"), "yarn": ("yarn", "global", "add")}


@dataclass(frozen=True, slots=True)
class Installation:
    way: str
    """In a word or two: `npm`, `brew`, `pip`, `native`, …"""
    update: tuple[str, ...] | None
    """What brings this installation up to date. `None`: nothing that could simply be run."""
    by_hand: str = ""
    """What a person does instead."""


def installation(binary: str, package: str, *, python: bool) -> Installation:
    """Of the command at that path, which belongs to that package."""
    real = Path(os.path.realpath(binary))
    parts = real.parts
    for folder, flags in (("Cellar", ()), ("Caskroom", ("--cask",))):
        if folder in parts[:-1]:
            return Installation("brew", ("brew", "upgrade", *flags, parts[parts.index(folder) + 1]))
    if any(part.endswith(".app") for part in parts):
        return Installation("app", None, "Update the app it belongs to.")
    if python:
        return _of_python(binary, package)
    if "node_modules" in parts:
        return _of_node(parts, package)
    return Installation("native", (binary, "update"))


def on_path(name: str, path: str) -> Iterator[str]:
    """Every command of that name, in the order in which they are found; one that several names lead to, once."""
    seen: set[str] = set()
    for folder in path.split(os.pathsep):
        place = os.path.join(folder or ".", name)  # noqa: PTH118 - an empty entry means the working directory
        real = os.path.realpath(place)
        if real not in seen and Path(place).is_file() and os.access(place, os.X_OK):
            seen.add(real)
            yield place


def _of_node(parts: tuple[str, ...], package: str) -> Installation:
    newest = f"{package}@latest"
    before = parts[: parts.index("node_modules")]
    manager = next((name for part, name in _OWN_FOLDERS.items() if part in before), None)
    if manager is not None:
        return Installation(manager, (*_ADDS[manager], newest))
    folder = Path(*before)
    if folder.name != "lib":
        # Somebody's project: its manifest says which version it wants.
        return Installation(f"npm, in {folder}", None, f"npm install --prefix {folder} {newest}")
    prefix = folder.parent
    own = prefix / "bin" / "npm"
    command = (str(own) if own.exists() else "npm", "install", "-g", "--prefix", str(prefix), newest)
    return _if_writable("npm", folder / "node_modules", command)


def _of_python(binary: str, package: str) -> Installation:
    script = python_script(binary)
    if script is None or "/" not in script.interpreter:
        return Installation("native", (binary, "update"))
    environment = Path(script.interpreter).parent.parent
    if "pipx" in environment.parts:
        return Installation("pipx", ("pipx", "upgrade", package))
    if "uv" in environment.parts and "tools" in environment.parts:
        return Installation("uv", ("uv", "tool", "upgrade", package))
    name = package.replace("-", "_")
    for packages in environment.glob("lib/python3*/site-packages"):
        found = next(packages.glob(f"{name}-*.dist-info"), None)
        if found is not None and (packages / "pip").is_dir() and not (found / "direct_url.json").exists():
            wanted = f"{package}[mcp]" if has_mcp(binary) else package
            return _if_writable("pip", packages, (script.interpreter, "-m", "pip", "install", "--upgrade", wanted))
    return Installation("native", (binary, "update"))


def _if_writable(way: str, folder: Path, command: tuple[str, ...]) -> Installation:
    if os.access(folder, os.W_OK):
        return Installation(way, command)
    return Installation(way, None, f"{folder} is not yours to write to. Its owner runs: {' '.join(command)}")
