"""Multipart forms that fill memory or disk, name files elsewhere, or end where they should not."""

from pathlib import Path

import pytest

from tests.attacks.raw_http import Answer, connected, exchange, head
from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


def part(boundary: str, disposition: str, data: bytes, more: str = "") -> bytes:
    lines = f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n{more}\r\n"
    return lines.encode() + data + b"\r\n"


def file_part(boundary: str, file: str, data: bytes, more: str = "") -> bytes:
    return part(boundary, f'name="{file}"; filename="{file}"', data, more)


def upload(gateway: Gateway, body: bytes, content_type: str = "multipart/form-data; boundary=b") -> bytes:
    start = head(gateway, "/v1/adapters").replace(b"application/json", content_type.encode())
    return start + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=" + "b" * 201,
        "multipart/form-data" + ";" * 60_000,
        "multipart/form-data; " + "a=b; " * 10_000,
        "multipart/form-data; boundary*0=a; " + "boundary*1=b; " * 1000,
        'multipart/form-data; boundary="' + "\\" * 60_000,
        "multipart/mixed; boundary=b",
        "x-multipart/form-data; boundary=b",
    ],
)
async def test_content_types_without_a_boundary(attacked: Gateway, content_type: str) -> None:
    answer = await exchange(attacked, upload(attacked, b"--b--\r\n", content_type))
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


FORMS = {
    "a header without end": b"--b\r\nx-a: " + b"x" * (1 << 20),
    "a name without end": b"--b\r\n" + b"x" * (1 << 20),
    "headers without end": b"--b\r\n" + b"x-a: b\r\n" * 100_000,
    "a field without end": part("b", 'name="name"', b"x" * (4 << 20)),
    "a config without end": file_part("b", CONFIG, b" " * (4 << 20)),
    "parts without end": b"".join(part("b", f'name="x{i}"', b"x") for i in range(10_000)),
    "the same part without end": part("b", 'name="name"', b"x") * 10_000,
    "empty parts without end": b"--b\r\n\r\n\r\n" * 10_000,
    "what comes before a form": b"x" * (1 << 20),
    "another boundary": part("c", 'name="name"', b"x") + b"--c--\r\n",
    "no end": part("b", 'name="name"', b"x"),
    "an end alone": b"--b--\r\n",
    "a NUL in a name": part("b", 'name="na\0me"', b"x") + b"--b--\r\n",
    "a traversing name": part("b", 'name="../../name"', b"x") + b"--b--\r\n",
}


@pytest.mark.parametrize("what", FORMS)
async def test_forms(attacked: Gateway, what: str) -> None:
    answer = await exchange(attacked, upload(attacked, FORMS[what]))
    assert answer.status == 400, answer
    assert len(answer.body) < 1000
    await attacked.until_nothing_is_spooled()


async def _uploaded(gateway: Gateway, folder: Path, boundary: str, names: list[str], more: str = "") -> Answer:
    """Upload a valid adapter whose two files have these names."""
    files = [(folder / file).read_bytes() for file in (CONFIG, TENSORS)]
    body = b"".join(file_part(boundary, name, data, more) for name, data in zip(names, files, strict=True))
    body += part(boundary, 'name="name"', b"attacked") + f"--{boundary}--\r\n".encode()
    return await exchange(gateway, upload(gateway, body, f"multipart/form-data; boundary={boundary}"))


@pytest.mark.parametrize("folder", ["../../../", "/etc/", "..\\..\\", "C:\\", "%2e%2e/", "./"])
async def test_file_names_are_never_used_as_paths(attacked: Gateway, tmp_path: Path, folder: str) -> None:
    before = sorted(attacked.config.data_dir.rglob("*"))
    adapter = tiny_model.write_adapter(tmp_path / "a")
    answer = await _uploaded(attacked, adapter, "b", [folder + CONFIG, folder + TENSORS])
    assert answer.status == 201
    new = {path.relative_to(attacked.config.data_dir).parts[0] for path in attacked.config.data_dir.rglob("*")}
    assert new == {path.relative_to(attacked.config.data_dir).parts[0] for path in before} | {"blobs"}
    async with attacked.http() as http:
        await http.delete("/v1/adapters/attacked")


async def test_unknown_file_names(attacked: Gateway, tmp_path: Path) -> None:
    adapter = tiny_model.write_adapter(tmp_path / "a")
    for names in ([CONFIG + "/", TENSORS], [CONFIG, TENSORS + "\\.."], [CONFIG, ".." + TENSORS], [TENSORS, TENSORS]):
        assert (await _uploaded(attacked, adapter, "b", names)).status == 400


@pytest.mark.parametrize("boundary", ["r", "lora_alpha", "0", "--", "b" * 200])
async def test_boundaries_within_the_files(attacked: Gateway, tmp_path: Path, boundary: str) -> None:
    """A boundary that is not a line of its own does not end a part; an unexpected encoding does not change a byte."""
    adapter = tiny_model.write_adapter(tmp_path / "a")
    answer = await _uploaded(attacked, adapter, boundary, [CONFIG, TENSORS], "Content-Transfer-Encoding: base64\r\n")
    assert answer.status == 201
    async with attacked.http() as http:
        stored = await http.get(f"/v1/adapters/attacked/versions/1/files/{TENSORS}")
        assert stored.content == (adapter / TENSORS).read_bytes()
        await http.delete("/v1/adapters/attacked")


async def test_a_truncated_upload(attacked: Gateway) -> None:
    """Nothing of it remains, wherever it was truncated."""
    whole = upload(attacked, file_part("b", TENSORS, b"x" * (3 << 20)))
    for length in (len(whole) // 3, len(whole) - 10):
        async with connected(attacked) as connection:
            await connection.send(whole[:length])
        assert await attacked.lifecycle.idle(30)
        await attacked.until_nothing_is_spooled()
