#!/bin/bash
# Runs npuctl verify on every model of tests/data/reference: verify_all.sh NPUCTL DATA_DIR [OPTION...]
# Without --executor among the options the device is the one that tests/with_driver.sh has chosen.
set -u
npuctl=$1 data=$2
shift 2
device=(--device "${NPUD_TEST_DEVICE-}")
case " $* " in *" --executor "*) device=() ;; esac

failures=0 models=0
for model in "$data"/*.gguf; do
    name=$(basename "$model" .gguf)
    models=$((models + 1))
    if output=$("$npuctl" verify --model "$model" --reference "$data/$name.json" "${device[@]}" "$@" 2>&1); then
        echo "$name: $(tail -n 1 <<<"$output")"
    else
        failures=$((failures + 1))
        printf '%s: FAILED\n%s\n' "$name" "$output"
    fi
done
echo "$models models, $failures failed"
[ "$models" -ge 17 ] && [ "$failures" -eq 0 ]
