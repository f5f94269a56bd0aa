"""Preparation of requests for vectors: embeddings, and the logits of classifiers."""

from collections.abc import Sequence

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.generation.preparer import Preparer, out_of_range, settled_on_error
from loragate.gateway.generation.request import PoolingRequest, Target, share_of
from loragate.gateway.generation.tokenize import ChatPrompt, TextPair, chat_size, check_length, prompts_size
from loragate.gateway.schemas.inference.classification import ClassifyRequest, PairRequest
from loragate.gateway.schemas.inference.embeddings import EmbeddingRequest
from loragate.gateway.text.base_model import BaseModel
from loragate.gateway.tracing.current import step
from loragate.peft_format.classification import Classifier, Task
from loragate.prompts.messages import ChatMessage
from loragate.v1 import engine_pb2 as pb

_MAX_LOGITS = 1 << 20  # of one response
_MAX_PAIR_CHARACTERS = 16 << 20  # a first text counts for each pair that it is in
_POOLING = {Task.SEQUENCE: pb.POOLING_CLASSIFY, Task.TOKENS: pb.POOLING_CLASSIFY_TOKENS}


class PoolingPreparer(Preparer):
    """Prepares requests for vectors."""

    async def embeddings(self, caller: TenantPrincipal, body: EmbeddingRequest) -> PoolingRequest:
        """Prepare a request for embeddings. Raise ApiError and StoreError."""
        base = self._link.base
        if body.dimensions not in (None, base.width):
            reason = (
                f"this model's vectors have {base.width} numbers" if base.width else "vectors have their full length"
            )
            raise out_of_range("dimensions", f"{reason}, and are not cut: leave it out")
        target = await self._target(caller, base, body.model, body.sticky_key)
        if "" in body.inputs:
            raise InvalidRequest("Invalid 'input': a text is empty.", param="input", code="invalid_value")
        size = prompts_size(base, body.inputs, "input")
        lease = await self._charge_first(caller, target, size, 0)
        with settled_on_error(lease):
            with step("tokenize"):
                prompts = await self._tokenizer.prompts(base, caller.tenant_id, size, body.inputs, "input")
            check_length(base, max(map(len, prompts)), "input")
            share = share_of(caller, body.priority, self._config, batch=self._batches)
            return PoolingRequest(target, base, prompts, body.engine_pooling, share, lease)

    async def classification(self, caller: TenantPrincipal, body: ClassifyRequest) -> PoolingRequest:
        """Prepare a request for the labels of texts. Raise ApiError and StoreError."""
        base = self._link.base
        target = await self._target(caller, base, body.model, body.sticky_key)
        classifier = _classifier(target, body.model)
        if "" in body.inputs:
            raise InvalidRequest("Invalid 'input': a text is empty.", param="input", code="invalid_value")
        param = "input" if body.messages is None else "messages"
        size = prompts_size(base, body.inputs, param) if body.messages is None else chat_size(base, body.messages)
        lease = await self._charge_first(caller, target, size, 0)
        with settled_on_error(lease):
            with step("tokenize"):
                if body.messages is None:
                    prompts = await self._tokenizer.prompts(base, caller.tenant_id, size, body.inputs, param)
                else:
                    chat = ChatPrompt(body.messages, ending=body.ending)
                    prompts = (await self._tokenizer.chat(base, caller.tenant_id, size, chat),)
            prompts = _classified_prompts(base, classifier, prompts, param)
            spans: tuple[list[tuple[int, int]], ...] = ()
            texts = [text for text in body.inputs if isinstance(text, str)]
            if classifier.task is Task.TOKENS and texts:
                spans = await self._tokenizer.spans(base, caller.tenant_id, size, texts)
            share = share_of(caller, body.priority, self._config, batch=self._batches)
            return PoolingRequest(target, base, prompts, _POOLING[classifier.task], share, lease, spans)

    async def pairs(self, caller: TenantPrincipal, body: PairRequest) -> PoolingRequest:
        """Prepare a request for the scores of pairs of texts. Raise ApiError and StoreError."""
        base, tenant_id = self._link.base, caller.tenant_id
        target = await self._target(caller, base, body.model, body.sticky_key)
        classifier = _classifier(target, body.model)
        if classifier.task is not Task.SEQUENCE or len(classifier.labels) != 1:
            raise InvalidRequest(
                f"The model '{body.model}' has {len(classifier.labels)} labels ({classifier.task}): only a SEQ_CLS "
                "adapter with one label gives scores. Use /v1/classify.",
                param="model",
                code="not_a_scorer",
            )
        size = prompts_size(base, [text for pair in body.pairs for text in pair], body.second_field)
        if size > _MAX_PAIR_CHARACTERS:
            raise out_of_range(
                body.second_field,
                f"the pairs have {size} characters together; at most {_MAX_PAIR_CHARACTERS} are allowed",
            )
        lease = await self._charge_first(caller, target, size, 0)
        with settled_on_error(lease):
            with step("tokenize"):
                prompts: tuple[Sequence[int], ...]
                if body.prompt_format == "chat":
                    chats = [ChatPrompt(_exchange(*pair), ending="finished") for pair in body.pairs]
                    prompts = await self._tokenizer.chats(base, tenant_id, size, chats)
                else:
                    prompts = await self._tokenizer.pairs(
                        base, tenant_id, size, [TextPair(*pair) for pair in body.pairs], body.second_field
                    )
            prompts = _classified_prompts(base, classifier, prompts, body.second_field)
            share = share_of(caller, body.priority, self._config, batch=self._batches)
            return PoolingRequest(target, base, prompts, pb.POOLING_CLASSIFY, share, lease)


def _classifier(target: Target, model: str) -> Classifier:
    if target.classifier is None:
        raise InvalidRequest(
            f"The model '{model}' has no head for labels: publish an adapter with the task_type SEQ_CLS or TOKEN_CLS.",
            param="model",
            code="not_a_classifier",
        )
    return target.classifier


def _classified_prompts(
    base: BaseModel, classifier: Classifier, prompts: Sequence[Sequence[int]], param: str
) -> tuple[Sequence[int], ...]:
    """Check the prompts' lengths and the size of the response, and return the prompts as transformers' class reads
    them: the last token that is no padding represents a text."""
    check_length(base, max(map(len, prompts)), param)
    rows = len(prompts) if classifier.task is Task.SEQUENCE else sum(map(len, prompts))
    if rows * len(classifier.labels) > _MAX_LOGITS:
        raise out_of_range(
            param, f"{rows} rows with {len(classifier.labels)} labels each are more than {_MAX_LOGITS} numbers"
        )
    if classifier.task is Task.SEQUENCE and base.manifest.HasField("pad_token_id"):
        return tuple(_without_padding(prompt, base.manifest.pad_token_id) for prompt in prompts)
    return tuple(prompts)


def _without_padding(prompt: Sequence[int], padding: int) -> Sequence[int]:
    """Return the prompt up to its last token that is no padding; of padding alone, transformers takes the first."""
    stop = len(prompt)
    while stop > 1 and prompt[stop - 1] == padding:
        stop -= 1
    return prompt[:stop]


def _exchange(question: str, answer: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=question), ChatMessage(role="assistant", content=answer)]
