"""The sizes of the micro benchmarks."""

from __future__ import annotations

from pydantic import Field

from gpubench_plugin.config.section import PositiveInt, Section


class MicroSection(Section):
    """How large the single operations are."""

    matrix_size: PositiveInt = Field(default=256, description="Rows and columns of matrices")
    batch: PositiveInt = Field(default=4, description="Samples of a convolution, of attention")
    channels: PositiveInt = Field(default=32, description="Channels of a convolution")
    image_size: PositiveInt = Field(default=32, description="Height and width of its images")
    heads: PositiveInt = Field(default=4, description="Heads of attention")
    tokens: PositiveInt = Field(default=128, description="Tokens of a sequence in attention")
    head_size: PositiveInt = Field(default=64, description="Features of a head")
    rows: PositiveInt = Field(default=512, description="Rows of softmax, norms, layouts")
    columns: PositiveInt = Field(default=512, description="Columns of softmax, norms, layouts")
    tensors: PositiveInt = Field(default=20, description="Parameters of an optimizer")
    tensor_elements: PositiveInt = Field(default=4096, description="Elements of each of them")
    copy_bytes: PositiveInt = Field(default=1048576, description="Length of a copy")
    graphs: PositiveInt = Field(default=2, description="Autograd graphs without a part in common")
    layers: PositiveInt = Field(default=16, description="Linear layers of each of them")
    layer_size: PositiveInt = Field(default=128, description="Features of these layers")
