#!/bin/bash
# Installs what the tests need, builds npud in every way that is tested, and runs all tests. For Debian 12 and 13.
# usage: run-tests.sh [--long] [ctest arguments]     e.g. run-tests.sh -R unit
#   --long  also what takes long (ctest label "long")
set -u
cd "$(dirname "$0")" || exit 1
. scripts/setup.sh

selection=(-LE long)
if [ "${1-}" = --long ]; then
    selection=()
    shift
fi

# A virtual environment with exactly the packages that a file lists.
python_environment() {
    if cmp -s "$2" "$1/requirements.txt"; then
        echo "already there: $1"
        return
    fi
    rm -rf "$1"
    python3 -m venv "$1" || fail "python3 -m venv failed; is python3-venv installed?"
    "$1/bin/pip" install -q --disable-pip-version-check -r "$2" || fail "the packages of $2 could not be installed"
    cp "$2" "$1/requirements.txt"
}

install_intel_runtime() {
    local folder=build/drivers/intel
    if [ -f "$folder/intel.icd" ]; then
        echo "already there: Intel's CPU runtime"
        return
    fi
    rm -rf "$folder" && mkdir -p "$folder" && python3 -m venv "$folder/venv" &&
        "$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile intel-opencl-rt==2026.2.0 \
            intel-cmplr-lib-rt==2026.2.0 && find "$PWD/$folder/venv" -name libintelocl.so >"$folder/found" &&
        [ -s "$folder/found" ] && mv "$folder/found" "$folder/intel.icd" && return
    rm -rf "$folder"
    echo "Intel's CPU runtime could not be installed: its tests will be skipped"
}

# Out of its package, which would start a server if it were installed.
unpack_promtool() {
    local folder=build/prometheus
    if command -v promtool >/dev/null || [ -x build/promtool ]; then
        echo "already there: promtool"
        return
    fi
    rm -rf "$folder" && mkdir -p "$folder" && (cd "$folder" && apt-get download -qq prometheus) &&
        dpkg -x "$folder"/*.deb "$folder" && mv "$folder/usr/bin/promtool" build/promtool
    rm -rf "$folder"
    [ -x build/promtool ] || echo "promtool could not be unpacked: its test will be skipped"
}

# Real chat templates, out of a package's sources. Nothing of it is built.
fetch_chat_templates() {
    local folder=build/templates version=0.3.36
    if [ -f "$folder/README.md" ]; then
        echo "already there: chat templates"
        return
    fi
    rm -rf "$folder" build/templates-download && mkdir -p build/templates-download &&
        build/venv/bin/pip download -q --disable-pip-version-check --no-deps --no-binary :all: \
            -d build/templates-download "llama-cpp-python==$version" &&
        tar -xzf build/templates-download/*.tar.gz -C build/templates-download \
            "llama_cpp_python-$version/vendor/llama.cpp/models/templates" &&
        mv "build/templates-download/llama_cpp_python-$version/vendor/llama.cpp/models/templates" "$folder" &&
        rm -rf build/templates-download && return
    echo "the chat templates could not be downloaded: their tests will be skipped"
}

# The JSON Schema Test Suite, out of the sources of the package that validates. Nothing of it is built.
fetch_schemas() {
    local folder=build/schemas version
    version=$(sed -n 's/^jsonschema==//p' tests/requirements.txt)
    if [ -d "$folder" ]; then
        echo "already there: JSON schemas"
        return
    fi
    rm -rf build/schemas-download && mkdir -p build/schemas-download &&
        build/venv/bin/pip download -q --disable-pip-version-check --no-deps --no-binary jsonschema \
            -d build/schemas-download "jsonschema==$version" &&
        tar -xzf build/schemas-download/*.tar.gz -C build/schemas-download "jsonschema-$version/json/tests" &&
        mv "build/schemas-download/jsonschema-$version/json/tests" "$folder" &&
        rm -rf build/schemas-download && return
    echo "the JSON schemas could not be downloaded: their tests will be skipped"
}

# Clients for Node.js, as tests/sdk/package-lock.json lists them.
install_node_packages() {
    local folder=build/sdk
    if ! command -v npm >/dev/null; then
        echo "npm is not installed: the tests of clients for Node.js will be skipped"
    elif cmp -s tests/sdk/package-lock.json "$folder/installed.json"; then
        echo "already there: $folder"
    else
        rm -rf "$folder" && mkdir -p "$folder" && cp tests/sdk/package.json tests/sdk/package-lock.json "$folder" &&
            (cd "$folder" && npm ci --silent --no-audit --no-fund --ignore-scripts) &&
            cp tests/sdk/package-lock.json "$folder/installed.json" && return
        rm -rf "$folder"
        echo "the packages of tests/sdk could not be installed: the tests of clients for Node.js will be skipped"
    fi
}

build_preset() {
    say "Building: $1"
    cmake --preset "$1" >"build/$1.log" 2>&1 || { cat "build/$1.log"; fail "cmake --preset $1 failed"; }
    cmake --build --preset "$1" -j "$(nproc)" >>"build/$1.log" 2>&1 || { tail -50 "build/$1.log"; fail "build of $1 failed"; }
    presets+=("$1")
}

say "Packages"
install_build_packages libcmocka-dev mesa-opencl-icd systemd util-linux clang libclang-rt-dev
mkdir -p build

say "Python packages of the tests"
python_environment build/venv tests/requirements.txt
if [ ${#selection[@]} -eq 0 ]; then
    python_environment build/reference-venv tests/reference/requirements.txt
    python_environment build/sdk-venv tests/sdk/requirements.txt
fi

say "Clients for Node.js"
install_node_packages

say "Chat templates of real models"
fetch_chat_templates

say "JSON schemas of the JSON Schema Test Suite"
fetch_schemas

say "Intel's CPU runtime, a second OpenCL driver (830 MB)"
install_intel_runtime

say "promtool, which checks the metrics"
unpack_promtool

say "The models"
fetch_demo_model
fetch_gemma_model

presets=()
build_preset release
build_preset asan
build_preset tsan
build_preset fuzz

say "Tests"
# One ctest run over all builds, so that there is one summary.
printf 'subdirs("%s")\n' "${presets[@]}" >build/CTestTestfile.cmake
ctest --test-dir build -j "$(nproc)" --output-on-failure --timeout 600 "${selection[@]}" "$@" | tee build/ctest.log
status=${PIPESTATUS[0]}
exit "$status"
