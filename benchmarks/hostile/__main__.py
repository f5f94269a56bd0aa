"""Latencies of a guest's chats while another tenant attacks, compared with those without the attack.

A real server runs with a tiny base model, the panel and a fine-tune worker. The guest sends short streamed chats at a
fixed rate, and latencies count from the scheduled start. Windows without and with the attack alternate, so that a drift
in the machine's speed affects both alike, and ratios are taken within a round. Guest and attacker are processes of
their own; the attacker has a low priority, and sends the same to every commit. Beside the latencies a case records what
its exploit is about, for example the disk space that uploads hold.

    python -m benchmarks.hostile                                   # all exploits, five minutes
    python -m benchmarks.hostile --commit 4699782                  # the same, and for an older commit; twelve minutes
    python -m benchmarks.hostile --only long_prompts --rounds 1    # a quick look, without a report
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from safetensors.numpy import save_file

from benchmarks.hostile.attacker import Attacker, Target
from benchmarks.hostile.cases import CASES, Case, Exploit
from benchmarks.hostile.guest import Guest, Window, percentile
from benchmarks.hostile.server import Server, build_model, running_server
from benchmarks.lib.checkout import parts_of
from benchmarks.lib.report import write

NOW = "this checkout"
RECOVERY_SECONDS = 5.0

console = Console(stderr=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="pairs of windows of each case, for an older commit one")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of a window")
    parser.add_argument("--rate", type=float, default=20.0, help="the guest's chats per second")
    parser.add_argument("--commit", help="measure the product of this commit as well")
    parser.add_argument("--only", choices=[case.name for case in CASES], action="append", help="may repeat")
    arguments = parser.parse_args()
    cases = [case for case in CASES if case.name in (arguments.only or case.name)]
    figures: dict[str, Any] = {"chats_per_second": arguments.rate, "window_seconds": arguments.seconds, "cases": {}}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile")))
        build_model(folder / "base")
        commits = {NOW: None}
        if arguments.commit:
            commits = {arguments.commit: stack.enter_context(parts_of(arguments.commit))} | commits
        guest = Guest()
        stack.callback(guest.close)
        for commit, parts in commits.items():
            bench = Benchmark(folder, parts, guest, arguments.seconds, arguments.rate)
            stack.callback(bench.close)
            for case in cases:
                console.print(f"{commit}: {case.name.replace('_', ' ')}")
                found = bench.measure(case, arguments.rounds if commit == NOW else 1)
                figures["cases"].setdefault(case.name, {"attack": case.exploit.__doc__})[commit] = found
            bench.close()
    show(figures)
    if arguments.only:
        console.print_json(data=figures)
    else:
        print(f"written to {write('hostile_tenants', figures).relative_to(Path.cwd())}")


class Benchmark:
    """Measures the product of one commit. A server that does not recover from an attack is replaced."""

    def __init__(self, folder: Path, parts: Path | None, guest: Guest, seconds: float, rate: float) -> None:
        self._folder = folder
        self._parts = parts
        self._guest = guest
        self._seconds = seconds
        self._rate = rate
        self._stack = ExitStack()
        self._server: Server | None = None
        self._model = ""

    def close(self) -> None:
        self._server = None
        self._stack.close()

    def measure(self, case: Case, rounds: int) -> dict[str, Any]:
        """Measure a case. Rounds after one from which the server did not recover are left out."""
        turns: list[tuple[Window, Window]] = []
        reports: list[dict[str, Any]] = []
        server = self._server or self._start()
        for _ in range(1 if case.once else rounds):
            report: dict[str, Any] = {}
            with self._attacker(case.quiet, case, server, {}) as start:
                quiet = self._window(server, case, start)
            with self._attacker(case.exploit, case, server, report) as start, case.harm(server, report):
                hostile = self._window(server, case, start)
            turns.append((quiet, hostile))
            reports.append(report)
            if hostile.failed or hostile.unfinished or not self._recovers(server, case, quiet):
                self.close()
                break
        return summarize(turns) | {"attacker_and_harm": reports}

    def _start(self) -> Server:
        self._server = server = self._stack.enter_context(running_server(self._folder / "base", self._parts))
        with server.client_of("guest") as client:
            self._model = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        server.wait_for_panel()
        write_adapter(self._folder / "adapter", self._model)
        self._chats(server, large=False, seconds=3.0)  # a warm-up
        return server

    @contextmanager
    def _attacker(
        self, exploit: Exploit | None, case: Case, server: Server, report: dict[str, Any]
    ) -> Iterator[Callable[[], None]]:
        """Prepare an exploit, to be started within the block by the yielded function; add what came of it to
        `report`."""
        if exploit is None:
            yield lambda: None
            return
        key, adapter = server.keys[case.attacker], str(self._folder / "adapter")
        attacker = Attacker(exploit.__name__, Target(server.port, server.panel_port, key, self._model, adapter))
        try:
            yield attacker.go
            report["attacker"] = attacker.stop()
        finally:
            attacker.kill()

    def _window(self, server: Server, case: Case, start: Callable[[], None]) -> Window:
        start()
        time.sleep(case.lead_seconds)
        before, began = server.processor_seconds(), time.monotonic()
        window = self._chats(server, large=case.large, seconds=self._seconds)
        elapsed = time.monotonic() - began
        used = {part: (now - before[part]) / elapsed for part, now in server.processor_seconds().items()}
        return replace(window, processors=used)

    def _chats(self, server: Server, *, large: bool, seconds: float) -> Window:
        key = server.keys["guest"]
        return self._guest.window(server.port, key, self._model, seconds=seconds, rate=self._rate, large=large)

    def _recovers(self, server: Server, case: Case, quiet: Window) -> bool:
        """Wait until the guest is served about as before the attack; return whether that happens soon."""
        deadline = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < deadline:
            found = self._chats(server, large=case.large, seconds=0.5)
            if not found.failed and percentile(found.total, 50) < 2 * percentile(quiet.total, 50):
                return True
        return False


def write_adapter(folder: Path, model: str) -> None:
    """Write PEFT's two files for the projections of attention."""
    folder.mkdir(exist_ok=True)
    shapes = {"q_proj": 128, "k_proj": 64, "v_proj": 64, "o_proj": 128}
    generator = np.random.default_rng(1)
    tensors = {}
    for layer in range(4):
        for name, out in shapes.items():
            stem = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{stem}.lora_A.weight"] = generator.normal(0, 0.02, (4, 128)).astype(np.float32)
            tensors[f"{stem}.lora_B.weight"] = generator.normal(0, 0.02, (out, 4)).astype(np.float32)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": model, "r": 4, "lora_alpha": 8}
    (folder / "adapter_config.json").write_text(json.dumps(config | {"target_modules": list(shapes)}))


