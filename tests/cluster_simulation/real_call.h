// The C library's own functions, which the simulation's definitions hide.
#pragma once

#include <cstdlib>

#include <dlfcn.h>

namespace trainyard::cluster_simulation {

// Returns the C library's function. `version`: the newer of two versions of a name, where there are two.
template <typename Function>
Function* real(const char* name, const char* version = nullptr) {
  void* const found = version == nullptr ? nullptr : ::dlvsym(RTLD_NEXT, name, version);
  void* const function = found != nullptr ? found : ::dlsym(RTLD_NEXT, name);
  if (function == nullptr) std::abort();
  return reinterpret_cast<Function*>(function);
}

}  // namespace trainyard::cluster_simulation

// Calls the C library's function of the enclosing function's name.
#define TRAINYARD_REAL(name, version, ...)                                                             \
  do {                                                                                                 \
    static auto* const function = trainyard::cluster_simulation::real<decltype(name)>(#name, version); \
    return function(__VA_ARGS__);                                                                      \
  } while (false)
