"""The features beyond plain LoRA on linear layers that an adapter may need and an engine may declare to serve."""

from enum import StrEnum


class AdapterKind(StrEnum):
    """A way in which an adapter can change the model. The values are part of the engine's manifest."""

    DORA = "dora"  # a trained magnitude per output, arXiv:2402.09353
    EMBEDDING = "embedding"  # LoRA on an embedding
    BLOCK_DIAGONAL = "block_diagonal"  # BD-LoRA: A or B is stored as its diagonal blocks
    PARAMETERS = "parameters"  # LoRA on bare parameters: the experts and the router of a mixture
    REPLACED = "modules_to_save"  # whole modules that replace the base model's
    TRAINED_TOKENS = "trained_tokens"  # replaced rows of an embedding or of the head
    BIAS = "bias"  # biases that replace the base model's
    ACTIVATED = "alora"  # active from the invocation tokens onwards, arXiv:2504.12397
    CLASSIFIER = "classifier"  # a head for labels in place of the one for tokens
    BASE_COPIES = "base_copies"  # the file also holds the base model's embedding or head, which are compared
