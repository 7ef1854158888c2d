#!/usr/bin/env bash
# The tests that run the passes of thunder's nvFuser executor, with the real nvFuser package; no GPU is needed.
#
#   scripts/test_nvfuser.sh [options of pytest]           for example: scripts/test_nvfuser.sh -k gated -x
#
# They have an environment of their own, .venv-nvfuser, because nvFuser comes for Python 3.10 and 3.12 only and takes,
# together with torch, several gigabytes. Set PYTHON or VENV to choose the interpreter or the place of the environment.
set -euo pipefail
VENV="${VENV:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv-nvfuser}"
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

# The wheel for the torch that the project is developed with.
NVFUSER_REQUIREMENTS=("nvfuser-cu128-torch29==0.2.35.dev20260115")

# is_suitable PYTHON: whether there is a wheel of nvFuser for an interpreter.
is_suitable() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 10), (3, 12)))' >/dev/null 2>&1
}

# find_python: print the interpreter to make the environment with.
find_python() {
    local candidate
    if [[ -n "${PYTHON:-}" ]]; then
        is_suitable "$PYTHON" || fail "PYTHON=$PYTHON is neither Python 3.12 nor 3.10, for which nvFuser is made"
        printf '%s' "$PYTHON"
        return
    fi
    for candidate in python3.12 python3.10; do
        if is_suitable "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    fail "no Python 3.12 or 3.10 was found, for which nvFuser is made; set PYTHON to one"
}

make_environment
need "maturin>=1.9,<2" "${THUNDER_REQUIREMENTS[@]}" "${NVFUSER_REQUIREMENTS[@]}" "${DEMO_REQUIREMENTS[@]}" \
    "pytest>=8.3" "pytest-timeout>=2.3"
install_wheel
cd "$ROOT"
say "Testing the installed wheel with nvFuser: pytest tests/nvfuser $*"
"$VENV_PYTHON" -m pytest tests/nvfuser "$@"
say "All tests passed"
