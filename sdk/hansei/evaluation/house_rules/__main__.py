"""`python -m hansei.evaluation.house_rules --model NAME`: a model as the agent of House Rules, for
`hansei eval run --preset house-rules`.
"""

import sys

from hansei.evaluation.house_rules.episode import Episode
from hansei.evaluation.model_agent import main

if __name__ == "__main__":
    sys.exit(main(Episode, __doc__ or ""))
