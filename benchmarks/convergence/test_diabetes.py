"""Training on a table of patients until the disease of those held out is predicted well."""

import pytest


@pytest.mark.gpubench(config="convergence-diabetes", ranks="any")
@pytest.mark.precision("fp32", "tf32", "bf16", "amp")  # bf16-true ends 2% away: beyond the band
def test_diabetes(gpubench, convergence):
    """Regression by a multilayer perceptron, to a normalised squared error below 0.6."""
    gpubench(convergence, setup=convergence.restart)
