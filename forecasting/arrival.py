"""The noun that everything begins with: one request, as the router sees it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request at the moment it reaches the router.

    Parameters
    ----------
    at_s
        Seconds on the trace's or the service's own clock. Zero is its start.
    chain
        Cumulative block hashes: the k-th names the first k blocks and everything before them, so
        an equal hash means an equal prefix. Only whole blocks that can be shared are in it, or the
        last, partial one too where the trace has it. Empty where nothing is known of the prompt.
    block_tokens
        Tokens in one block of `chain`.
    input_tokens, output_tokens
        Prompt and answer length. An output length is known in a trace only; live it is a guess.
    tenant
        Whose request this is. Prefixes of two tenants never meet: readers seed the chain with it.
    session
        Conversation or agent that sent it, where the log says so.
    """

    at_s: float
    chain: tuple[int, ...]
    block_tokens: int
    input_tokens: int
    output_tokens: int = 1
    tenant: str = ""
    session: str = ""
    request_id: str = ""
