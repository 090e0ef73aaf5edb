#include "trainyard/nn/execution/device_memory.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "trainyard/nn/graph/fusion.h"

namespace trainyard::nn {
namespace {

int64_t elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

}  // namespace

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

int64_t activation_bytes_per_image(const Graph& graph, int64_t element_bytes, bool training) {
  std::vector<int64_t> sizes;
  for (const int input : graph.inputs()) {
    sizes.push_back(elements(graph.nodes[static_cast<size_t>(input)].shape) * element_bytes);
  }
  int64_t kept = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  for (const Unit& unit : fuse(graph)) {
    const Node& tail = graph.nodes[static_cast<size_t>(unit.tail())];
    const int64_t count = elements(tail.shape);
    const auto* pool = std::get_if<Pool>(&tail.op);
    kept += count * element_bytes;
    if (pool != nullptr && pool->kind == Pool::Kind::kMax) kept += count;
    sizes.push_back(count * element_bytes);
  }
  std::sort(sizes.rbegin(), sizes.rend());
  sizes.resize(std::max<size_t>(sizes.size(), 3));
  return training ? kept + sizes[0] + sizes[1] : sizes[0] + sizes[1] + sizes[2];
}

int64_t largest_batch(int64_t limit, int64_t fixed, int64_t bytes_per_image) {
  return bytes_per_image <= 0 ? 0 : std::max<int64_t>(0, (limit - fixed) / bytes_per_image);
}

core::Error out_of_device_memory(const std::string& where, int64_t asked, const DeviceMemory& memory, int64_t batch,
                                 int64_t fitting_batch) {
  // The estimate leaves scratch memory out, so it may say that the batch which has just failed fits.
  const int64_t smaller = std::min(fitting_batch, batch - 1);
  std::string remedy = "use a smaller model or batch, 16-bit compute, or a GPU with more memory";
  if (batch > 0) remedy = "not even one image fits: " + remedy;
  if (smaller > 0) {
    remedy = fmt::format("a batch of about {} fits: pass --batch_size={}, with --micro_steps for the rest of it",
                         smaller, smaller);
  }
  const std::string limited =
      memory.limit < memory.total ? fmt::format(", of which this process may take {}", gibibytes(memory.limit)) : "";
  return {core::ErrorCode::kNoSpace,
          {.problem = batch > 0 ? fmt::format("out of GPU memory with a batch of {}", batch) : "out of GPU memory",
           .where = where,
           .expected = fmt::format("room for {} more", gibibytes(asked)),
           .actual = fmt::format("{} held by this process ({} in tensors), {} free of {}{}", gibibytes(memory.held),
                                 gibibytes(memory.used), gibibytes(memory.free), gibibytes(memory.total), limited),
           .remedy = remedy}};
}

}  // namespace trainyard::nn
