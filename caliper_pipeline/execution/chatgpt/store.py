"""The stored login: `chatgpt.json` in `$XDG_CONFIG_HOME/caliper` (else `~/.config/caliper`), for its owner's eyes only.

Beside it lie `host-id`, by which the service tells one machine's sign-ins from another's, and `chatgpt.lock`, which is
held while the login is changed. Readers need no lock: the file is replaced whole.
"""

import contextlib
import fcntl
import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Operator

LOGIN_FILE = "chatgpt.json"
_LOCK_FILE = "chatgpt.lock"
_HOST_FILE = "host-id"
_THREADS = threading.Lock()
_LOG_IN = "Sign in anew: caliper login chatgpt"


@dataclass(frozen=True, slots=True)
class Login:
    issuer: str
    client_id: str
    subject: str
    email: str
    """For messages; may be empty."""
    access_token: str
    refresh_token: str
    obtained_at: float
    """Seconds since the epoch, as is the next."""
    expires_at: float
    token_endpoint: str
    revocation_endpoint: str
    refused: str = ""
    """Why the service no longer takes the refresh token; it is not tried again."""

    @property
    def account(self) -> str:
        return self.email or self.subject

    def remaining(self, now: float) -> float:
        """Seconds that the access token still lasts."""
        return self.expires_at - now

    def __repr__(self) -> str:
        return f"Login(client_id={self.client_id!r}, expires_at={self.expires_at!r})"


def folder_of(operator: Operator) -> Path:
    named = operator.environment.get("XDG_CONFIG_HOME", "")
    base = Path(named) if named.startswith("/") else operator.home / ".config"  # the standard ignores relative ones
    return base / "caliper"


def load(operator: Operator) -> Login | None:
    """The stored login. `None`: there is none. Raises `CannotRun` when the file cannot be read."""
    path = folder_of(operator) / LOGIN_FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CannotRun(f"The ChatGPT login in {path} cannot be read: {error.strerror}.") from error
    try:
        return _login(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise CannotRun(f"The ChatGPT login in {path} is damaged.", hint=_LOG_IN) from error


def save(operator: Operator, login: Login) -> None:
    """Replace the stored login in one step; durable when this returns."""
    _write(_made_folder(operator) / LOGIN_FILE, json.dumps(asdict(login), indent=1).encode())


def delete(operator: Operator) -> None:
    path = folder_of(operator) / LOGIN_FILE
    with _trouble("remove", path):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(operator: Operator) -> Iterator[None]:
    """Nobody else changes the login meanwhile, neither a thread nor another process."""
    path = _made_folder(operator) / _LOCK_FILE
    with _THREADS:
        with _trouble("lock", path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _trouble("lock", path):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def host_id(operator: Operator) -> str:
    """The id of this machine, made on first use. It is no secret."""
    path = _made_folder(operator) / _HOST_FILE
    with contextlib.suppress(OSError, ValueError):
        return f"urn:uuid:{uuid.UUID(path.read_text(encoding='ascii').strip().removeprefix('urn:uuid:'))}"
    made = f"urn:uuid:{uuid.uuid4()}"
    _write(path, made.encode() + b"\n")
    return made


def _login(data: Any) -> Login:
    if not isinstance(data, Mapping):
        raise ValueError("no object")
    found: dict[str, Any] = {}
    for field in fields(Login):
        value = data.get(field.name, "" if field.name == "refused" else None)
        if field.type is float and isinstance(value, int | float) and not isinstance(value, bool):
            found[field.name] = float(value)
        elif field.type is str and isinstance(value, str):
            found[field.name] = value
        else:
            raise ValueError(field.name)
    return Login(**found)


def _made_folder(operator: Operator) -> Path:
    folder = folder_of(operator)
    with _trouble("make", folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _write(path: Path, data: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.urandom(6).hex()}.new")
    with _trouble("write", path):
        try:
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        names = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(names)
        finally:
            os.close(names)


@contextlib.contextmanager
def _trouble(doing: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotRun(
            f"Cannot {doing} {path}: {error.strerror or error}",
            hint="The ChatGPT login is kept there; XDG_CONFIG_HOME names another folder for it.",
        ) from error
