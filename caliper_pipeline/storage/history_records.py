"""From the files of `.caliper/records` to their tables. The files only grow, so only what was added is read."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from caliper_pipeline.storage.files import json_bytes
from caliper_pipeline.storage.history_rows import Row
from caliper_pipeline.storage.history_writer import column_types, insert
from caliper_pipeline.storage.records import RECORD_TYPES, Acknowledgement, Alert, Label, Record, Records

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def record_sizes(records: Records) -> dict[str, int]:
    """Kind → length of its file; 0 when there is none."""
    sizes = {}
    for kind in RECORD_TYPES:
        try:
            sizes[kind.stem] = records.file_of(kind).stat().st_size
        except OSError:
            sizes[kind.stem] = 0
    return sizes


def records_read(con: "DuckDBPyConnection") -> Mapping[str, int]:
    """Kind → how much of its file the tables hold."""
    return dict(con.execute("SELECT kind, bytes_read FROM record_files").fetchall())


def take_records(con: "DuckDBPyConnection", records: Records) -> int:
    """Puts what is new in the files into the tables. Gives how many records. Raises `StorageError`."""
    read, sizes, types, taken = records_read(con), record_sizes(records), column_types(con), 0
    for kind in RECORD_TYPES:
        before = read.get(kind.stem, 0)
        if sizes[kind.stem] == before:
            continue
        if sizes[kind.stem] < before:  # not the file that was read: perhaps restored from an older copy
            con.execute(f"DELETE FROM {kind.stem}")
            before = 0
        found = list(records.read_from(kind, before))
        behind = found[-1][1] if found else before
        rows = [_row(record) for record, _ in found]
        if kind is Alert:  # the first of each key
            rows = list({row["alert_key"]: row for row in reversed(rows)}.values())[::-1]
        insert(con, kind.stem, rows, types[kind.stem], new_by="alert_key" if kind is Alert else None)
        con.execute("DELETE FROM record_files WHERE kind = $1", [kind.stem])
        con.execute("INSERT INTO record_files VALUES ($1, $2)", [kind.stem, behind])
        taken += len(found) or behind != read.get(kind.stem, 0)
    return taken


def _row(record: Record) -> Row:
    match record:
        case Label():
            return {
                "run_id": record.run_id,
                "task_id": record.task_id,
                "task_name": record.task_name,
                "attempt": record.attempt,
                "passed": record.passed,
                "labelled_by": record.labelled_by,
                "labelled_utc": record.labelled_at,
                "note": record.note,
            }
        case Acknowledgement():
            return {
                "alert_key": record.alert_key,
                "series_key": record.series_key,
                "task_name": record.task_name,
                "run_id": record.run_id,
                "acknowledged_by": record.acknowledged_by,
                "acknowledged_utc": record.acknowledged_at,
                "reason": record.reason,
                "new_baseline": record.new_baseline,
            }
        case Alert():
            return {
                "alert_key": record.key,
                "raised_utc": record.raised_at,
                "kind": record.kind,
                "series_key": record.series_key,
                "spec": record.spec,
                "task_name": record.task_name,
                "run_id": record.run_id,
                "message": record.message,
                "details": json_bytes(dict(record.details)).decode(),
            }
