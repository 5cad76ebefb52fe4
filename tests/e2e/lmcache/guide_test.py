"""tests/e2e/lmcache/guide_test.py: the commands of docs/guide/kv-cache.md against a server, with LMCache. The line that needs
a GPU, and the installation, are not run."""

import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE)]
import blocks  # noqa: E402
import nebula  # noqa: E402
from package import RDMA, needs, run, tap  # noqa: E402

HTTP = os.environ["NEBULAIO_TEST_HTTP"]
FOLDER = pathlib.Path(os.environ["NEBULAIO_TEST_DIR"]) / "guide"
GUIDE = nebula.ROOT / "docs/guide/kv-cache.md"


@needs()
def test_guide():
    shell = [block.text for block in blocks.of(GUIDE) if block.language == "sh"]
    configuration = next(block.text for block in blocks.of(GUIDE) if block.language == "text")
    project = (nebula.ROOT / "bindings/python/pyproject.toml").read_text()
    tap.check(len(shell) == 5 and "[lmcache]" in shell[0] and "vllm serve" in shell[4] and 'lmcache = ["lmcache==0.5.6"]' in project,
              "kv-cache.md: its blocks, and what it installs", shell)
    (FOLDER / "bin").mkdir(parents=True, exist_ok=True)
    for name, path in (("nebulaio", nebula.PROGRAM), ("python", sys.executable)):
        (FOLDER / "bin" / name).write_text(f'#!/bin/sh\nexec "{path}" "$@"\n')
        (FOLDER / "bin" / name).chmod(0o755)
    (FOLDER / "lmcache.yaml").write_text(configuration)
    env = nebula.clean_env("LMCACHE_CONFIG")
    env.update(PATH=f"{FOLDER / 'bin'}:{env['PATH']}", AWS_ACCESS_KEY_ID="minioadmin", AWS_SECRET_ACCESS_KEY="minioadmin", AWS_DEFAULT_REGION="us-east-1",
               NEBULAIO_CONNECT_TO=f"127.0.0.1:9100={RDMA},127.0.0.1:9000={HTTP}")

    def done(name, script):
        process = subprocess.run(["bash", "-ec", script], env=env, cwd=FOLDER, capture_output=True, text=True, timeout=nebula.PATIENCE_S)
        tap.check(process.returncode == 0, f"kv-cache.md: {name}", process.stdout[-3000:] + process.stderr[-3000:])
        return process.stdout

    done("a bucket, and its rule", shell[1].replace("127.0.0.1:9000", HTTP))
    said = done("LMCache's check", shell[2] + shell[3])
    passed = re.findall(r"^\| ([A-Z].*?) +\|.*\| +(\d+)/(\d+) \|", re.sub(r"\x1b\[[0-9;]*m", "", said), re.M)
    tap.check(len(passed) == 4 and all(good == all_ == "20" for _, good, all_ in passed), "all of it passes", passed or said[-3000:])
    stored = [line for line in said.splitlines() if "lmcache_test_model" in line and "@bfloat16" in line]
    tap.check(len(stored) == 20, "and 20 chunks are in the bucket", said[-2000:])
    rule = done("the rule is kept", f"aws --endpoint-url http://{HTTP} s3api get-bucket-lifecycle-configuration --bucket kvcache")
    tap.check(json.loads(rule)["Rules"][0]["Expiration"]["Days"] == 1, "as the guide has it", rule)


if __name__ == "__main__":
    sys.exit(run())
