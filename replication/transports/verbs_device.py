"""RDMA verbs through pyverbs, which only this file knows; its errors become ours in one place.

pyverbs is imported when a device is first asked for: without it the module can be imported all the
same. Only reliable connections over RoCE are made, and only reads of host memory.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EACCES
from functools import cache
from importlib import import_module
from ipaddress import IPv6Address
from random import SystemRandom
from types import SimpleNamespace
from typing import Any

from replication.errors import PeerGone, TransportError
from replication.transports.verbs_handshake import Endpoint
from replication.transports.verbs_settings import VerbsSettings

MODULES = ("addr", "cq", "device", "enums", "mr", "pd", "pyverbs_error", "qp", "wr")
EVENT_FILE = "anon_inode:[infinibandevent]"
"""What /proc calls the file that a completion channel is."""

_opening = threading.Lock()


@cache
def _pyverbs() -> Any:
    try:
        return SimpleNamespace(**{name: import_module(f"pyverbs.{name}") for name in MODULES})
    except ImportError as error:
        raise TransportError(f"pyverbs can't be imported: {error}") from error


@contextmanager
def _mapped(doing: str) -> Iterator[None]:
    """Turn whatever pyverbs raises into a TransportError with its errno."""
    try:
        yield
    except _pyverbs().pyverbs_error.PyverbsError as error:
        # PyverbsUserError has no code, and "no such device" comes with -1.
        code = getattr(error, "error_code", -1)
        raise TransportError(f"can't {doing}: {error}", errno=code if code > 0 else None) from error


def device_names() -> list[str]:
    """Return the names of the RDMA devices here.

    Raises
    ------
    TransportError
        If there is no pyverbs, or the kernel knows no RDMA at all.
    """
    verbs = _pyverbs()
    with _mapped("list RDMA devices"):
        return [found.name.decode() for found in verbs.device.get_device_list()]


class Registration:
    """Memory that a device may read from and write to."""

    def __init__(self, region: Any, address: int, size_bytes: int) -> None:
        self._region = region
        self.address = address
        self.size_bytes = size_bytes
        self.local_key: int = region.lkey
        self.remote_key: int = region.rkey

    def close(self) -> None:
        """End it. May be called twice."""
        with _mapped("deregister memory"):
            self._region.close()


class QueuePair:
    """One end of a reliable connection, its completions, and the file that tells of them."""

    def __init__(self, device: "VerbsDevice") -> None:
        self._device = device
        settings, verbs = device.settings, _pyverbs()
        self._open: list[Any] = []
        try:
            with _mapped("make a queue pair"):
                self._channel, self.event_file = _channel(device.context)
                self._open.append(self._channel)
                # Each request may fail, and failures aren't silent: room for all of them.
                depth = settings.outstanding
                self._completions = verbs.cq.CQ(device.context, depth + 1, None, self._channel)
                self._open.append(self._completions)
                capacity = verbs.qp.QPCap(depth, 1, device.max_spans, 1, 0)
                kind = verbs.enums.IBV_QPT_RC
                wanted = verbs.qp.QPInitAttr(
                    qp_type=kind,
                    scq=self._completions,
                    rcq=self._completions,
                    cap=capacity,
                    sq_sig_all=0,
                )
                self._pair = verbs.qp.QP(device.domain, wanted)
                self._open.append(self._pair)
        except BaseException:
            self.close()
            raise
        psn = SystemRandom().getrandbits(24)
        number: int = self._pair.qp_num
        self.endpoint = Endpoint(number, psn, device.gid, device.mtu, device.serves_reads)

    def connect(self, remote: Endpoint) -> None:
        """Bring it to where it can read from `remote`, and serve reads."""
        device, settings, verbs = self._device, self._device.settings, _pyverbs()
        with _mapped("connect a queue pair"):
            to = verbs.addr.GID(IPv6Address(remote.gid).exploded)
            route = verbs.addr.GlobalRoute(dgid=to, sgid_index=device.gid_index, hop_limit=64)
            attributes = verbs.qp.QPAttr(port_num=settings.port)
            attributes.ah_attr = verbs.addr.AHAttr(port_num=settings.port, is_global=1, gr=route)
            attributes.qp_access_flags = verbs.enums.IBV_ACCESS_REMOTE_READ
            attributes.dest_qp_num, attributes.rq_psn = remote.number, remote.psn
            attributes.sq_psn = self.endpoint.psn
            attributes.path_mtu = min(device.mtu, remote.mtu)
            attributes.max_dest_rd_atomic = device.serves_reads
            attributes.max_rd_atomic = min(device.makes_reads, remote.reads)
            attributes.min_rnr_timer = 12
            attributes.timeout, attributes.retry_cnt = settings.ack_timeout, settings.retries
            attributes.rnr_retry = 7
            self._pair.to_rts(attributes)

    def post_read(
        self,
        number: int,
        remote: tuple[int, int],
        spans: Sequence[tuple[int, int]],
        local_key: int,
        *,
        signalled: bool,
    ) -> None:
        """Have `remote`, an address and its key, read into `spans`, addresses and lengths here."""
        verbs = _pyverbs()
        with _mapped("post a read"):
            flags = verbs.enums.IBV_SEND_SIGNALED if signalled else 0
            into = [verbs.wr.SGE(address, length, local_key) for address, length in spans]
            request = verbs.wr.SendWR(
                wr_id=number,
                opcode=verbs.enums.IBV_WR_RDMA_READ,
                num_sge=len(into),
                sg=into,
                send_flags=flags,
            )
            request.set_wr_rdma(remote[1], remote[0])
            self._pair.post_send(request)

    def completed(self) -> list[int]:
        """Return the numbers of the signalled reads that are done since the last look.

        Reads are done in the order in which they were posted, so all before one are done, too.

        Raises
        ------
        TransportError
            If one failed; PeerGone if that is because nobody answers.
        """
        with _mapped("look for completions"):
            _, found = self._completions.poll(self._device.settings.outstanding + 1)
        for one in found:
            self._check(one.status)
        return [one.wr_id for one in found]

    def _check(self, status: int) -> None:
        verbs = _pyverbs()
        if status == verbs.enums.IBV_WC_SUCCESS:
            return
        named = f"a read failed: {verbs.cq.cqe_status_to_str(status)}"
        if status in (verbs.enums.IBV_WC_RETRY_EXC_ERR, verbs.enums.IBV_WC_RNR_RETRY_EXC_ERR):
            raise PeerGone(f"{named}; the peer doesn't answer")
        denied = status == verbs.enums.IBV_WC_REM_ACCESS_ERR
        raise TransportError(named, errno=EACCES if denied else None)

    def arm(self) -> None:
        """Have the next completion make `event_file` readable."""
        with _mapped("ask for an event"):
            self._completions.req_notify()

    def take_event(self) -> None:
        """Take the event that made `event_file` readable."""
        with _mapped("take an event"):
            self._channel.get_cq_event(self._completions)

    def close(self) -> None:
        """End it; the device writes nothing for it from here on. May be called twice."""
        with _mapped("close a queue pair"):
            while self._open:
                self._open[-1].close()
                self._open.pop()


class VerbsDevice:
    """A port of an RDMA device, opened."""

    def __init__(self, name: str, settings: VerbsSettings) -> None:
        self.name, self.settings = name, settings
        verbs = _pyverbs()
        with _mapped(f"open RDMA device {name}"):
            self.context = verbs.device.Context(name=name)
        try:
            with _mapped(f"use RDMA device {name}"):
                self.domain = verbs.pd.PD(self.context)
                self._look()
        except BaseException:
            self.context.close()
            raise

    def _look(self) -> None:
        verbs, settings = _pyverbs(), self.settings
        port = self.context.query_port(settings.port)
        if port.state != verbs.enums.IBV_PORT_ACTIVE:
            raise TransportError(f"port {settings.port} of {self.name} is not up")
        if port.link_layer != verbs.enums.IBV_LINK_LAYER_ETHERNET:
            raise TransportError(f"port {settings.port} of {self.name} is not RoCE")
        able = self.context.query_device()
        self.mtu: int = port.active_mtu
        self.max_spans = min(settings.max_spans, able.max_sge, able.max_sge_rd or able.max_sge)
        self.chunk_bytes = min(settings.chunk_bytes, port.max_msg_sz)
        # One byte each in the handshake; no device comes near that.
        self.serves_reads = min(able.max_qp_rd_atom, 255)
        self.makes_reads = min(able.max_qp_init_rd_atom, 255)
        self.gid_index = self._gid_index() if settings.gid_index is None else settings.gid_index
        gid = self.context.query_gid(settings.port, self.gid_index)
        self.gid = IPv6Address(str(gid)).packed

    def _gid_index(self) -> int:
        verbs, port = _pyverbs(), self.settings.port
        found = []
        for entry in self.context.query_gid_table(1024):
            if entry.port_num == port and entry.gid_type == verbs.enums.IBV_GID_TYPE_ROCE_V2:
                address = IPv6Address(str(self.context.query_gid(port, entry.gid_index)))
                found.append((address.ipv4_mapped is None, entry.gid_index))
        if not found:
            raise TransportError(f"port {port} of {self.name} has no RoCE v2 address")
        return int(min(found)[1])

    def register(
        self, address: int, size_bytes: int, *, readable: bool, writable: bool
    ) -> Registration:
        """Let peers read memory if it is `readable`, and the device write to it if `writable`."""
        enums = _pyverbs().enums
        access = (enums.IBV_ACCESS_REMOTE_READ if readable else 0) | (
            enums.IBV_ACCESS_LOCAL_WRITE if writable else 0
        )
        with _mapped(f"register {size_bytes} bytes"):
            made = _pyverbs().mr.MR(self.domain, size_bytes, access, address=address)
        return Registration(made, address, size_bytes)

    def close(self) -> None:
        """Close the device and all that is left of it. May be called twice."""
        with _mapped(f"close RDMA device {self.name}"):
            self.context.close()


def _channel(context: Any) -> tuple[Any, int]:
    """Make a completion channel; return it and its file, which pyverbs keeps to itself."""
    with _opening:
        before = _event_files()
        channel = _pyverbs().cq.CompChannel(context)
        (file,) = _event_files() - before
    # pyverbs holds the interpreter while it waits for an event; this way it never waits.
    os.set_blocking(file, False)
    return channel, file


def _event_files() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == EVENT_FILE:
                found.add(int(name))
        except FileNotFoundError:  # the file of this very listing
            continue
    return found
