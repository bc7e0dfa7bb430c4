"""Lists the policies there are."""

import inspect

from btb.service.answers import PoliciesAnswer, PolicyAnswer
from policies import POLICIES


def list_policies(current: str) -> PoliciesAnswer:
    """Return the policies in the box, and `current` if it is none of them."""
    names = dict.fromkeys([*POLICIES, current])
    return PoliciesAnswer(
        policies=[
            PolicyAnswer(policy=name, summary=_summary(name), current=name == current)
            for name in names
        ]
    )


def _summary(name: str) -> str:
    """Return the first line of a policy's docstring."""
    made = POLICIES.get(name)
    if not inspect.isclass(made) and not inspect.isfunction(made):
        return ""
    return (inspect.getdoc(made) or "").partition("\n")[0]
