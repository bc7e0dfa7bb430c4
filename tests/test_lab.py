"""What of the lab can be tested without booting it."""

import gzip
import lzma
import struct
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from btb.cli import app
from btb.errors import UserError
from btb.lab import debian, guest, initramfs, kernel, qemu

MACHINE = qemu.Machine(
    kernel=Path("/cache/vmlinux"),
    initrd=Path("/cache/initrd"),
    script=Path("/scratch/command"),
    status=Path("/scratch/status"),
    memory_mib=1024,
    cpus=2,
)


def invoke(*arguments: str) -> UserError:
    """Return what the command refuses with."""
    error = CliRunner().invoke(app, list(arguments)).exception
    assert isinstance(error, UserError)
    return error


def test_an_unknown_lab_is_refused_with_those_that_are_known() -> None:
    assert str(invoke("lab", "cuda", "--", "true")) == "no lab is called 'cuda'; known are rdma"


def test_an_unknown_accelerator_is_refused_before_anything_is_done() -> None:
    error = invoke("lab", "rdma", "--accel", "hax", "--", "true")
    assert str(error) == "--accel: 'hax' is none of auto, kvm, tcg"


def test_a_lab_needs_a_command() -> None:
    result = CliRunner().invoke(app, ["lab", "rdma"])
    assert result.exit_code == 2
    assert "COMMAND" in result.output


def test_missing_packages_are_named_with_what_they_are_for_and_how_to_get_them() -> None:
    refused = debian.refusal(["busybox-static", "python3-pyverbs"])
    assert "python3-pyverbs (verbs from Python 3.11)" in refused
    assert "--install" in refused
    assert refused.endswith("apt-get install busybox-static python3-pyverbs")


def test_a_package_that_was_removed_is_missing() -> None:
    listed = "".join(f"{package} ii \n" for package in debian.NEEDED)
    assert debian.missing(listed) == []
    assert debian.missing(listed.replace("iproute2 ii", "iproute2 rc")) == ["iproute2"]
    assert debian.missing("") == list(debian.NEEDED)


def test_the_guest_has_this_machines_files_for_reading_only_and_no_network() -> None:
    line = qemu.command_line(MACHINE, "tcg")
    shared = [argument for argument in line if "path=/" in argument]
    assert len(shared) == 1
    assert "readonly=on" in shared[0].split(",")
    assert line[line.index("-nic") + 1] == "none"
    assert not {"-drive", "-hda", "-netdev"} & set(line)


@pytest.mark.parametrize("accelerator", ["kvm", "tcg"])
def test_the_guest_is_told_its_script_and_the_clock_is_emulateds_only(accelerator: str) -> None:
    line = qemu.command_line(MACHINE, accelerator)
    told = line[line.index("-append") + 1].split()
    assert "lab_script=/scratch/command" in told
    assert ("tsc=unstable" in told) == (accelerator == "tcg")


def test_kvm_is_tried_only_where_it_may_work() -> None:
    able, unable = "flags\t\t: fpu svm\n", "flags\t\t: fpu svmx\n"
    usable, absent = Path("/dev/null"), Path("/no/such/kvm")
    assert qemu.accelerators("auto", kvm=usable, cpuinfo=able) == ["kvm", "tcg"]
    assert qemu.accelerators("auto", kvm=usable, cpuinfo=unable) == ["tcg"]
    assert qemu.accelerators("auto", kvm=absent, cpuinfo=able) == ["tcg"]
    assert qemu.accelerators("kvm", kvm=absent, cpuinfo=unable) == ["kvm"]


@pytest.mark.parametrize(
    ("status", "code"), [("", None), ("@started\n", None), ("@started\r\n@ended 124\r\n", 124)]
)
def test_the_exit_status_is_what_the_guest_reports(status: str, code: int | None) -> None:
    assert qemu.exit_status(status) == code


def test_the_initramfs_holds_busybox_modules_in_order_and_the_first_process() -> None:
    entries = initramfs.contents(b"busybox", {"b": b"1", "a": b"2"}, guest.INIT)
    held = {entry.path: entry for entry in entries}
    assert list(held) == [
        *("bin", "bin/busybox", "init", "modules"),
        *("modules/order", "modules/b.ko", "modules/a.ko"),
    ]
    assert held["modules/order"].content == b"b\na\n"
    assert held["init"].mode & 0o111


def test_the_archive_is_read_back_by_another_reader(tmp_path: Path) -> None:
    busybox = Path("/bin/busybox")
    reader = [busybox, "cpio"] if busybox.exists() else ["cpio"]
    entries = initramfs.contents(b"12345", {"a": b"module"}, "#!/bin/sh\n")
    try:
        subprocess.run([*reader, "-i"], input=initramfs.archive(entries), cwd=tmp_path, check=True)
    except FileNotFoundError:
        pytest.skip("neither busybox nor cpio is installed")
    for entry in entries:
        path = tmp_path / entry.path
        assert path.stat().st_mode == entry.mode
        assert path.is_dir() or path.read_bytes() == entry.content


def test_a_module_that_the_kernel_lacks_is_named() -> None:
    with pytest.raises(UserError, match="no module rdma_rxe"):
        kernel.load_order({}, ["rdma_rxe"])
    with pytest.raises(UserError, match="no module udp_tunnel"):
        kernel.load_order({"rdma_rxe": b"\0depends=udp-tunnel\0"}, ["rdma_rxe"])


def bz_image(payload: bytes) -> bytes:
    """Make a bzImage with two sectors of setup code, and the payload 64 bytes after it."""
    header = bytearray(3 * 512)
    header[kernel.SETUP_SECTORS] = 2
    struct.pack_into("<II", header, kernel.PAYLOAD_OFFSET, 64, len(payload))
    return bytes(header) + bytes(64) + payload + b"what follows"


SIZE = struct.pack("<I", 9)
"""The unpacked size, which ends a payload."""


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress], ids=["xz", "gzip"])
def test_the_image_in_a_kernel_is_found_however_it_is_packed(pack: object) -> None:
    assert callable(pack)
    image = b"\x7fELFimage"
    assert kernel.elf_image(bz_image(pack(image) + SIZE)) == image


@pytest.mark.parametrize(
    ("payload", "reason"),
    [(b"LZ4 packed", "isn't known"), (lzma.compress(b"script") + SIZE, "holds no ELF")],
)
def test_a_kernel_that_can_not_be_entered_is_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        kernel.elf_image(bz_image(payload))


def test_the_script_keeps_arguments_whole_and_passes_few_settings_on() -> None:
    environment = {"PATH": "/opt/bin", "BTB_X": "it's", "TOKEN": "secret", "PYTHONPATH": "/x"}
    script = guest.script(["echo", "a b", "$HOME"], Path("/my work"), environment)
    assert script.endswith("cd '/my work'\nexec echo 'a b' '$HOME'\n")
    assert "secret" not in script
    assert "export BTB_REQUIRE_RDMA=1\n" in script
    assert f"export PYTHONPATH={guest.PYTHON_FOLDER}\n" in script
    exported = [line for line in script.splitlines() if line.startswith("export BTB_X=")]
    shown = subprocess.run(
        ["bash", "-c", f'{exported[0]}\nprintf %s "$BTB_X"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown == "it's"


def test_the_guests_scripts_are_well_formed() -> None:
    for script in (guest.INIT, guest.script(["true"], Path("/"), {})):
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)
