"""Names and values as the text of SVG pictures."""

from unicodedata import category


def text_of(text: str | None) -> str:
    """A text on one line, without the characters that XML does not have."""
    return "".join("\ufffd" if category(c) in ("Cc", "Cs") or c in "\ufffe\uffff" else c for c in str(text))


def short_text(text: str, longest: int) -> str:
    """A text of so many characters at most."""
    return text_of(text if len(text) <= longest else text[: longest - 1] + "…")
