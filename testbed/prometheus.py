"""A Prometheus that scrapes what a test runs, with our alert rules loaded."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from testbed import binaries
from testbed.ports import free_port
from testbed.server import Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Prometheus(Server):
    """One server: `rules` are evaluated each second, over what the `targets` (HOST:PORT) of a job show."""

    def __init__(self, directory: Path, job: str, targets: Sequence[str], rules: Path) -> None:
        super().__init__("prometheus", directory)
        self.url = f"http://127.0.0.1:{free_port()}"
        self._configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": job, "static_configs": [{"targets": list(targets)}]}],
        }

    def start(self) -> None:
        """Start it and wait until it answers queries."""
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "prometheus.json"  # JSON is YAML, too
        configuration.write_text(json.dumps(self._configuration))
        self.launch(
            [
                binaries.prometheus(),
                f"--config.file={configuration}",
                f"--storage.tsdb.path={self.directory / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ]
        )
        self.wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            with _OPENER.open(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an API's answer.  Raises OSError with what Prometheus says of a bad query."""
        query = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with _OPENER.open(query, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise OSError(f"{parameters}: {error.read().decode()}") from error

    def series(self, expression: str) -> list[dict[str, Any]]:
        """What an expression comes to now: `metric` (its labels) and `value` of each series."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found
