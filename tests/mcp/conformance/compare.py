"""Compares the checks that failed in runs of the conformance suite with those that are expected to.

    compare.py EXPECTED SIDE REVISION=RESULTS...

EXPECTED has lines `side: scenario: check` below comments with the reasons, or `side REVISION: scenario: check` if the check fails in one
revision alone. A check that fails in a revision without being listed, and one that is listed and does not fail in each revision that has
its scenario, is an error. So is a scenario that the suite lists for a revision, in the file `list` beside its results, and that has not run.
"""

import json
import re
import sys
from pathlib import Path

expected_file, side, *results = sys.argv[1:]
failed, scenarios, count = {}, {}, 0


def listed(directory):
    """Returns the scenarios that the suite has for this side."""
    of_side = False
    for line in Path(directory, "list").read_text().splitlines():
        if not line.startswith(" "):
            of_side = line.startswith(side.capitalize())
        name, _, of = line.removeprefix("    - ").removeprefix("  - ").partition(" ")
        if name and "- " in line and (of_side if not of else of == f"[{side}]"):
            yield name


missing = []
for revision, directory in (result.split("=", 1) for result in results):
    files = list(Path(directory).glob("**/checks.json"))
    assert files, f"no scenario has run: {directory}"
    for file in files:
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", str(file.parent.relative_to(directory)))
        scenario = name.removeprefix("server-") if side == "server" else name
        checks = json.loads(file.read_text())
        assert checks, f"nothing was checked: {revision}: {scenario}"
        count += len(checks)
        scenarios.setdefault(scenario, set()).add(revision)
        for check in checks:
            if check["status"] in ("FAILURE", "WARNING"):
                failed[revision, scenario, check["id"]] = check.get("errorMessage") or check.get("description")
    names = list(listed(directory))
    assert names, f"no scenario is listed: {directory}"
    missing += [f"{revision}: {name}" for name in names if revision not in scenarios.get(name, ())]

expected = set()
for line in map(str.strip, Path(expected_file).read_text().splitlines()):
    if line and not line.startswith("#"):
        where, scenario, check = line.split(": ")
        listed_side, _, revision = where.partition(" ")
        if listed_side == side:
            revisions = {revision} if revision else scenarios.get(scenario, {"no revision"})
            expected |= {(revision, scenario, check) for revision in revisions}

unexpected = sorted(failed.keys() - expected)
for key in unexpected:
    print(f"{': '.join(key)}: {failed[key]}", file=sys.stderr)
passing = sorted(expected - failed.keys())
for key in passing:
    print(f"{': '.join(key)} is expected to fail and does not", file=sys.stderr)
for scenario in missing:
    print(f"{scenario} has not run", file=sys.stderr)
print(f"{side}: {count} checks, {len(failed)} expected failures")
sys.exit(bool(unexpected or passing or missing))
