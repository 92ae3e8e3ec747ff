#!/bin/bash
# From a fresh Debian 12 or 13 to a running npud: installs packages, builds, gets a small model, starts the daemon on
# 127.0.0.1 and streams a completion. Run it again at any time: what is already there is kept.
# usage: quickstart.sh [--port N] [--once]
#   --port N  the port to serve on (default 8080)
#   --once    stop the daemon after the completion instead of leaving it running in the foreground
set -u
cd "$(dirname "$0")" || exit 1
. scripts/setup.sh

port=8080
once=
while [ $# -gt 0 ]; do
    case $1 in
    --port)
        [[ ${2-} =~ ^[0-9]{1,5}$ ]] && [ "$2" -ge 1 ] && [ "$2" -le 65535 ] || fail "--port takes a number from 1 to 65535"
        port=$2
        shift
        ;;
    --once) once=yes ;;
    --help)
        sed -n '2,6s/^# \?//p' "$0"
        exit
        ;;
    *) fail "unknown argument '$1'; see quickstart.sh --help" ;;
    esac
    shift
done

# Prints the text of a stream of completion chunks as it comes.
print_stream() {
    local line text='"text":"(([^"\\]|\\.)*)"'
    while IFS= read -r line || [ -n "$line" ]; do
        [[ $line =~ $text ]] && printf '%b' "${BASH_REMATCH[1]//\\\"/\"}"
        [[ $line == *'"error"'* ]] && printf '%s' "$line"
    done
    echo
}

say "Packages"
install_build_packages

say "Building npud in build/release"
mkdir -p build
{ cmake --preset release -DNPUD_TESTS=OFF -DNPUD_WARNINGS_AS_ERRORS=OFF &&
    cmake --build --preset release -j "$(nproc)"; } >build/quickstart.log 2>&1 ||
    { tail -30 build/quickstart.log; fail "the build failed; all of its output is in build/quickstart.log"; }
build/release/npud --version

say "The model: SmolLM2-135M-Instruct, 4 bits (98 MB)"
fetch_demo_model

say "Starting npud on 127.0.0.1:$port"
build/release/npud --model "$demo_model" --listen "127.0.0.1:$port" &
npud=$!
trap 'kill -TERM $npud 2>/dev/null' TERM EXIT
trap : INT # Ctrl-C reaches npud too
for ((tenths = 0; ; tenths++)); do
    sleep 0.1
    kill -0 $npud 2>/dev/null || fail "npud did not start; its last line says why"
    curl -sf -o /dev/null "http://127.0.0.1:$port/health" && break
    [ $tenths -lt 3000 ] || fail "npud is not ready after five minutes"
done

say "A completion, streamed"
body='{"prompt": "<|im_start|>user\nWhat is an NPU good for?<|im_end|>\n<|im_start|>assistant\n", "max_tokens": 100,
       "temperature": 0, "stream": true}'
printf 'curl -N http://127.0.0.1:%s/v1/completions -H "Content-Type: application/json" -d '"'%s'"'\n\n' "$port" "$body"
curl -sSN --fail-with-body "http://127.0.0.1:$port/v1/completions" -H 'Content-Type: application/json' -d "$body" |
    print_stream
[ "${PIPESTATUS[0]}" -eq 0 ] || fail "the completion failed"

if [ -n "$once" ]; then
    kill -TERM $npud
else
    say "npud goes on serving on http://127.0.0.1:$port; Ctrl-C stops it"
fi
wait $npud
status=$?
while kill -0 $npud 2>/dev/null; do # a signal ends the wait before npud has finished its running answers
    wait $npud
    status=$?
done
exit $status
