"""What a snapshot keeps of a workdir, and what comes back. An agent may have made anything in it."""

import io
import os
import random
import socket
import stat
import tarfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.execution.workdir import restore_workdir, snapshot_workdir

LIMIT = 1_000_000


# Bytes paths are the point of some of these tests.
# ruff: noqa: PTH102, PTH103, PTH115, PTH118, PTH120, PTH123, PTH211


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def again(tmp_path: Path) -> Path:
    folder = tmp_path / "again"
    folder.mkdir()
    return folder


def tree(root: Path) -> dict[bytes, object]:
    """Everything below a folder: relative name → kind, mode, content."""
    found: dict[bytes, object] = {}
    for path in root.rglob("*"):
        name = os.fsencode(path.relative_to(root))
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", mode)
        else:
            found[name] = ("file", mode, path.read_bytes(), int(path.stat().st_mtime))
    return found


def test_a_workdir_comes_back_as_it_was(tmp_path: Path, work: Path, again: Path) -> None:
    (work / "a" / "empty").mkdir(parents=True)
    (work / "a" / "report.md").write_text("Überraschung\n", encoding="utf-8")
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o750)
    (work / "locked").mkdir()
    (work / "locked" / "file").write_bytes(os.urandom(70_000))
    (work / "locked").chmod(0o555)
    (work / "link").symlink_to("a/report.md")
    (work / "a" / "up").symlink_to("../run.sh")
    (work / "a" / "dir").symlink_to("../a")
    (work / "nowhere").symlink_to("not-there")
    (work / ".hidden").write_text("")
    os.utime(work / "run.sh", (10**9, 10**9))
    before = tree(work)
    kept = snapshot_workdir(work, tmp_path / "w.tar", LIMIT)
    assert (kept.files, kept.left_out, kept.unreadable) == (8, 0, 0)
    back = restore_workdir(tmp_path / "w.tar", again)
    assert (back.files, back.refused) == (8, ())
    assert tree(again) == before


@pytest.mark.parametrize(
    "name",
    [
        b"new\nline",
        b"\xff\xfe not utf-8",
        "ünï☃".encode(),
        b" spaces ",
        b"-rf",
        b"\\back\\slash",
        b"tab\there",
        b"x" * 255,
        b"#*?[]'\"$`",
        b"100%=",
    ],
)
def test_any_name_survives(tmp_path: Path, work: Path, again: Path, name: bytes) -> None:
    root = os.fsencode(work)
    os.mkdir(root + b"/" + name)
    with open(root + b"/" + name + b"/" + name, "wb") as file:
        file.write(b"content")
    os.symlink(name, root + b"/l")
    assert snapshot_workdir(work, tmp_path / "w.tar", LIMIT).files == 2
    assert restore_workdir(tmp_path / "w.tar", again).refused == ()
    assert tree(again) == tree(work)


names = st.binary(min_size=1, max_size=40).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"0"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    entries=st.dictionaries(
        st.lists(names.filter(lambda name: name not in (b".", b"..")), min_size=1, max_size=4).map(b"/".join),
        st.binary(max_size=2000),
        max_size=8,
    )
)
def test_any_tree_survives(tmp_path_factory: pytest.TempPathFactory, entries: dict[bytes, bytes]) -> None:
    top = tmp_path_factory.mktemp("tree")
    for folder in ("work", "again"):
        (top / folder).mkdir()
    for name, content in entries.items():
        path = os.path.join(os.fsencode(top / "work"), name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(content)
        except OSError:  # a file already stands where a folder is wanted
            continue
    kept = snapshot_workdir(top / "work", top / "w.tar", LIMIT)
    if kept.files:
        assert restore_workdir(top / "w.tar", top / "again").files == kept.files
        assert tree(top / "again") == tree(top / "work")


def test_an_empty_workdir_leaves_no_tar(tmp_path: Path, work: Path) -> None:
    assert snapshot_workdir(work, tmp_path / "w.tar", LIMIT).files == 0
    assert not (tmp_path / "w.tar").exists()


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path, work: Path, again: Path) -> None:
    for number in random.sample(range(50), 50):
        (work / f"f{number}").write_text(str(number))
        os.utime(work / f"f{number}", (number, number))
    snapshot_workdir(work, tmp_path / "1.tar", 100)
    for path in sorted(work.iterdir(), reverse=True):
        (again / path.name).write_bytes(path.read_bytes())
        os.utime(again / path.name, (path.stat().st_mtime,) * 2)
    snapshot_workdir(again, tmp_path / "2.tar", 100)
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()