def summarize(turns: list[tuple[Window, Window]]) -> dict[str, Any]:
    """Return medians over the rounds, and the ratios within each round."""
    figures: dict[str, Any] = {"rounds": len(turns)}
    for kind in ("first_token", "total"):
        for percent in (50, 99):
            pairs = [tuple(percentile(getattr(each, kind), percent) for each in turn) for turn in turns]
            ratios = [hostile / quiet for quiet, hostile in pairs]
            figures[f"{kind}_p{percent}"] = {
                "quiet_ms": round(statistics.median(quiet for quiet, _ in pairs), 1),
                "attack_ms": round(statistics.median(hostile for _, hostile in pairs), 1),
                "ratio": round(statistics.median(ratios), 2),
                "ratios": [round(each, 2) for each in ratios],
            }
    figures["processors"] = {
        part: {
            name: round(statistics.median(turn[place].processors[part] for turn in turns), 2)
            for place, name in enumerate(("quiet", "attack"))
        }
        for part in turns[0][0].processors
    }
    figures["failed"] = sum(each.failed for turn in turns for each in turn)
    figures["unfinished"] = sum(each.unfinished for turn in turns for each in turn)
    return figures


def show(figures: dict[str, Any]) -> None:
    table = Table("exploit", "commit", "p50, ms", "p99, ms", "p99 ratio", "unserved", "beside")
    for name, versions in figures["cases"].items():
        for commit, found in versions.items():
            if commit == "attack":
                continue
            p50, p99 = found["total_p50"], found["total_p99"]
            cells = [f"{each['quiet_ms']} → {each['attack_ms']}" for each in (p50, p99)]
            harm = {k: v for k, v in found["attacker_and_harm"][-1].items() if k != "attacker"}
            unserved = f"{found['failed']}, {found['unfinished']}"
            table.add_row(
                name, commit, *cells, f"{p99['ratio']}", unserved, ", ".join(f"{k} {v}" for k, v in harm.items())
            )
    console.print(table)


if __name__ == "__main__":
    main()
