#!/usr/bin/env bash
# All tests: makes an environment, builds and installs the release wheel, runs cargo's tests and pytest.
#
#   scripts/test.sh [options of pytest]           for example: scripts/test.sh -k install -x
#
# Set PYTHON or VENV to choose the interpreter or the place of the environment.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

make_environment
need "maturin>=1.9,<2" "${THUNDER_REQUIREMENTS[@]}" "${DEMO_REQUIREMENTS[@]}" \
    "hypothesis>=6.100" "pytest>=8.3" "pytest-timeout>=2.3"
install_wheel
cd "$ROOT"
say "Testing the Rust crates: cargo test"
cargo test --locked
say "Testing the installed wheel: pytest $*"
"$VENV_PYTHON" -m pytest "$@"
say "All tests passed"
