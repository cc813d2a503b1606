"""`python -m bfcl --model NAME`: a model as the agent of `hansei eval run --preset bfcl`."""

import sys

from hansei.evaluation.model_agent import main

from .episode import Episode

if __name__ == "__main__":
    sys.exit(main(Episode, __doc__ or ""))