def test_what_does_not_fit_is_left_out_and_counted(tmp_path: Path, work: Path) -> None:
    (work / "deep").mkdir()
    (work / "deep" / "small").write_bytes(b"x" * 10)
    (work / "deep" / "too-much").write_bytes(b"x" * 11)
    (work / "a-big").write_bytes(b"x" * 101)
    (work / "b-fits").write_bytes(b"x" * 90)
    kept = snapshot_workdir(work, tmp_path / "w.tar", 100)
    assert (kept.files, kept.bytes, kept.left_out) == (2, 100, 2)
    with tarfile.open(tmp_path / "w.tar") as tar:
        assert tar.getnames() == ["b-fits", "deep", "deep/small"]


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path, work: Path) -> None:
    with (work / "huge").open("wb") as file:
        file.truncate(10**12)
    (work / "small").write_text("x")
    began = time.monotonic()
    kept = snapshot_workdir(work, tmp_path / "w.tar", LIMIT)
    assert (kept.files, kept.left_out) == (1, 1)
    assert time.monotonic() - began < 1


def test_too_many_files_are_counted_not_kept(tmp_path: Path, work: Path) -> None:
    for number in range(30):
        (work / f"{number:02d}").write_text("x")
    kept = snapshot_workdir(work, tmp_path / "w.tar", LIMIT, max_entries=10)
    assert (kept.files, kept.left_out) == (10, 20)
    with tarfile.open(tmp_path / "w.tar") as tar:
        assert len(tar.getnames()) == 10


def test_links_out_are_kept_as_links_and_not_followed(tmp_path: Path, work: Path, again: Path) -> None:
    (tmp_path / "secret").write_text("s" * 1000)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "file").write_text("s")
    for name, target in (("abs", tmp_path / "secret"), ("rel", "../secret"), ("dir", "../secrets"), ("etc", "/etc")):
        (work / name).symlink_to(target)
    (work / "fine").write_text("x")
    kept = snapshot_workdir(work, tmp_path / "w.tar", LIMIT)
    assert (kept.files, kept.bytes) == (5, 1)
    back = restore_workdir(tmp_path / "w.tar", again)
    assert set(back.refused) == {"abs", "rel", "dir", "etc"}
    assert set(tree(again)) == {b"fine"}


def test_a_way_out_over_several_links_is_refused(tmp_path: Path, work: Path, again: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (work / "d").mkdir()
    (work / "d" / "here").symlink_to(".")
    (work / "d" / "up").symlink_to("here/../..")
    (work / "out").symlink_to("d/up/../secret")
    (work / "loop").symlink_to("loop")
    snapshot_workdir(work, tmp_path / "w.tar", LIMIT)
    restore_workdir(tmp_path / "w.tar", again)
    root = str(again.resolve())
    assert all(os.path.realpath(path).startswith(root) for path in again.rglob("*"))


def test_pipes_and_sockets_are_passed_over(tmp_path: Path, work: Path) -> None:
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(work / "s"))
        kept = snapshot_workdir(work, tmp_path / "w.tar", LIMIT)
    assert (kept.files, kept.left_out, kept.unreadable) == (0, 0, 0)


