# Makes the Python environment that the other scripts share; to be sourced, not run.
#
#   PYTHON  the interpreter to make the environment with (default: the first of python3.11, python3.12, python3.13,
#           python3.10 and python3 that is suitable)
#   VENV    the place of the environment (default: .venv beside this repository's README)
#
# Gives the functions `say`, `make_environment`, `need` and `install_wheel`. Everything that is there already and
# good is left alone, so that a second run takes seconds.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${VENV:-$ROOT/.venv}"
VENV_PYTHON="$VENV/bin/python"

# The pair that the project is developed and measured with.
THUNDER_REQUIREMENTS=("lightning-thunder==0.2.6" "torch==2.9.1")
DEMO_REQUIREMENTS=("litgpt>=0.5.9" "rich>=13")

# say WORDS...: tell what is going to happen.
say() {
    printf '\n==> %s\n' "$*"
}

# fail WORDS...: say why it does not go on, and stop.
fail() {
    printf '\nerror: %s\n' "$*" >&2
    exit 1
}

# is_suitable PYTHON: whether an interpreter has a version that thunder can use.
is_suitable() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1
}

# find_python: print the interpreter to make the environment with.
find_python() {
    local candidate
    if [[ -n "${PYTHON:-}" ]]; then
        is_suitable "$PYTHON" || fail "PYTHON=$PYTHON is no Python from 3.10 to 3.13"
        printf '%s' "$PYTHON"
        return
    fi
    for candidate in python3.11 python3.12 python3.13 python3.10 python3; do
        if is_suitable "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    fail "no Python from 3.10 to 3.13 was found; set PYTHON to one"
}

# make_environment: create the virtual environment if it is not there.
make_environment() {
    command -v cargo >/dev/null || fail "cargo was not found; Rust 1.85 or newer is needed to build the wheel"
    if [[ -x "$VENV_PYTHON" ]] && is_suitable "$VENV_PYTHON"; then
        say "Using the environment in $VENV"
        return
    fi
    # Whatever is there was made by somebody for something; it is not ours to remove.
    [[ ! -e "$VENV" ]] || fail "$VENV is there but is no working environment; remove it, or set VENV to another place"
    local python
    python="$(find_python)"
    say "Creating an environment in $VENV with $("$python" --version)"
    "$python" -m venv "$VENV"
}

# is_satisfied REQUIREMENT...: whether all of them are installed.
is_satisfied() {
    "$VENV_PYTHON" - "$@" <<'PYTHON' 2>/dev/null
import sys
from importlib import metadata

try:
    from packaging.requirements import Requirement
except ImportError:
    from pip._vendor.packaging.requirements import Requirement

for requirement in map(Requirement, sys.argv[1:]):
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        sys.exit(1)
    if not requirement.specifier.contains(version, prereleases=True):
        sys.exit(1)
PYTHON
}

# need REQUIREMENT...: install what is not there yet.
need() {
    if is_satisfied "$@"; then
        say "Already installed: $*"
        return
    fi
    say "Installing $*"
    "$VENV_PYTHON" -m pip install --disable-pip-version-check "$@"
}

# install_wheel: build the release wheel and install it.
install_wheel() {
    local directory="$ROOT/target/wheel"
    say "Building the release wheel"
    rm -rf "$directory"
    (cd "$ROOT" && "$VENV_PYTHON" -m maturin build --release --locked --interpreter "$VENV_PYTHON" --out "$directory")
    say "Installing the wheel"
    # Without dependencies: they are there, and a wheel of the same version has to replace the one before.
    "$VENV_PYTHON" -m pip install --disable-pip-version-check --force-reinstall --no-deps "$directory"/*.whl
}
