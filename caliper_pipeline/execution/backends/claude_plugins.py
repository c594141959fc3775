"""The operator's Claude Code plugins, in the home of an attempt that loads customizations.

A plugin loads when its settings enable it, when it is registered as installed for the user, and when its marketplace
is known with the manifest that lists it. Measured on 2.1.197: with those three files, and the installation copied and
registered at its new place, it loads without any look at the network. From a marketplace that is a folder of this
machine it is loaded where it lies in that folder, whatever is installed. One whose files or marketplace are missing
would make the CLI fetch it, so it is left out and recorded as missing.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.claude_home import json_bytes, read_object
from caliper_pipeline.execution.backends.home_files import copy_folder, write_private

FOLDER = "plugins"
_MANIFEST = Path(".claude-plugin", "marketplace.json")
_PLUGIN = Path(".claude-plugin", "plugin.json")
_ID = re.compile(r"[\w-][\w.-]*@[\w-][\w.-]*")


@dataclass(frozen=True, slots=True)
class Plugin:
    """One that is enabled and installed for the user."""

    id: str
    """`name@marketplace`."""
    entry: Mapping[str, Any]
    """As it is registered."""
    installation: Path
    marketplace: Mapping[str, Any]
    """As it is known; empty: not at all."""

    @property
    def name(self) -> str:
        return self.id.partition("@")[0]

    @property
    def marketplace_name(self) -> str:
        return self.id.partition("@")[2]

    @property
    def manifest(self) -> Path | None:
        """The file of the marketplace that lists its plugins."""
        place = self.marketplace.get("installLocation")
        if not isinstance(place, str):
            return None
        path = Path(place) / _MANIFEST if Path(place).is_dir() else Path(place)
        return path if path.is_file() else None

    @property
    def place_in_marketplace(self) -> Path | None:
        """Where it lies in the folder of its marketplace. `None`: it is loaded from its installation."""
        source = self.marketplace.get("source")
        if self.manifest is None or not isinstance(source, dict) or source.get("source") != "directory":
            return None
        listed = read_object(self.manifest).get("plugins")
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict) and entry.get("name") == self.name and isinstance(entry.get("source"), str):
                place = Path(entry["source"])
                return None if place.is_absolute() or ".." in place.parts else place
        return None

    @property
    def folder(self) -> Path:
        """What the CLI loads."""
        place = self.place_in_marketplace
        return self.installation if place is None else Path(self.marketplace["installLocation"], place)

    @property
    def missing(self) -> bool:
        return not self.folder.is_dir() or self.manifest is None


def find_plugins(source: Path, settings: Mapping[str, Any]) -> list[Plugin]:
    """Those that the operator's own CLI would load. Raises `CannotRun` for a registry that cannot be read."""
    enabled = settings.get("enabledPlugins", {})
    if not isinstance(enabled, dict):
        raise _malformed(source / "settings.json", "`enabledPlugins` is no mapping")
    wanted = sorted(name for name, on in enabled.items() if on is True)
    if not wanted:
        return []
    path = source / FOLDER / "installed_plugins.json"
    registry = _registry(path)
    known = read_object(source / FOLDER / "known_marketplaces.json")
    found = []
    for name in wanted:
        if not _ID.fullmatch(name):
            raise _malformed(source / "settings.json", f"{name!r} in `enabledPlugins` is no name@marketplace")
        entry = _user_entry(path, name, registry.get(name))
        if entry is not None:
            marketplace = known.get(name.partition("@")[2])
            place = Path(entry["installPath"])
            found.append(Plugin(name, entry, place, marketplace if isinstance(marketplace, dict) else {}))
    return found


def seed_plugins(plugins: Sequence[Plugin], target: Path) -> dict[str, Any]:
    """Copy them into the configuration folder; what the settings have to say of them."""
    present = [plugin for plugin in plugins if not plugin.missing]
    if not present:
        return {}
    installed: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for plugin in present:
        market = target / FOLDER / "marketplaces" / plugin.marketplace_name
        inside = plugin.place_in_marketplace
        cache = target / FOLDER / "cache" / plugin.marketplace_name / plugin.name / plugin.installation.name
        place = cache if inside is None else market / inside
        copy_folder(plugin.folder, place)
        installed[plugin.id] = [{**plugin.entry, "scope": "user", "installPath": str(place)}]
        assert plugin.manifest is not None
        write_private(market / _MANIFEST, plugin.manifest.read_bytes())
        known[plugin.marketplace_name] = {**_moved(plugin.marketplace, market), "installLocation": str(market)}
    write_private(target / FOLDER / "installed_plugins.json", json_bytes({"version": 2, "plugins": installed}))
    write_private(target / FOLDER / "known_marketplaces.json", json_bytes(known))
    return {"enabledPlugins": {plugin.id: True for plugin in present}}


def plugin_names(plugins: Sequence[Plugin]) -> Iterator[str]:
    """What is recorded of them: each, and the skills it brings."""
    for plugin in plugins:
        if plugin.missing:
            yield f"plugin:{plugin.id} (missing)"
            continue
        yield f"plugin:{plugin.id}"
        yield from (f"skill:{plugin.name}:{name}" for name in _skills(plugin.folder))


def _skills(folder: Path) -> Iterator[str]:
    listed = read_object(folder / _PLUGIN).get("skills", [])
    more = [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else []
    for place in (folder / "skills", *(folder / name for name in more if isinstance(name, str))):
        inside = sorted(place.iterdir()) if place.is_dir() else ()
        yield from (skill.name for skill in (place, *inside) if (skill / "SKILL.md").is_file())


def _registry(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise _malformed(path, str(error)) from error
    plugins = data.get("plugins") if isinstance(data, dict) else None
    if not isinstance(plugins, dict):
        raise _malformed(path, "it holds no `plugins` mapping")
    return plugins


def _user_entry(path: Path, name: str, value: Any) -> Mapping[str, Any] | None:
    """Its registration for the user. `None`: it has none. Older registries held one mapping instead of a list."""
    for entry in value if isinstance(value, list) else [] if value is None else [value]:
        if not isinstance(entry, dict):
            raise _malformed(path, f"{name} is registered as {entry!r:.80}")
        if entry.get("scope", "user") == "user":
            if not isinstance(entry.get("installPath"), str):
                raise _malformed(path, f"{name} is registered without `installPath`")
            return entry
    return None


def _moved(marketplace: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """A marketplace that is a folder of the operator's is now the copy."""
    source = marketplace.get("source")
    if isinstance(source, dict) and source.get("source") == "directory":
        return {**marketplace, "source": {**source, "path": str(place)}}
    return dict(marketplace)


def _malformed(path: Path, why: str) -> CannotRun:
    return CannotRun(
        f"The plugins of Claude Code cannot be loaded: {path}: {why}.",
        hint="Repair the file (`claude plugin list` tells whether the CLI can read it), or run with "
        "--no-user-customizations.",
    )
