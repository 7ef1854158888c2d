#!/usr/bin/env bash
# Random programs, many times as many as in a usual run of the tests, and different ones each time.
#
#   scripts/fuzz.sh [TIMES] [options of pytest]    TIMES is how many times as many; 22 if not given, about half an hour
#
# With 22 there are more than 20,000 random traces on which level "compat" has to do what thunder's own pass does, more
# than 20,000 on which level "full" has to keep every effect, every value and every number, and more than 15,000 for the
# verifier. hypothesis shrinks what it finds and prints it with the line that repeats it: it goes into the tests as an
# `@example`, or as a test of its own. The core has its own random programs (SHAPETRACE_CASES), and if cargo-fuzz and a
# nightly compiler are there its inputs are fuzzed as well, for FUZZ_SECONDS each (60 if not set).
#
# Set VENV to choose the environment; scripts/test.sh makes it and installs the wheel.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"

times="${1:-22}"
shift || true
[[ "$times" =~ ^[0-9]+$ ]] || fail "the first argument is how many times as many programs, a number; not $times"

say "Random traces against thunder's pass, $times times as many"
SHAPETRACE_FUZZ="$times" "$VENV_PYTHON" -m pytest --timeout=0 tests/test_equivalence.py tests/test_full_properties.py \
    tests/test_verifier.py tests/test_scalar_arithmetic.py "$@"

say "Random programs in the core"
SHAPETRACE_CASES="$times" cargo test --locked --release --package shapetrace-core --test properties

if cargo +nightly fuzz --version >/dev/null 2>&1; then
    for target in text builder; do
        say "Fuzzing the core's $target"
        mkdir -p "fuzz/corpus/$target"
        if [[ "$target" == text ]]; then
            for file in tests/filetests/*/*.trace; do cp "$file" "fuzz/corpus/text/$(tr / _ <<<"$file")"; done
        fi
        (cd fuzz && cargo +nightly fuzz run "$target" -- \
            -max_total_time="${FUZZ_SECONDS:-60}" -rss_limit_mb=1024 -timeout=10)
    done
else
    say "cargo-fuzz is not there, or no nightly compiler: the core's inputs are not fuzzed"
fi
say "Nothing found"
