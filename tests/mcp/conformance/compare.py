"""Compares the checks that failed in runs of the conformance suite with those that are expected to.

    compare.py EXPECTED SIDE RESULTS...

EXPECTED has lines `side: scenario: check` below comments with the reasons. A check that fails without being listed, and one that is listed
and does not fail in any run, is an error.
"""

import json
import re
import sys
from pathlib import Path

expected_file, side, *results = sys.argv[1:]
lines = (line.strip() for line in Path(expected_file).read_text().splitlines())
entries = (tuple(line.split(": ")) for line in lines if line and not line.startswith("#"))
expected = {(scenario, check) for found, scenario, check in entries if found == side}

failed, count = {}, 0
for directory in map(Path, results):
    files = list(directory.glob("**/checks.json"))
    assert files, f"no scenario has run: {directory}"
    for file in files:
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", str(file.parent.relative_to(directory)))
        scenario = name.removeprefix("server-") if side == "server" else name
        checks = json.loads(file.read_text())
        assert checks, f"nothing was checked: {scenario}"
        count += len(checks)
        for check in checks:
            if check["status"] in ("FAILURE", "WARNING"):
                failed[scenario, check["id"]] = check.get("errorMessage") or check.get("description")

unexpected = sorted(failed.keys() - expected)
for scenario, check in unexpected:
    print(f"{scenario}: {check}: {failed[scenario, check]}", file=sys.stderr)
passing = sorted(expected - failed.keys())
for scenario, check in passing:
    print(f"{scenario}: {check} is expected to fail and does not", file=sys.stderr)
print(f"{side}: {count} checks, {len(failed)} expected failures")
sys.exit(bool(unexpected or passing))
