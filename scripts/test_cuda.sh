#!/usr/bin/env bash
# The tests for a GPU, from a wheel: on a machine with torch and a GPU, one command, no network and no compiler.
#
#   scripts/test_cuda.sh WHEELS [options of pytest]
#
#   WHEELS      a folder of wheels that scripts/cuda_wheels.sh made, or one wheel of this project if thunder, litgpt
#               and pytest are installed already
#   --device    a device other than cuda; with --device cpu the tests run on the CPU, small, to know that they work
#   --layers    how many layers the GPT has whose figures are taken (4)
#   --figures   where all figures go, as JSON (default: target/cuda-figures.json)
#
# For example: scripts/test_cuda.sh wheels -k "numbers and float32"
#
# torch is taken from PYTHON (default: the first of python3.12, python3 that has it) and never installed or changed. All
# else goes into an environment of its own, .venv-cuda, or VENV; it is made anew with each run.
set -euo pipefail
VENV="${VENV:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv-cuda}"
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

if (($# == 0)) || [[ "$1" == -* ]]; then
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 2
fi
wheels="$(realpath "$1")"
shift
[[ -e "$wheels" ]] || fail "$wheels is not there"

# has_torch PYTHON: whether an interpreter is suitable and can find torch.
has_torch() {
    is_suitable "$1" && "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'
}

python=""
for candidate in ${PYTHON:-python3.12 python3}; do
    if has_torch "$candidate" 2>/dev/null; then
        python="$candidate"
        break
    fi
done
[[ -n "$python" ]] || fail "torch was not found with ${PYTHON:-python3.12 or python3}; set PYTHON to an interpreter that has it"

say "An environment in $VENV, over the packages of $(command -v "$python")"
[[ ! -e "$VENV" || -f "$VENV/made-by-test-cuda" ]] || fail "$VENV is there and was made by something else; set VENV"
rm -rf "$VENV"
# Some systems have the module for environments without the pip that goes into them.
pip=("$VENV_PYTHON" -m pip)
if ! "$python" -m venv "$VENV" >/dev/null 2>&1; then
    rm -rf "$VENV"
    "$python" -m venv --without-pip "$VENV"
    pip=("$python" -m pip --python "$VENV_PYTHON")
fi
touch "$VENV/made-by-test-cuda"
# Where torch is, whether or not the interpreter is itself one of an environment.
"$python" -c 'import sys; print("\n".join(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))))' \
    >"$("$VENV_PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/packages-with-torch.pth"

offline=(--quiet --disable-pip-version-check --no-index)
if [[ -d "$wheels" ]]; then
    say "Installing from $wheels"
    "${pip[@]}" install "${offline[@]}" --find-links "$wheels" \
        shapetrace-rs "lightning-thunder==0.2.6" "${DEMO_REQUIREMENTS[@]}" "pytest>=8.3" "pytest-timeout>=2.3"
else
    say "Installing $wheels"
    "${pip[@]}" install "${offline[@]}" --no-deps "$wheels"
fi

cd "$ROOT"
"$VENV_PYTHON" - <<'PYTHON'
import shapetrace_rs, sys, torch
from importlib import metadata
versions = {name: metadata.version(name) for name in ("shapetrace-rs", "lightning-thunder", "torch")}
print(*(f"{name} {version}" for name, version in versions.items()), f"CUDA {torch.version.cuda}", sep=", ")
if "site-packages" not in shapetrace_rs.__file__:
    sys.exit(f"error: {shapetrace_rs.__file__} is not what was installed")
PYTHON

mkdir -p "$ROOT/target"
say "Testing the installed wheel: pytest tests/cuda $*"
# Skipped tests are no success: where nothing can run on the device, this command fails.
"$VENV_PYTHON" -m pytest -p no:cacheprovider tests/cuda --require-device --figures "$ROOT/target/cuda-figures.json" "$@"
say "All tests passed"
