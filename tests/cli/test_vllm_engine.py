"""`loragate engine --backend vllm`: what is missing is said with the commands that install it, and nothing is lost."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loragate.cli.errors import CliError
from loragate.cli.main import app
from loragate.cli.standalone.vllm_engine import check_vllm, engine_arguments, run_in_vllm
from loragate.engine import __main__ as engine_main
from loragate.engine.config import EngineConfig


def test_an_environment_without_vllm_is_refused_with_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORAGATE_ENGINE_SECRET", "a secret of the link")
    arguments = ["engine", "--model", str(tmp_path), "--data-dir", str(tmp_path / "data"), "--backend", "vllm"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert f"{sys.executable} has no vllm" in refused.stderr
    assert "pip install vllm==" in refused.stderr
    assert "pip install --no-deps loragate" in refused.stderr
    assert "--vllm-python" in refused.stderr


def test_an_interpreter_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"vllm_python is .*/none, which cannot be run: No such file"):
        check_vllm(str(tmp_path / "none"))


def test_the_engine_gets_every_setting_and_no_secret_on_its_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the command executes is parsed as the engine's process parses it."""
    config = EngineConfig(
        model="org/name@1", listen="127.0.0.1:0", cache_dir=tmp_path, secret="s3cret", previous_secrets=("0ld",),
        backend="vllm", tensor_parallel_size=2, max_model_len=512, prefix_cache=False, cuda_graphs=False,
        adapter_slots=3, dtype="bfloat16", tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem",
    )  # fmt: skip
    executed = {}
    monkeypatch.setattr("os.execve", lambda program, command, environment: executed.update(c=command, e=environment))
    monkeypatch.setattr("loragate.cli.standalone.vllm_engine.check_vllm", lambda interpreter: None)
    run_in_vllm(config, tmp_path / "python", "json")
    command, environment = executed["c"], executed["e"]
    assert command[:3] == [str(tmp_path / "python"), "-m", "loragate.engine"]
    assert not [word for word in command if "s3cret" in word or "0ld" in word]
    started: list[EngineConfig] = []
    monkeypatch.setattr(engine_main, "run", started.append)
    monkeypatch.setattr(engine_main, "log_to_stderr", lambda form: None)
    for name in ("LORAGATE_ENGINE_SECRET", "LORAGATE_PREVIOUS_ENGINE_SECRETS"):
        monkeypatch.setenv(name, environment[name])
    monkeypatch.setattr(sys, "argv", ["engine", *command[3:]])
    engine_main.main()
    assert started == [config]


def test_a_setting_without_a_counterpart_in_vllm_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = EngineConfig(model="m", listen="unix:/e.sock", cache_dir=tmp_path, backend="vllm", quantization="nf4")
    monkeypatch.setenv("LORAGATE_ENGINE_SECRET", "a secret of the link")
    monkeypatch.setattr(engine_main, "log_to_stderr", lambda form: None)
    monkeypatch.setattr(sys, "argv", ["engine", *engine_arguments(config)[2:]])
    with pytest.raises(SystemExit):
        engine_main.main()
    assert "engine.quantization is for loragate's own engine" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"engine\.tensor_parallel_size is 2, but loragate's own engine"):
        EngineConfig(model="m", listen="unix:/e.sock", cache_dir=tmp_path, tensor_parallel_size=2)
