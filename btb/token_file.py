"""The secret that those who come from elsewhere have to know."""

from pathlib import Path

from btb.errors import ConfigError

MIN_TOKEN = 16
"""Characters of a token, at least."""


def read_token_file(path: str) -> str:
    """Return the token in a file.

    Raises
    ------
    ConfigError
        If the file can't be read or holds no fit token.
    """
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"token file {path}: can't be read: {error}") from error
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"token file {path}: expected one line of {MIN_TOKEN} or more ASCII characters "
            "without spaces"
        )
    return token