def test_a_workdir_that_changes_meanwhile_still_gives_a_snapshot(tmp_path: Path, work: Path, again: Path) -> None:
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for number in range(20):
                path = work / f"f{number}"
                path.write_bytes(b"x" * random.randrange(200_000))
                (work / f"f{random.randrange(20)}").unlink(missing_ok=True)
                path = work / f"d{number}"
                path.mkdir(exist_ok=True)
                path.rmdir()

    writer = threading.Thread(target=churn)
    writer.start()
    try:
        for number in range(15):
            snapshot_workdir(work, tmp_path / f"{number}.tar", LIMIT)
    finally:
        stop.set()
        writer.join()
    for path in tmp_path.glob("*.tar"):
        with tarfile.open(path) as tar:
            assert all(info.name[0] in "fd" for info in tar)


def test_twenty_megabytes_take_less_than_a_second(tmp_path: Path, work: Path) -> None:
    for number in range(1000):
        (work / f"{number}").write_bytes(os.urandom(20_000))
    began = time.thread_time()
    assert snapshot_workdir(work, tmp_path / "w.tar", 20 * 1024 * 1024).files == 1000
    assert time.thread_time() - began < 1


def forged(path: Path, *infos: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:") as tar:
        for info, content in infos:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


@pytest.mark.parametrize("name", ["../out", "/tmp/out-of-it", "a/../../out", "./x", "a//b", "."])
def test_a_forged_name_is_refused(tmp_path: Path, again: Path, name: str) -> None:
    tar = forged(tmp_path / "f.tar", (entry(name), b"x"))
    assert restore_workdir(tar, again).refused == (name,)
    assert list(again.iterdir()) == []


def test_nothing_is_written_through_a_forged_link(tmp_path: Path, again: Path) -> None:
    (tmp_path / "outside").mkdir()
    tar = forged(
        tmp_path / "f.tar",
        (entry("way", tarfile.SYMTYPE, str(tmp_path / "outside")), b""),
        (entry("way/file"), b"x"),
        (entry("hop", tarfile.SYMTYPE, "../outside"), b""),
        (entry("hop/link", tarfile.SYMTYPE, "x"), b""),
    )
    with pytest.raises(StorageError):  # a folder already stands where the first link is to be
        restore_workdir(tar, again)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_link_below_a_forged_link_is_refused(tmp_path: Path, again: Path) -> None:
    (tmp_path / "outside").mkdir()
    tar = forged(
        tmp_path / "f.tar",
        (entry("hop", tarfile.SYMTYPE, "../outside"), b""),
        (entry("hop/link", tarfile.SYMTYPE, "x"), b""),
    )
    assert set(restore_workdir(tar, again).refused) == {"hop", "hop/link"}
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE])
def test_devices_and_hard_links_are_refused(tmp_path: Path, again: Path, kind: bytes) -> None:
    tar = forged(tmp_path / "f.tar", (entry("odd", kind, "/etc/passwd"), b""))
    assert restore_workdir(tar, again).refused == ("odd",)


def test_special_mode_bits_do_not_come_back(tmp_path: Path, again: Path) -> None:
    restore_workdir(forged(tmp_path / "f.tar", (entry("root", mode=0o6755), b"x")), again)
    assert stat.S_IMODE((again / "root").stat().st_mode) == 0o755


@pytest.mark.parametrize("damage", ["missing", "text", "cut"])
def test_a_damaged_snapshot_is_said(tmp_path: Path, work: Path, again: Path, damage: str) -> None:
    (work / "file").write_bytes(os.urandom(50_000))
    snapshot_workdir(work, tmp_path / "w.tar", LIMIT)
    whole = (tmp_path / "w.tar").read_bytes()
    (tmp_path / "w.tar").write_bytes({"text": b"no tar at all" * 100, "cut": whole[:20_000]}.get(damage, b""))
    if damage == "missing":
        (tmp_path / "w.tar").unlink()
    with pytest.raises(StorageError, match="cannot be brought back"):
        restore_workdir(tmp_path / "w.tar", again)
