#include <string>

#include <benchmark/benchmark.h>

#include "trainyard/core/files/crc32c.h"

namespace trainyard::core {
namespace {

// The size of a TFRecord's length field, of an image, of a checkpoint's tensor.
void crc32c_of_bytes(benchmark::State& state) {
  const std::string bytes(static_cast<size_t>(state.range(0)), 'x');
  for ([[maybe_unused]] auto iteration : state)
    benchmark::DoNotOptimize(crc32c(std::as_bytes(std::span(bytes.data(), bytes.size()))));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(crc32c_of_bytes)->Arg(8)->Arg(100'000)->Arg(4'000'000);

}  // namespace
}  // namespace trainyard::core
