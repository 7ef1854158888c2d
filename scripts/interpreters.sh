# Finds Python interpreters by version; to be sourced, not run.

SUPPORTED_PYTHONS="3.10 3.11 3.12 3.13"

# find_interpreter VERSION: print the path of an interpreter of this version: the first `pythonVERSION` on the path that
# works, or the newest that pyenv has.
find_interpreter() {
    local candidate
    while read -r candidate; do
        if [[ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" == "$1" ]]; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done < <(
        type -ap "python$1"
        find "${PYENV_ROOT:-$HOME/.pyenv}/versions" -path "*/$1.*/bin/python$1" 2>/dev/null | sort --version-sort --reverse
    )
    return 1
}
