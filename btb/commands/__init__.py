"""One file a subcommand of `btb`."""
