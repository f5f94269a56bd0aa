"""What an adapter may need beyond plain LoRA on linear layers, by the names that an engine declares to serve."""

from enum import StrEnum


class AdapterKind(StrEnum):
    """One way in which an adapter can change the model. The values are part of the engine's manifest."""

    DORA = "dora"  # a trained magnitude per output, arXiv:2402.09353
    EMBEDDING = "embedding"  # LoRA on an embedding
    BLOCK_DIAGONAL = "block_diagonal"  # BD-LoRA: A or B is stored as its diagonal blocks
    PARAMETERS = "parameters"  # LoRA on bare parameters: the experts and the router of a mixture
    REPLACED = "modules_to_save"  # whole modules in place of the base model's
    TRAINED_TOKENS = "trained_tokens"  # some rows of an embedding or of the head replaced
    BIAS = "bias"  # biases in place of the base model's
    ACTIVATED = "alora"  # active from the invocation tokens on, arXiv:2504.12397
    BASE_COPIES = "base_copies"  # saved along with the base model's embedding or head, which are to be compared
