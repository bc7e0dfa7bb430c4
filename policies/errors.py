"""What can go wrong when a policy is made."""


class PolicyError(ValueError):
    """No such policy or parameter. The message names the nearest valid one."""
