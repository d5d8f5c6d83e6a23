"""Forward passes of BERT at three batch sizes."""

import pytest

from gpubench_plugin.config.marks import batch_sizes


@batch_sizes
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="bert")
def test_bert_infer(gpubench, inference, batch):
    """Logits of BERT for every token of a batch."""
    gpubench(inference)
