"""`python -m bfcl --model NAME`: an agent for `hansei eval run --preset bfcl`. It reads one JSON
document with `task_id`, `advice` and `arm`, and prints the answer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from house_rules.model import Model, ModelError, run_task

from hansei.errors import EvaluationError

from .episode import Episode


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("bfcl", description=__doc__)
    parser.add_argument("--model", required=True, help="may contain {arm}")
    parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL"))
    parser.add_argument("--timeout", type=float, default=600.0)
    options = parser.parse_args(arguments)
    try:
        if not options.base_url:
            raise ValueError("Pass --base-url or set OPENAI_BASE_URL, for example http://host/v1.")
        request = json.load(sys.stdin)
        model = Model(options.model, options.base_url, options.timeout)
        episode = Episode(request["task_id"])
        answer = run_task(model, episode, request.get("advice") or "", request.get("arm") or "")
    except (ValueError, KeyError, OSError, ModelError, EvaluationError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
