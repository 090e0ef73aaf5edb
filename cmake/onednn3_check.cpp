// Fails to compile when the check of cmake/OneDnn3Check.cmake does not see version 3.
#include <oneapi/dnnl/dnnl_version.h>

static_assert(DNNL_VERSION_MAJOR >= 3, "oneDNN's headers are the system's");
