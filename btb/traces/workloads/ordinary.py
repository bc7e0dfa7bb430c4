"""Family `ordinary`: people in conversation, each behind one of a few system prompts."""

from dataclasses import dataclass

from btb.traces.workloads.base import Context, Draft
from btb.traces.workloads.chance import around, daily, pick, thinned, tokens_around, turns, zipf
from btb.traces.workloads.require import require, require_block, require_share


@dataclass(frozen=True, slots=True)
class Ordinary:
    """Parameters of `ordinary`.

    Lengths and times are lognormal: a median, and a sigma of 0.8. The window begins empty, so load
    builds up for the first few minutes.

    Parameters
    ----------
    duration_s
        Length of the window.
    chats_per_s
        Conversations that begin in a second.
    system_prompts, system_tokens
        Number of system prompts, and tokens in each. The k-th has 1/k of the first one's chats.
    turns
        Mean number of requests in a conversation (geometric).
    user_tokens, output_tokens
        Median length of a message and of an answer. Both stay in the context.
    think_s
        Median time from the end of an answer to the next message.
    token_s
        Time for each token of an answer.
    max_tokens
        A conversation ends before its context would grow past this.
    daily_swing
        Share by which the rate rises and falls over a day, as a sine.
    """

    duration_s: float = 600.0
    chats_per_s: float = 0.5
    system_prompts: int = 3
    system_tokens: int = 1_024
    turns: float = 4.0
    user_tokens: int = 120
    output_tokens: int = 250
    think_s: float = 25.0
    token_s: float = 0.02
    max_tokens: int = 16_384
    daily_swing: float = 0.0

    def __post_init__(self) -> None:
        require(self, positive="duration_s system_prompts user_tokens output_tokens think_s")
        require(self, positive="max_tokens", not_negative="chats_per_s token_s")
        require_block(self, "system_tokens")
        require_share(self, "daily_swing")
        if self.turns < 1.0:
            raise ValueError(f"turns must be at least 1, got {self.turns!r}")


SIGMA = 0.8
"""Spread of every length and time. Between that of Azure's 2023 chat prompts (p90/p50 = 2.7, which
is sigma 0.77) and of Mooncake's conversations (4.0, sigma 1.07)."""


def ordinary(parameters: Ordinary, draft: Draft) -> None:
    """Add conversations. None of them is a burst."""
    draft.end_s = parameters.duration_s
    systems = [draft.prompt(parameters.system_tokens) for _ in range(parameters.system_prompts)]
    weights = zipf(parameters.system_prompts)
    starts_s = thinned(
        lambda at_s: parameters.chats_per_s * daily(at_s, parameters.daily_swing),
        parameters.chats_per_s * (1.0 + parameters.daily_swing),
        0.0,
        parameters.duration_s,
        draft.rng,
    )
    for number, at_s in enumerate(starts_s):
        system = systems[pick(weights, draft.rng)]
        _converse(parameters, draft, at_s, system, f"chat-{number}")


def _converse(
    parameters: Ordinary, draft: Draft, at_s: float, context: Context, session: str
) -> None:
    rng = draft.rng
    for _ in range(turns(parameters.turns, rng)):
        context = draft.extend(context, tokens_around(parameters.user_tokens, SIGMA, rng))
        if context.tokens > parameters.max_tokens or at_s >= draft.end_s:
            return
        answer = tokens_around(parameters.output_tokens, SIGMA, rng)
        draft.add(at_s, context, answer, session)
        context = draft.extend(context, answer)
        at_s += answer * parameters.token_s + around(parameters.think_s, SIGMA, rng)
