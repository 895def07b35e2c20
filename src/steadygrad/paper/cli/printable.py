"""What comes from outside, such as the name of a file, must not command the terminal that shows it."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with every control character, and every byte that is no UTF-8, as Python writes it; line breaks and tabs stay.

    Escape sequences from a file's name could else recolour, overwrite or answer for the terminal.

    >>> printable("a\x1b[31mb\n")
    'a\\x1b[31mb\n'
    """
    return "".join(letter if letter.isprintable() or letter in "\n\t" else escaped(letter) for letter in text)


def escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode() if not "\ud800" <= letter <= "\udfff" else f"\\u{ord(letter):04x}"
