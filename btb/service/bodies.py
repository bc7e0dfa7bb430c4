"""What clients send: request bodies, checked field by field."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic import WithJsonSchema as Shown
from pydantic_core import PydanticCustomError

from btb.service.hashes import parse_hash

MAX_TOKENS = 2**40
MAX_NAME = 256


def _numbers(what: str, parse: Callable[[object], int | None]) -> BeforeValidator:
    """Return a check of a whole list: item by item takes ten times as long for a long chain."""

    def check(given: object) -> tuple[int, ...]:
        if not isinstance(given, list):
            raise PydanticCustomError("list", f"expected a list of {what}")
        if set(map(type, given)) <= {int} and (not given or 0 <= min(given) <= max(given) < 2**64):
            return tuple(given)
        found = []
        for index, item in enumerate(given):
            number = parse(item)
            if number is None:
                raise PydanticCustomError("item", f"item {index}: expected {what}")
            found.append(number)
        return tuple(found)

    return BeforeValidator(check)


_HASH = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, {"type": "string"}]}
_TOKEN = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}
Hashes = Annotated[
    tuple[int, ...],
    _numbers("64-bit hashes, as whole numbers or strings like '0x1f'", parse_hash),
    Shown({"type": "array", "items": _HASH}),
]
TokenIds = Annotated[
    tuple[int, ...],
    _numbers("token ids, whole numbers of 0 or more", lambda _: None),
    Shown({"type": "array", "items": _TOKEN}),
]
Name = Annotated[str, Field(max_length=MAX_NAME)]
Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS, strict=True)]
Seconds = Annotated[float, Field(ge=0.0, le=1e12, allow_inf_nan=False, strict=True)]


class Body(BaseModel):
    """A body; a field that isn't known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Prompt(Body):
    """A request, by its prompt: a chain of block hashes, or text or token ids to be hashed here.

    Only hashes are kept. Where nothing is known of the prompt, `input_tokens` alone.
    """

    chain: Hashes | None = None
    text: str | None = None
    token_ids: TokenIds | None = None
    block_tokens: Annotated[int, Field(ge=1, le=2**20, strict=True)] | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens = 1
    tenant: Name = ""
    session: Name = ""
    request_id: Name = ""


class ArrivalBody(Prompt):
    """A request that has come; `at_s` is when, by the service's clock, and now by default."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"chain": ["0x1f", "0x2e"], "block_tokens": 512, "input_tokens": 1100}]
        }
    )
    at_s: Seconds | None = None


class ArrivalsBody(Body):
    """Several requests that have come, in any order."""

    arrivals: list[ArrivalBody]


def _one_or_many(given: Any) -> Literal["one", "many"]:
    return "many" if isinstance(given, dict) and "arrivals" in given else "one"


AnyArrivals = Annotated[
    Annotated[ArrivalBody, Tag("one")] | Annotated[ArrivalsBody, Tag("many")],
    Discriminator(_one_or_many),
]
"""One arrival, or `{"arrivals": [...]}`."""


class RouteBody(Prompt):
    """A request that is to be routed now. With `dry_run` it is not counted as one that came."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"chain": [31, 46], "block_tokens": 512, "input_tokens": 1100}]
        }
    )
    dry_run: bool = False
    forecast: bool = True


class OutcomeBody(Body):
    """What came of a routed request, or of copies.

    `ttft_s` is from the arrival at the router to the first token; send it with `finished` false
    when the first token comes, and again with `finished` true at the end; or all at once.
    `copies_done` names copies of a route's answer that have landed.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"request_id": "r1", "replica": "a", "ttft_s": 0.21, "hit_tokens": 1024}]
        }
    )
    request_id: Name = ""
    replica: Name = ""
    ttft_s: Seconds | None = None
    hit_tokens: Tokens | None = None
    finished: bool = True
    copies_done: Annotated[list[Name], Field(max_length=1_000)] = []
    tenant: Name = ""


class ReplicaBody(Body):
    """A replica, and what it says of itself; everything may be left out."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"running": 3, "waiting": 0, "setup": "70b_h100x4"}]}
    )
    running: Annotated[int, Field(ge=0, le=10**9, strict=True)] | None = None
    waiting: Annotated[int, Field(ge=0, le=10**9, strict=True)] | None = None
    free_bytes: Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)] | None = None
    setup: Name = ""
