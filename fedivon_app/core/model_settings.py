"""Which network is trained, and which part of it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from fedivon_app.core.search_range import even_range, search
from fedivon_app.core.section import Section


class ModelSettings(Section):
    """The network: by name from the zoo, or the user's own by import path."""

    name: str = Field("mlp", description="network by name, see core/models.py")
    factory: str | None = Field(
        None, description="the user's own builder, as package.module:function"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="what the builder takes besides shape and classes"
    )
    weights: str | None = Field(
        None,
        description="a file with the network's first weights by name (.safetensors, or of "
        "torch.save), which the server and every node have; the head is learned anew",
    )
    trainable: str | None = Field(
        None,
        description="what is learned, and travels: head, lora, or parameters by name, as in "
        "layer4.*,fc.*; none: everything",
    )
    lora_rank: int = Field(4, ge=1, description="lora: the rank of what each layer learns")
    dropout: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Monte Carlo dropout after every linear and convolution layer: its rate",
        json_schema_extra=search(even_range(0.05, 0.5)),
    )
    dropout_logits: bool = Field(
        False, description="after the last layer, whose outputs are the logits, too"
    )
