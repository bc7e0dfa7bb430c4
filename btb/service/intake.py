"""From a body to an `Arrival`: one description of the prompt, hashed here if it came as text."""

from array import array
from collections.abc import Iterator, Sequence

from xxhash import xxh3_64_intdigest

from btb.config import Limits
from btb.service.bodies import ArrivalBody, Prompt
from btb.service.errors import BadField, Location
from btb.traces.hashing import CHARS_A_TOKEN, chained, root, text_blocks, text_tokens
from forecasting.arrival import Arrival


def one_tenant(in_body: str, in_header: str, at: Location = ("body",)) -> str:
    """Return the tenant that is named in the body, the header, or both.

    Raises
    ------
    BadField
        If they name different ones.
    """
    if in_body and in_header and in_body != in_header:
        raise BadField("is not the tenant that the header X-BTB-Tenant names", *at, "tenant")
    return in_body or in_header


def make_arrival(
    body: Prompt, tenant: str, now_s: float, limits: Limits, at: Location = ("body",)
) -> Arrival:
    """Return the arrival that `body` describes, its chain as the client named it.

    Raises
    ------
    BadField
        If the prompt is described twice or not at all, is too long, or its parts don't fit.
    """
    given = [name for name in ("chain", "text", "token_ids") if getattr(body, name) is not None]
    if len(given) > 1:
        raise BadField(f"comes beside {given[0]}; give one of them", *at, given[1])
    if given and body.block_tokens is None:
        raise BadField(f"is needed beside {given[0]}", *at, "block_tokens")
    if not given and body.input_tokens is None:
        raise BadField("is needed where no chain, text or token_ids is given", *at, "input_tokens")
    block_tokens = body.block_tokens or 1
    chain, tokens = _prompt(body, block_tokens, tenant, limits, at)
    input_tokens = tokens if body.input_tokens is None else body.input_tokens
    if input_tokens < 1:
        raise BadField("must be 1 or more", *at, "input_tokens")
    if chain and input_tokens <= (len(chain) - 1) * block_tokens:
        message = f"is too few for {len(chain)} blocks of {block_tokens} tokens"
        raise BadField(message, *at, "input_tokens")
    return Arrival(
        at_s=_time(body, now_s, limits, at),
        chain=chain,
        block_tokens=block_tokens,
        input_tokens=input_tokens,
        output_tokens=body.output_tokens,
        tenant=tenant,
        session=body.session,
        request_id=body.request_id,
    )


def _prompt(
    body: Prompt, block_tokens: int, tenant: str, limits: Limits, at: Location
) -> tuple[tuple[int, ...], int]:
    """Return the chain of a prompt and its length in tokens."""
    if body.chain is not None:
        _fit(len(body.chain), limits, *at, "chain")
        return body.chain, len(body.chain) * block_tokens
    start = root(block_tokens, tenant=tenant)
    if body.text is not None:
        _fit(len(body.text) // (block_tokens * CHARS_A_TOKEN), limits, *at, "text")
        return chained(text_blocks(body.text, block_tokens), start), text_tokens(body.text)
    if body.token_ids is not None:
        _fit(len(body.token_ids) // block_tokens, limits, *at, "token_ids")
        return chained(_token_blocks(body.token_ids, block_tokens), start), len(body.token_ids)
    return (), 0


def _token_blocks(token_ids: Sequence[int], block_tokens: int) -> Iterator[int]:
    """Yield a hash of each whole block of token ids."""
    for start in range(0, len(token_ids) - block_tokens + 1, block_tokens):
        yield xxh3_64_intdigest(array("Q", token_ids[start : start + block_tokens]).tobytes())


def _fit(blocks: int, limits: Limits, *at: str | int) -> None:
    if blocks > limits.chain_blocks:
        raise BadField(f"has {blocks} blocks; at most {limits.chain_blocks} are taken", *at)


def _time(body: Prompt, now_s: float, limits: Limits, at: Location) -> float:
    if not isinstance(body, ArrivalBody) or body.at_s is None:
        return now_s
    if not now_s - limits.late_s <= body.at_s <= now_s + limits.early_s:
        raise BadField(
            f"is too far from the service's clock, now at {now_s:.3f}: at most "
            f"{limits.late_s:g} s before or {limits.early_s:g} s after; older requests are for "
            "btb train",
            *at,
            "at_s",
        )
    return body.at_s
