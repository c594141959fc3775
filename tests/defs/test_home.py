"""Dagster's home, its launcher, the owners of runs, and the server's manners."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from caliper_pipeline.defs import partitions, server
from caliper_pipeline.defs.home import dagster_home, open_instance, prepare_home
from caliper_pipeline.defs.owner import HOST_TAG, PID_TAG, STARTED_TAG, owner_is_gone, owner_tags


def test_the_home_is_the_projects_unless_it_is_named(tmp_path: Path) -> None:
    assert dagster_home(tmp_path, {}) == tmp_path / ".caliper" / "dagster"
    assert dagster_home(tmp_path, {"DAGSTER_HOME": "/else"}) == Path("/else")


def test_a_home_we_make_has_no_telemetry_and_no_sign_up(tmp_path: Path) -> None:
    prepare_home(tmp_path / "home")
    config = yaml.safe_load((tmp_path / "home" / "dagster.yaml").read_text(encoding="utf-8"))
    assert config["telemetry"] == config["nux"] == {"enabled": False}


def test_a_home_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    prepare_home(tmp_path)
    assert not (tmp_path / "dagster.yaml").exists()


def test_many_may_open_a_new_home_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    program = (
        "import pathlib, sys; from caliper_pipeline.defs.home import open_instance;"
        "from caliper_pipeline.defs.partitions import add_keys;"
        "add_keys(open_instance(pathlib.Path(sys.argv[1])), tasks=[f't{n}' for n in range(50)])"
    )
    crowd = [subprocess.Popen([sys.executable, "-c", program, tmp_path / "home"]) for _ in range(3)]
    assert [process.wait() for process in crowd] == [0, 0, 0]
    with open_instance(tmp_path / "home") as instance:
        assert len(instance.get_dynamic_partitions("caliper_task")) == 50


def test_keys_are_added_by_many_threads_without_a_quarrel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    with open_instance(tmp_path / "home") as instance:
        failed: list[BaseException] = []

        def add(number: int) -> None:
            try:
                partitions.add_keys(instance, tasks=[f"t{n % 7}" for n in range(number, number + 9)])
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert sorted(instance.get_dynamic_partitions("caliper_task")) == [f"t{n}" for n in range(7)]


def test_an_owner_is_known_by_more_than_its_pid() -> None:
    own = owner_tags()
    assert not owner_is_gone(own)
    assert owner_is_gone({**own, STARTED_TAG: "1"})
    assert not owner_is_gone({**own, HOST_TAG: "elsewhere", STARTED_TAG: "1"})
    assert not owner_is_gone({})


def test_an_owner_that_ended_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert owner_is_gone({**owner_tags(), PID_TAG: str(child.pid)})


def test_the_daemon_can_tell_that_a_recorder_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster import DagsterRunStatus, job, op
    from dagster._core.launcher.base import WorkerStatus

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))

    @op
    def nothing() -> None: ...

    @job
    def idle() -> None:
        nothing()

    with open_instance(tmp_path / "home") as instance:
        dead = {**owner_tags(), STARTED_TAG: "1"}
        runs = [
            instance.create_run_for_job(idle, tags=tags, status=DagsterRunStatus.STARTED)
            for tags in (dead, owner_tags())
        ]
        launcher = instance.run_launcher
        assert launcher.supports_check_run_worker_health
        found = [launcher.check_run_worker_health(run).status for run in runs]
        assert found == [WorkerStatus.NOT_FOUND, WorkerStatus.RUNNING]
        assert [launcher.terminate(run.run_id) for run in runs] == [False, True]
        assert instance.get_run_by_id(runs[1].run_id).status is DagsterRunStatus.CANCELING  # type: ignore[union-attr]


def test_a_taken_port_is_said_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert server.main(["--root", str(tmp_path), "--port", str(port)]) == 2
    assert f"port {port} of 127.0.0.1 is taken" in capsys.readouterr().out
    assert not (tmp_path / ".caliper").exists()


def test_the_server_listens_at_loopback_unless_told_otherwise() -> None:
    from caliper_pipeline.interfaces.ui_command import ui

    assert {option.name: option.default for option in ui.params}["host"] == "127.0.0.1"
    assert server.command("127.0.0.1", 3000, Path("w"))[-4:] == ["-h", "127.0.0.1", "-p", "3000"]


def test_the_home_is_read_without_dagster() -> None:
    program = "import sys, caliper_pipeline.defs.server; assert 'dagster' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], env=dict(os.environ), check=False).returncode == 0


def test_storing_events_relies_on_what_this_dagster_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from caliper_pipeline.defs import storage_hold

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    make = getattr(storage_hold.sqlite_event_log, storage_hold.MAKER)
    with open_instance(tmp_path / "home") as instance:
        with storage_hold.kept_open(instance, "none"):
            assert getattr(storage_hold.sqlite_event_log, storage_hold.MAKER) is not make
            partitions.add_keys(instance, tasks=["a"])
        assert getattr(storage_hold.sqlite_event_log, storage_hold.MAKER) is make
        assert instance.get_dynamic_partitions("caliper_task") == ["a"]
