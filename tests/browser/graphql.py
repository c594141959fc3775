"""The web server's own interface, for what a test arranges and does not look at."""

import json
import time
import urllib.request
from dataclasses import dataclass
from typing import Any

ENDED = ("SUCCESS", "FAILURE", "CANCELED")


@dataclass(frozen=True)
class Server:
    url: str

    def ask(self, query: str, **variables: Any) -> Any:
        request = urllib.request.Request(
            f"{self.url}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            told = json.load(answer)
        assert "errors" not in told, told["errors"]
        [value] = told["data"].values()
        return value

    def evaluate(self, **config: Any) -> str:
        """Launch an evaluation; gives the id of Dagster's run."""
        asked = {
            "selector": {
                "repositoryLocationName": "caliper",
                "repositoryName": "__repository__",
                "pipelineName": "evaluate",
            },
            "runConfigData": {"ops": {"eval_runs": {"config": config}}},
            "mode": "default",
        }
        told = self.ask(
            "mutation($p: ExecutionParams!) { launchPipelineExecution(executionParams: $p) {"
            " __typename ... on LaunchRunSuccess { run { runId } } } }",
            p=asked,
        )
        assert told["__typename"] == "LaunchRunSuccess", told
        return str(told["run"]["runId"])

    def backfill(self, partitions: list[str]) -> str:
        """Launch the attempts and verdicts of these partitions; gives the backfill's id."""
        told = self.ask(
            "mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {"
            " __typename ... on LaunchBackfillSuccess { backfillId } } }",
            p={"partitionNames": partitions, "assetSelection": [{"path": ["attempts"]}, {"path": ["verdicts"]}]},
        )
        return str(told["backfillId"])

    def run(self, run_id: str) -> dict[str, Any]:
        told: dict[str, Any] = self.ask(
            "query($r: ID!) { runOrError(runId: $r) { ... on Run {"
            " status tags { key value } stats { ... on RunStatsSnapshot { materializations } } } } }",
            r=run_id,
        )
        return told

    def wait_for_run(self, run_id: str, status: str, *, materializations: int = 0, seconds: float = 180) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            run = self.run(run_id)
            if run["status"] == status and run["stats"].get("materializations", 0) >= materializations:
                return
            assert run["status"] not in ENDED or run["status"] == status, run
            time.sleep(0.3)
        raise AssertionError(f"not {status} after {seconds} s")

    def wait_for_backfill(self, backfill_id: str, *, seconds: float = 240) -> list[dict[str, Any]]:
        """Its runs, once it is completed."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            told = self.ask(
                "query($b: String!) { partitionBackfillOrError(backfillId: $b) { ... on PartitionBackfill {"
                " status runs(limit: 20) { status tags { key value } } } } }",
                b=backfill_id,
            )
            if told["status"] == "COMPLETED_SUCCESS":
                runs: list[dict[str, Any]] = told["runs"]
                return runs
            assert told["status"] in ("REQUESTED",), told
            time.sleep(1)
        raise AssertionError(f"not completed after {seconds} s")
