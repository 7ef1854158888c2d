#!/usr/bin/env bash
# From a fresh clone to the demo: makes an environment, builds and installs the release wheel, compiles a GPT.
#
#   scripts/run_demo.sh [options of the demo]     for example: scripts/run_demo.sh --layers 2 --embd 64 --heads 4
#
# Set PYTHON or VENV to choose the interpreter or the place of the environment.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

make_environment
need "maturin>=1.9,<2" "${THUNDER_REQUIREMENTS[@]}" "${DEMO_REQUIREMENTS[@]}"
install_wheel
say "Running the demo: python -m shapetrace_rs demo $*"
# Away from the sources, so that it is the installed wheel that runs.
cd "$VENV"
"$VENV_PYTHON" -m shapetrace_rs demo "$@"
