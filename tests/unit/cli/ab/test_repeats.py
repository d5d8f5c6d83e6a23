"""What measuring disturbed pairs again does to verdicts, on a few simulated suites.

At length, and with more machines: ``tools/evidence/repeats.py``.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.disturbed import Disturbed, judged
from tests.support.simulation import rates

SUITES = 600


@pytest.mark.slow
def test_no_alarms_come_of_it_and_more_is_decided() -> None:
    """Suites of equal sides, a tenth of whose launches a busy process disturbs."""
    case = Disturbed(share=0.1)
    as_it_is, again = (judged(case, SUITES, 1, repeating=one) for one in (False, True))
    assert rates(again.kinds, 0.0).alarms <= 0.01
    decided = [(one.kinds != "inconclusive").mean() for one in (as_it_is, again)]
    assert decided[1] > decided[0] + 0.1
    assert 1 < again.repeats.mean() <= 5


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.6, 1.0])
def test_a_head_that_raises_flags_itself_is_caught_as_ever(share: float) -> None:
    """In each of its launches nothing changes at all; in most, no power is lost."""
    case = Disturbed(flagged=share, effect=0.03)
    as_it_is, again = (judged(case, SUITES, 2, repeating=one) for one in (False, True))
    caught = [rates(one.kinds, 0.03).caught for one in (as_it_is, again)]
    assert caught[1] >= caught[0] - 0.005
    if share == 1.0:
        assert np.array_equal(again.kinds, as_it_is.kinds)
        assert not again.repeats.any()
