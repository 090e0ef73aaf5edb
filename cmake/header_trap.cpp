// Fails to compile when a header of LibTorch's wheel wins over the system's: see cmake/HeaderTrap.cmake.
#include <ATen/core/Tensor.h>
#include <fmt/core.h>
#include <oneapi/dnnl/dnnl_version.h>

static_assert(DNNL_VERSION_MAJOR == SYSTEM_DNNL_MAJOR && DNNL_VERSION_MINOR == SYSTEM_DNNL_MINOR,
              "oneDNN's headers are not those of the library that is linked");
static_assert(FMT_VERSION / 10000 == SYSTEM_FMT_MAJOR && FMT_VERSION / 100 % 100 == SYSTEM_FMT_MINOR,
              "fmt's headers are not those of the library that is linked");
