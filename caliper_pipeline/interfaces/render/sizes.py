"""Sizes of files as they are shown."""

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size_text(number: int) -> str:
    """`812 B`, `4.1 MB`: powers of 1000."""
    value = float(number)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            return f"{number} B" if unit == "B" else f"{value:.1f} {unit}" if value < 99.95 else f"{value:.0f} {unit}"
        value /= 1000
    return f"{number} B"
