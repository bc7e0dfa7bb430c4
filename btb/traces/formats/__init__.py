"""The log formats that can be read. One file and one line here make a new one."""

from collections.abc import Mapping

from btb.traces.format import Format
from btb.traces.formats.aiperf import Aiperf
from btb.traces.formats.art import Art
from btb.traces.formats.azure import Azure
from btb.traces.formats.bailian import Bailian
from btb.traces.formats.btb import Btb
from btb.traces.formats.burstgpt import Burstgpt
from btb.traces.formats.dynamo import Dynamo
from btb.traces.formats.kv_cache_tester import KvCacheTester
from btb.traces.formats.litellm import Litellm
from btb.traces.formats.lmcache import Lmcache
from btb.traces.formats.mooncake import Mooncake
from btb.traces.formats.otel import Otel
from btb.traces.formats.ragpulse import Ragpulse

FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        Btb(),
        Dynamo(),
        KvCacheTester(),
        Bailian(),
        Art(),
        Ragpulse(),
        Lmcache(),
        Azure(),
        Burstgpt(),
        Litellm(),
        Otel(),
        Mooncake(),
        Aiperf(),
    )
}
"""All formats by name. Where a file's first rows fit several, the first of them is taken."""
