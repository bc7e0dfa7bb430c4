"""Our packages have plain names, so another distribution may bring a package of the same name."""

from importlib.metadata import packages_distributions

from btb.errors import ConfigError

DISTRIBUTION = "bite-the-bullet"

PACKAGES = ("btb", "forecasting", "models", "policies", "replication")
"""What our distribution installs, and nobody else may."""


def check_packages() -> None:
    """Return if what is installed under our packages' names is ours alone.

    Raises
    ------
    ConfigError
        If another distribution installs one of them too, for then files may be mixed.
    """
    owners = packages_distributions()
    for package in PACKAGES:
        others = sorted(set(owners.get(package, ())) - {DISTRIBUTION})
        if others:
            raise ConfigError(
                f"{', '.join(others)} installs a package called {package!r} too; give btb a "
                "virtual environment of its own"
            )
