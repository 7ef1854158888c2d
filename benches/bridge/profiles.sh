#!/usr/bin/env bash
# Builds the native module with several release profiles and times them against each other: see variants.py.
#
#   benches/bridge/profiles.sh [options of variants.py]       for example: benches/bridge/profiles.sh --rounds 31
#
# Needs the environment that scripts/test.sh makes. Set VENV to choose it. Takes about five minutes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/environment.sh"

directory="$ROOT/target/profiles"
modules=()
# The last one shows what it costs that a panic unwinds; it is no choice, since a panic must become an exception.
while read -r name lto units level panic; do
    say "Building $name: lto=$lto codegen-units=$units opt-level=$level panic=$panic"
    CARGO_TARGET_DIR="$directory/build" CARGO_PROFILE_RELEASE_LTO="$lto" \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS="$units" CARGO_PROFILE_RELEASE_OPT_LEVEL="$level" \
        CARGO_PROFILE_RELEASE_PANIC="$panic" PYO3_PYTHON="$VENV_PYTHON" PYO3_BUILD_EXTENSION_MODULE=1 \
        cargo build --quiet --release --locked --manifest-path "$ROOT/rust/shapetrace-python/Cargo.toml"
    mkdir -p "$directory/$name"
    cp "$directory/build/release/lib_core.so" "$directory/$name/_core.so"
    modules+=(--module "$name=$directory/$name/_core.so")
done <<'PROFILES'
fat-1 fat 1 3 unwind
thin-1 thin 1 3 unwind
thin-16 thin 16 3 unwind
off-16 off 16 3 unwind
fat-1-size fat 1 s unwind
fat-1-abort fat 1 3 abort
PROFILES
say "Timing them"
"$VENV_PYTHON" "$ROOT/benches/bridge/variants.py" "${modules[@]}" "$@"
