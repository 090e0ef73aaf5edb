#include "tests/cluster_simulation/planted.h"

#include <utility>

namespace trainyard::cluster_simulation {
namespace {

std::string switched_on;  // NOLINT: set once, before the first seed

}  // namespace

bool planted(std::string_view name) {
  return !switched_on.empty() && name == switched_on;
}

void plant(std::string name) {
  switched_on = std::move(name);
}

}  // namespace trainyard::cluster_simulation
