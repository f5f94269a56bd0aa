"""The bodies of sessions, and of what the SDK asks for before it has one."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from loragate.prompts.bodies import Body

SessionId = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Number = Annotated[int, Field(ge=0, lt=1 << 31)]
Metadata = Annotated[dict[str, Any], Field(max_length=64)]
Text = Annotated[str, StringConstraints(max_length=255)]


class ClientVersion(Body):
    """The client's version."""

    sdk_version: Text | None = None
    type: Text | None = None


class SessionCreate(Body):
    """Body of POST /api/v1/create_session."""

    tags: Annotated[list[Text], Field(max_length=64, default_factory=list)]
    user_metadata: Metadata | None = None
    sdk_version: Annotated[str, StringConstraints(max_length=64)] = ""
    project_id: Text | None = None  # there are no projects: without effect
    display_name: Text | None = None
    type: Literal["create_session"] = "create_session"


class SessionRef(Body):
    """Body of POST /api/v1/session_heartbeat."""

    session_id: SessionId
    type: Text | None = None


class FinishReason(Body):
    """Why a session ends."""

    type: Literal["success", "errored", "interrupted"]


class SessionFinish(Body):
    """Body of POST /api/v1/sessions/{session_id}/finish."""

    reason: FinishReason
    detail: Annotated[str, StringConstraints(max_length=65_536)] | None = None
    type: Text | None = None
