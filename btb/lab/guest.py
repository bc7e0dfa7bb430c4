"""What runs in the guest: its first process, and the script around the command."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join, quote

from btb.lab.debian import PYVERBS

MODULES = (
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "overlay",
    "veth",
    "sch_netem",
    "crc32_generic",
    "ib_uverbs",
    "rdma_rxe",
)
"""What the guest's kernel has to have; their dependencies come on their own."""

ROOT_TAG = "hostroot"
"""Name under which QEMU offers this machine's files."""

STARTED = "@started"
"""Written to the second serial port when the guest's first process runs."""

ENDED = "@ended"
"""Written there with the command's exit status."""

INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /proc /sys /dev /host /scratch /root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1
stty -F /dev/ttyS0 -opost
echo {STARTED} >/dev/ttyS1
for module in $(cat /modules/order); do
  insmod /modules/$module.ko || echo "lab: can't load $module"
done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 {ROOT_TAG} /host
mount -t tmpfs -o size=80% scratch /scratch
mkdir /scratch/upper /scratch/work
mount -t overlay -o lowerdir=/host,upperdir=/scratch/upper,workdir=/scratch/work overlay /root \\
  || echo "lab: can't mount the host's files"
mount -t proc proc /root/proc
mount -t sysfs sysfs /root/sys
mount -t devtmpfs dev /root/dev
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts devpts /root/dev/pts
mount -t tmpfs shm /root/dev/shm
mount -t tmpfs run /root/run
ln -sf /proc/self/fd /root/dev/fd
hostname btb-lab
ip link set lo up
ulimit -l unlimited
chroot /root /bin/bash "$lab_script" </dev/null
status=$?
echo "{ENDED} $status" >/dev/ttyS1
sleep 0.1
poweroff -f
"""
"""The host's files are the lower layer of an overlay: what is written is gone at the end. The
kernel hands `lab_script` of its command line on in the environment."""

DEVICES = """\
ip link add ve0 type veth peer name ve1
for end in 0 1; do
  ip link set ve$end mtu 4200 address 02:00:00:00:00:0$((end + 1)) up
  ip address add 10.77.0.$((end + 1))/24 dev ve$end
  echo 1 >/proc/sys/net/ipv4/conf/ve$end/accept_local
  echo 0 >/proc/sys/net/ipv4/conf/ve$end/rp_filter
done
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
# The kernel hands packets for its own addresses to lo. These rules send them over the cable.
ip rule add pref 1 iif ve0 lookup local
ip rule add pref 2 iif ve1 lookup local
ip rule add pref 3 oif ve0 lookup 101
ip rule add pref 4 oif ve1 lookup 102
ip rule add pref 5 lookup local
ip rule del pref 0
ip route add 10.77.0.2 dev ve0 src 10.77.0.1 table 101
ip route add 10.77.0.1 dev ve1 src 10.77.0.2 table 102
ip neighbour add 10.77.0.2 lladdr 02:00:00:00:00:02 dev ve0 nud permanent
ip neighbour add 10.77.0.1 lladdr 02:00:00:00:00:01 dev ve1 nud permanent
rdma link add rxe0 type rxe netdev ve0
rdma link add rxe1 type rxe netdev ve1
"""
"""Two soft-RoCE devices, joined by a cable of the kernel's that can be cut or made lossy. Both are
in one network namespace: in Linux 6.1, rxe knows no other."""

PYTHON_FOLDER = "/run/btb-lab/python"
"""Goes on the guest's Python path and holds pyverbs only, none of Debian's other packages."""


def script(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Return a bash script that makes the devices, and then becomes `command` in `folder`."""
    exported = "".join(
        f"export {name}={quote(value)}\n" for name, value in sorted(passed_on(environment).items())
    )
    return (
        f"set -e\nulimit -l unlimited\n{exported}{DEVICES}"
        f"mkdir -p {PYTHON_FOLDER}\nln -s {PYVERBS} {PYTHON_FOLDER}/pyverbs\n"
        f"cd {quote(str(folder))}\nexec {join(command)}\n"
    )


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the command gets of `environment`: what it needs to run, and BTB_* settings.

    In the lab there is a device, so tests that need one may not be skipped there.

    Examples
    --------
    >>> passed_on({"HOME": "/root", "SECRET": "x", "BTB_LEVEL": "3"})["BTB_LEVEL"]
    '3'
    >>> sorted(passed_on({"HOME": "/root", "SECRET": "x"}))
    ['BTB_REQUIRE_RDMA', 'HOME', 'PATH', 'PYTHONPATH']
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name in {"HOME", "LANG", "LC_ALL", "PATH", "TERM"} or name.startswith("BTB_")
    }
    path = f"{kept.get('PATH', '/usr/local/bin')}:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"BTB_REQUIRE_RDMA": "1"} | kept | {"PATH": path, "PYTHONPATH": PYTHON_FOLDER}
