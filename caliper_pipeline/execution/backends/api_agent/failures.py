"""What went wrong with a request to a model, in the same words for both SDKs."""

import time
from email.utils import parsedate_to_datetime
from typing import Any

_TRANSIENT_STATUSES = (408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529)
_STATUS_OF_TYPE = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
}
"""An error in the middle of a stream has no status of its own."""
SPENT = ("insufficient_quota", "billing", "spend_limit", "credit", "quota_exceeded")
"""What a code holds when an account may not spend more. Waiting does not help."""
_TOO_LONG = ("prompt is too long", "context length", "context window", "context size", "maximum context")


class RequestFailed(Exception):
    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str = "",
        retry_after: float | None = None,
        transient: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        """The service's own word for the kind of error; else `connection`, `cut` or `context`."""
        self.retry_after = retry_after
        """Seconds that the service asks to wait."""
        self.transient = transient
        """Asking again may help."""

    def facts(self) -> dict[str, Any]:
        return {
            "message": self.message,
            "status": self.status,
            "code": self.code,
            "retry_after": self.retry_after,
        }


def cut_off(where: str) -> RequestFailed:
    return RequestFailed(f"the connection was lost {where}", code="cut", transient=True)


def failure_of(error: Exception) -> RequestFailed:
    """The failure behind an exception of an SDK or of the HTTP library below it. Raises the exception when it is of
    neither."""
    if isinstance(error, RequestFailed):
        return error
    response = getattr(error, "response", None)
    body = getattr(error, "body", None)
    name = type(error).__name__
    if response is not None or isinstance(body, dict):
        return told_failure(body, getattr(response, "status_code", None), getattr(response, "headers", None), error)
    if name in ("APIConnectionError", "APITimeoutError"):
        return RequestFailed(_chain(error), code="connection", transient=True)
    if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2"):
        return RequestFailed(_chain(error), code="cut", transient=True)
    if name in ("APIError", "APIResponseValidationError") or isinstance(error, LookupError | TypeError | ValueError):
        text = f"the service answered something else than its protocol: {type(error).__name__}: {error}"
        return RequestFailed(text[:500], code="protocol")
    raise error


def check_stream(stream: Any) -> None:
    """A wrong URL mostly leads to a web page, which holds no event and would look like a lost connection."""
    kind = str(stream.response.headers.get("content-type", ""))
    if kind.startswith("text/html"):
        raise RequestFailed(f"{stream.response.url} answered with a web page, not as the API", code="protocol")


def told_failure(body: Any, status: int | None, headers: Any = None, error: object = "") -> RequestFailed:
    """The failure that a service describes: `{"error": {…}}`, the inner object alone, or anything else."""
    told = body.get("error", body) if isinstance(body, dict) else {}
    told = told if isinstance(told, dict) else {"message": str(told)}
    details = told.get("details")
    code = (
        (_word(details.get("error_code")) if isinstance(details, dict) else "")
        or _word(told.get("code"))
        or _word(told.get("type"))
    )
    kind = _word(told.get("type"))
    if status is None or status < 400:
        status = _STATUS_OF_TYPE.get(code) or _STATUS_OF_TYPE.get(kind)
    message = told.get("message")
    text = message if isinstance(message, str) and message.strip() else str(error) or str(body)
    text = " ".join(text.split())[:1000]
    lowered = text.lower()
    if status in (400, 413) and ("request_too_large" in (kind, code) or any(words in lowered for words in _TOO_LONG)):
        return RequestFailed(text, status=status, code="context")
    spent = any(word in code for word in SPENT)
    wish = headers.get("x-should-retry") if headers is not None else None
    transient = status in _TRANSIENT_STATUSES and not spent and wish != "false"
    return RequestFailed(text, status=status, code=code, retry_after=_retry_after(headers), transient=transient)


def _retry_after(headers: Any) -> float | None:
    """Seconds, from the header in milliseconds, the one in seconds, or the one with a date."""
    if headers is None:
        return None
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name)) * unit
        except (TypeError, ValueError):
            continue
        return seconds if 0 <= seconds < float("inf") else None
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after")).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _chain(error: BaseException) -> str:
    """The exception's text with its cause's, which says what the connection failed on."""
    cause = error.__cause__
    texts = [str(error).rstrip(".") or type(error).__name__]
    while cause is not None and len(texts) < 3:
        texts.append(str(cause) or type(cause).__name__)
        cause = cause.__cause__
    return ": ".join(dict.fromkeys(texts))[:500]
