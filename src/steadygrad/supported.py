"""Which torch this library runs with, checked before anything else is imported.

A torch that is missing or too old is an ImportError that says what to install, instead of whatever would fail first. A
newer one is let through: it may well work, and if it does not `untested` says so beside the error.
"""

from __future__ import annotations

TESTED = "2.13"
"""The versions that the tests ran with, 2.13.0 to be exact. Keep it the same as in pyproject.toml."""
INSTALL = f"Install it with: pip install 'torch=={TESTED}.*'"


def version_of(text: str) -> tuple[int, int]:
    """(2, 13) of "2.13.0+cpu".

    >>> version_of("2.13.0+cpu"), version_of("2.6.0a0")
    ((2, 13), (2, 6))
    """
    major, minor = text.split(".")[:2]
    return int(major), int("".join(digit for digit in minor if digit.isdigit()))


def untested(error: Exception) -> ImportError:
    """The error with which this library fails to import, and that the torch at hand may be why."""
    return ImportError(
        f"steadygrad was tested with torch {TESTED} and cannot be imported with torch {torch.__version__}: {error}. {INSTALL}"
    )


try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(f"steadygrad needs torch {TESTED}, and no torch is installed here. {INSTALL}") from None

if version_of(torch.__version__) < version_of(TESTED):
    raise ImportError(f"steadygrad needs torch {TESTED}; this is torch {torch.__version__}. {INSTALL}")
