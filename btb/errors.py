"""What can go wrong before any work starts, in words for the person who typed the command.

UserError
    TraceError      a trace can't be read, or too many of its rows are bad
    ConfigError     an option, a setting or a name that isn't valid

The command prints the message and exits with 2. Anything else that comes out is a bug.
"""


class UserError(Exception):
    """What went wrong, where, and what was expected, in one sentence."""


class TraceError(UserError):
    """A trace can't be read. The message names file, line and field."""


class ConfigError(UserError):
    """A name or a setting isn't valid. The message names the nearest valid one."""
