#!/usr/bin/env bash
# Installs the wheel and the source distribution in clean environments, outside of the source tree, and tries them.
#
#   scripts/test_wheels.sh                          everything that needs no torch, on every Python that is installed
#   scripts/test_wheels.sh --with-thunder 3.11      with thunder and torch on one version (7 GB while it runs)
#   scripts/test_wheels.sh --with-thunder all       the full matrix, one version after the other
#
#   --dist DIRECTORY    what scripts/release.sh made (default: it makes it now, as a draft)
#   --sdist VERSIONS    the versions on which the source distribution is built too (default: all that are tried)
#   --python VERSIONS   the versions to try (default: all that are supported)
#   --use VENV          with --with-thunder: install into this environment, which has thunder and torch already
#
# Environments are made below target/, and removed again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
source "$ROOT/scripts/interpreters.sh"

dist="" versions="$SUPPORTED_PYTHONS" thunder="" sdist="" use=""
while (($#)); do
    case "$1" in
        --dist) dist="$(realpath "$2")" ;;
        --python) versions="$2" ;;
        --sdist) sdist="$2" ;;
        --with-thunder) thunder="$2" ;;
        --use) use="$(realpath "$2")" ;;
        *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 2 ;;
    esac
    shift 2
done
sdist="${sdist:-$versions}"
[[ "$thunder" != all ]] || thunder="$versions"

found=()
for version in $versions; do
    if find_interpreter "$version" >/dev/null; then
        found+=("$version")
    else
        say "Python $version is not installed: it is NOT tried"
    fi
done
((${#found[@]})) || fail "none of $versions is installed"

if [[ -z "$dist" ]]; then
    dist="$ROOT/target/dist"
    "$ROOT/scripts/release.sh" --draft --out "$dist" --python "${found[*]}"
fi

directory="$(mktemp --directory --tmpdir="$ROOT/target" try-XXXXXX)"
trap 'rm -rf "$directory"' EXIT
# Nothing of the source tree but these files, which are no package: what is imported is what was installed.
cp -r "$ROOT/tests/wheels" "$directory/tests"
cp "$ROOT/pyproject.toml" "$directory/pyproject.toml"
cd "$directory"
export PYTHONDONTWRITEBYTECODE=1

# pip_install PYTHON WORDS...: install quietly.
pip_install() {
    "$1" -m pip install --quiet --disable-pip-version-check "${@:2}"
}

# wheel_for VERSION: print the path of the wheel for this version.
wheel_for() {
    local wheels=("$dist"/*-cp"${1/./}"-cp"${1/./}"-*.whl)
    [[ -e "${wheels[0]}" ]] || fail "there is no wheel for Python $1 in $dist"
    printf '%s' "${wheels[0]}"
}

# try_without_thunder VERSION WORDS...: in an environment of its own, what needs no torch.
try_without_thunder() {
    local environment="$directory/plain-$1"
    "$(find_interpreter "$1")" -m venv "$environment"
    pip_install "$environment/bin/python" "pytest>=8.3" "pytest-timeout>=2.3"
    pip_install "$environment/bin/python" --no-deps "${@:2}"
    "$environment/bin/python" tests/smoke.py
    "$environment/bin/python" -m pytest --quiet -p no:cacheprovider tests
    rm -rf "$environment"
}

for version in "${found[@]}"; do
    say "Python $version: the wheel"
    try_without_thunder "$version" "$(wheel_for "$version")"
    if [[ " $sdist " == *" $version "* ]]; then
        say "Python $version: the source distribution"
        # What cargo built before, it need not build again.
        CARGO_TARGET_DIR="$ROOT/target/sdist-build/$version" try_without_thunder "$version" "$dist"/*.tar.gz
    fi
done

for version in $thunder; do
    environment="${use:-$directory/thunder-$version}"
    if [[ -z "$use" ]]; then
        say "Python $version: installing the wheel with thunder and torch"
        "$(find_interpreter "$version")" -m venv "$environment"
        # No cache of pip's: four times torch would fill a disk.
        pip_install "$environment/bin/python" --no-cache-dir "${THUNDER_REQUIREMENTS[@]}" "$(wheel_for "$version")"
    else
        say "Python $version: installing the wheel into $use"
        pip_install "$environment/bin/python" --force-reinstall --no-deps "$(wheel_for "$version")"
    fi
    say "Python $version: the wheel with thunder and torch"
    "$environment/bin/python" tests/smoke.py --thunder
    pip_install "$environment/bin/python" "pytest>=8.3" "pytest-timeout>=2.3"
    "$environment/bin/python" -m pytest --quiet -p no:cacheprovider tests
    [[ -n "$use" ]] || rm -rf "$environment"
done
say "Tried with success: ${found[*]}${thunder:+, with thunder: $thunder}"
