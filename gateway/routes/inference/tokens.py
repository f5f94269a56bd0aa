"""POST /tokenize and /detokenize."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import Inference
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.plain_route import PlainRoute
from loragate.gateway.objects.inference.tokens import DetokenizedPrompt, Tokens, tokens_object
from loragate.gateway.openapi.headers import GENERATED
from loragate.gateway.openapi.responses import describes
from loragate.gateway.schemas.inference.tokens import DetokenizeRequest, TokenizeRequest

router = APIRouter(tags=["inference"], route_class=PlainRoute)


@router.post("/tokenize")
@describes(Tokens, errors=(404, 429), headers=GENERATED)
async def tokenize(
    caller: Inference, body: Annotated[TokenizeRequest, Depends(JsonBody(TokenizeRequest))], use: Use
) -> Response:
    """Return the tokens of a prompt, or of a chat as the template renders it. They count as a request and its tokens
    within the limits, and not as usage."""
    base = use.link.base
    tokens, headers = await use.preparer.tokens(caller, body)
    return json_response(tokens_object(base, tokens, spelled=bool(body.return_token_strs)), headers=headers)


@router.post("/detokenize")
@describes(DetokenizedPrompt, errors=(404, 429), headers=GENERATED)
async def detokenize(
    caller: Inference, body: Annotated[DetokenizeRequest, Depends(JsonBody(DetokenizeRequest))], use: Use
) -> Response:
    """Return the text of tokens, special ones included. They count as a request and its tokens within the limits, and
    not as usage."""
    prompt, headers = await use.preparer.text(caller, body)
    return json_response({"prompt": prompt}, headers=headers)
