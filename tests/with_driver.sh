#!/bin/bash
# Runs a command with one OpenCL driver and no other: with_driver.sh pocl|intel|rusticl COMMAND...
# Exits with 77, which ctest counts as skipped, when that driver is not installed.
set -u
driver=$1
shift
top=$(cd "$(dirname "$0")/.." && pwd)

case $driver in
pocl)
    icd=/etc/OpenCL/vendors/pocl.icd
    hint='the package pocl-opencl-icd'
    selector='Portable Computing Language'
    ;;
intel) # run-tests.sh puts it there
    icd=$top/build/drivers/intel/intel.icd
    hint="Intel's CPU runtime, which run-tests.sh installs"
    selector=Intel
    ;;
rusticl)
    icd=/etc/OpenCL/vendors/rusticl.icd
    hint='the package mesa-opencl-icd'
    selector=rusticl
    export RUSTICL_ENABLE=llvmpipe
    ;;
*)
    echo "with_driver.sh: the driver must be pocl, intel or rusticl, not '$driver'" >&2
    exit 2
    ;;
esac

if [ ! -f "$icd" ]; then
    echo "OpenCL driver $driver: skipped, not installed ($hint)"
    exit 77
fi
export OCL_ICD_VENDORS=$icd NPUD_TEST_DEVICE=$selector
exec "$@"
