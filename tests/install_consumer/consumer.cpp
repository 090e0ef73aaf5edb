// Uses the installed library from outside its tree.
#include <cstdio>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/core/build_info.h"
#include "trainyard/core/error.h"

int main() {
  namespace core = trainyard::core;
  const core::Error error(core::ErrorCode::kNotFound, {.problem = "no such thing", .where = "here"});
  if (std::string(error.what()) != "no such thing: here") return 1;
  if (at::Tensor().defined()) return 1;
  std::printf("built against trainyard %s\n", std::string(core::build_info().version).c_str());
  return 0;
}
