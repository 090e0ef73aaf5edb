// The CPU plan's kernels at their hot shapes, as bytes a second of the least traffic that they can do: every input read
// once, every output written once. Beside them a plain copy, and oneDNN's pooling of the same maps.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include <benchmark/benchmark.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "trainyard/nn/cpu/kernels/kernels.h"

namespace trainyard::nn::cpu {
namespace {

struct Free {
  void operator()(void* block) const { std::free(block); }
};

// Memory like the plan's: on a cache line, written once. Counts its bytes into the benchmark's traffic.
class Arena {
 public:
  explicit Arena(benchmark::State& state) : state_(state) {}
  ~Arena() { state_.SetBytesProcessed(state_.iterations() * traffic_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* bytes(int64_t count) {
    const auto size = static_cast<size_t>((count + 63) / 64 * 64);
    blocks_.emplace_back(std::aligned_alloc(64, size));
    std::memset(blocks_.back().get(), 0, size);
    traffic_ += count;
    return blocks_.back().get();
  }
  void* map(const MapShape& shape, DataType dtype) { return bytes(shape.elements() * size_of(dtype)); }
  float* floats(int64_t count) { return static_cast<float*>(bytes(count * 4)); }

 private:
  benchmark::State& state_;
  std::vector<std::unique_ptr<void, Free>> blocks_;
  int64_t traffic_ = 0;
};

DataType dtype_of(const benchmark::State& state) {
  return state.range(0) == 4 ? DataType::kFloat : DataType::kBfloat16;
}
MapShape shape_of(int64_t channels, int64_t size) {
  return {32, channels, size, size, channel_block()};
}

void copy(benchmark::State& state) {
  constexpr int64_t kPart = 1 << 20;
  const int64_t parts = state.range(0);
  Arena arena(state);
  char* const to = static_cast<char*>(arena.bytes(parts * kPart));
  const char* const from = static_cast<char*>(arena.bytes(parts * kPart));
  for (auto _ : state) {
#pragma omp parallel for
    for (int64_t i = 0; i < parts; ++i) std::memcpy(to + i * kPart, from + i * kPart, kPart);
  }
}

void sum_relu_mask(benchmark::State& state) {
  Arena arena(state);
  const MapShape shape = shape_of(256, 56);
  const DataType dtype = dtype_of(state);
  const SumForward a{.shape = shape,
                     .dtype = dtype,
                     .activation = UnitActivation::kRelu,
                     .inputs = {arena.map(shape, dtype), arena.map(shape, dtype)},
                     .mask = static_cast<uint8_t*>(arena.bytes(shape.elements() / 8)),
                     .output = arena.map(shape, dtype)};
  for (auto _ : state) sum_forward(a);
}

void sum_of_three_backward(benchmark::State& state) {
  Arena arena(state);
  const MapShape shape = shape_of(256, 28);
  const DataType dtype = dtype_of(state);
  const ActivationBackward a{.shape = shape,
                             .dtype = dtype,
                             .activation = UnitActivation::kNone,
                             .gradients = {arena.map(shape, dtype), arena.map(shape, dtype), arena.map(shape, dtype)},
                             .gradient_count = 3,
                             .input_gradient = arena.map(shape, dtype)};
  for (auto _ : state) activation_backward(a);
}

void silu_backward(benchmark::State& state) {
  Arena arena(state);
  const MapShape shape = shape_of(144, 56);
  const DataType dtype = dtype_of(state);
  const ActivationBackward a{.shape = shape,
                             .dtype = dtype,
                             .activation = UnitActivation::kSilu,
                             .gradients = {arena.map(shape, dtype)},
                             .input = arena.map(shape, dtype),
                             .input_gradient = arena.map(shape, dtype)};
  for (auto _ : state) activation_backward(a);
}

// ResNet's only pooling.
constexpr Window kStem = {3, 3, 2, 2, 1, 1};

void max_pool(benchmark::State& state) {
  Arena arena(state);
  const MapShape in = shape_of(64, 112), out = shape_of(64, 56);
  const DataType dtype = dtype_of(state);
  const MaxPoolForward a{.input_shape = in,
                         .output_shape = out,
                         .dtype = dtype,
                         .window = kStem,
                         .input = arena.map(in, dtype),
                         .output = arena.map(out, dtype),
                         .place = static_cast<uint8_t*>(arena.bytes(out.elements()))};
  for (auto _ : state) max_pool_forward(a);
}

void max_pool_back(benchmark::State& state) {
  Arena arena(state);
  const MapShape in = shape_of(64, 112), out = shape_of(64, 56);
  const DataType dtype = dtype_of(state);
  const MaxPoolBackward a{.input_shape = in,
                          .output_shape = out,
                          .dtype = dtype,
                          .window = kStem,
                          .gradient = arena.map(out, dtype),
                          .place = static_cast<uint8_t*>(arena.bytes(out.elements())),
                          .input_gradient = arena.map(in, dtype)};
  for (auto _ : state) max_pool_backward(a);
}

void onednn_max_pool(benchmark::State& state, bool back) {
  const MapShape in = shape_of(64, 112), out = shape_of(64, 56);
  const auto type = dtype_of(state) == DataType::kFloat ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  const auto tag = channel_block() == 16 ? dnnl::memory::format_tag::nChw16c : dnnl::memory::format_tag::nChw8c;
  const dnnl::memory::desc in_map({in.batch, in.channels, in.height, in.width}, type, tag);
  const dnnl::memory::desc out_map({out.batch, out.channels, out.height, out.width}, type, tag);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto maximum = dnnl::algorithm::pooling_max;
  const dnnl::memory::dims strides = {2, 2}, kernel = {3, 3}, padding = {1, 1};
  const dnnl::pooling_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, maximum, in_map, out_map, strides, kernel, padding, padding}, engine);
  Arena arena(state);
  dnnl::memory source(in_map, engine, arena.bytes(static_cast<int64_t>(in_map.get_size())));
  dnnl::memory target(out_map, engine, arena.bytes(static_cast<int64_t>(out_map.get_size())));
  const auto places = forward.workspace_desc();
  dnnl::memory place(places, engine, arena.bytes(static_cast<int64_t>(places.get_size())));
  dnnl::pooling_forward(forward).execute(stream,
                                         {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, target}, {DNNL_ARG_WORKSPACE, place}});
  const dnnl::pooling_backward::primitive_desc backward({maximum, in_map, out_map, strides, kernel, padding, padding},
                                                        engine, forward);
  const dnnl::primitive primitive =
      back ? dnnl::primitive(dnnl::pooling_backward(backward)) : dnnl::primitive(dnnl::pooling_forward(forward));
  const std::unordered_map<int, dnnl::memory> arguments = {{back ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, source},
                                                           {back ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, target},
                                                           {DNNL_ARG_WORKSPACE, place}};
  for (auto _ : state) {
    primitive.execute(stream, arguments);
    stream.wait();
  }
}
void onednn_max_pool(benchmark::State& state) {
  onednn_max_pool(state, false);
}
void onednn_max_pool_back(benchmark::State& state) {
  onednn_max_pool(state, true);
}

void average_pool_back(benchmark::State& state) {  // Inception's
  Arena arena(state);
  const MapShape shape = shape_of(288, 35);
  const DataType dtype = dtype_of(state);
  const AveragePool a{.input_shape = shape,
                      .output_shape = shape,
                      .dtype = dtype,
                      .window = {3, 3, 1, 1, 1, 1},
                      .input = arena.map(shape, dtype),
                      .output = arena.map(shape, dtype)};
  for (auto _ : state) average_pool_backward(a);
}

void global_average(benchmark::State& state) {
  Arena arena(state);
  const MapShape shape = shape_of(144, 56);
  const DataType dtype = dtype_of(state);
  const GlobalAverageForward a{.shape = shape,
                               .dtype = dtype,
                               .input = arena.map(shape, dtype),
                               .output = arena.floats(shape.batch * shape.channels)};
  for (auto _ : state) global_average_forward(a);
}

void global_average_back(benchmark::State& state) {
  Arena arena(state);
  const MapShape shape = shape_of(144, 56);
  const DataType dtype = dtype_of(state);
  const GlobalAverageBackward a{.shape = shape,
                                .dtype = dtype,
                                .gradient = arena.floats(shape.batch * shape.channels),
                                .input_gradient = arena.map(shape, dtype)};
  for (auto _ : state) global_average_backward(a);
}

void scale_channels(benchmark::State& state) {
  Arena arena(state);
  const MapShape shape = shape_of(144, 56);
  const DataType dtype = dtype_of(state);
  const ScaleChannelsForward a{.shape = shape,
                               .dtype = dtype,
                               .input = arena.map(shape, dtype),
                               .factor = arena.floats(shape.batch * shape.channels),
                               .output = arena.map(shape, dtype)};
  for (auto _ : state) scale_channels_forward(a);
}

void scale_channels_back(benchmark::State& state) {
  Arena arena(state);
  const MapShape shape = shape_of(144, 56);
  const DataType dtype = dtype_of(state);
  const ScaleChannelsBackward a{.shape = shape,
                                .dtype = dtype,
                                .gradient = arena.map(shape, dtype),
                                .input = arena.map(shape, dtype),
                                .factor = arena.floats(shape.batch * shape.channels),
                                .input_gradient = arena.map(shape, dtype),
                                .factor_gradient = arena.floats(shape.batch * shape.channels)};
  for (auto _ : state) scale_channels_backward(a);
}

void concat(benchmark::State& state) {  // DenseNet's: from lane 0 to lane 8 of a block, and its neighbour
  Arena arena(state);
  const MapShape source = shape_of(248, 28), target = shape_of(256, 28);
  const DataType dtype = dtype_of(state);
  const CopyChannels a{.source_shape = source,
                       .target_shape = target,
                       .dtype = dtype,
                       .to = 3,
                       .count = 248,
                       .source = arena.map(source, dtype),
                       .target = arena.map(target, dtype),
                       .clear_rest = true};
  for (auto _ : state) copy_channels(a);
}

void local_response_back(benchmark::State& state) {  // AlexNet's
  Arena arena(state);
  const MapShape shape = shape_of(96, 55);
  const DataType dtype = dtype_of(state);
  const LocalResponseBackward a{.shape = shape,
                                .dtype = dtype,
                                .radius = 2,
                                .bias = 2,
                                .alpha = 1e-4F,
                                .beta = 0.75F,
                                .gradient = arena.map(shape, dtype),
                                .input = arena.map(shape, dtype),
                                .input_gradient = arena.map(shape, dtype)};
  for (auto _ : state) local_response_backward(a);
}

void pack(benchmark::State& state) {
  Arena arena(state);
  const MapShape shape = shape_of(64, 56);
  const DataType dtype = dtype_of(state);
  const ToBlocked a{.shape = shape,
                    .dtype = dtype,
                    .plain = arena.floats(shape.elements()),
                    .strides = {shape.channels * shape.pixels(), shape.pixels(), shape.width, 1},
                    .map = arena.map(shape, dtype)};
  for (auto _ : state) to_blocked(a);
}

void unpack(benchmark::State& state) {
  Arena arena(state);
  const MapShape shape = shape_of(64, 56);
  const DataType dtype = dtype_of(state);
  const ToPlain a{
      .shape = shape, .dtype = dtype, .map = arena.map(shape, dtype), .plain = arena.floats(shape.elements())};
  for (auto _ : state) to_plain(a);
}

BENCHMARK(copy)->Arg(98)->UseRealTime();  // MiB, a map of ResNet's first layers
// Bytes an element of the map.
#define TRAINYARD_BENCHMARK(name) BENCHMARK(name)->ArgName("bytes")->Arg(4)->Arg(2)->UseRealTime()
TRAINYARD_BENCHMARK(sum_relu_mask);
TRAINYARD_BENCHMARK(sum_of_three_backward);
TRAINYARD_BENCHMARK(silu_backward);
TRAINYARD_BENCHMARK(max_pool);
TRAINYARD_BENCHMARK(onednn_max_pool);
TRAINYARD_BENCHMARK(max_pool_back);
TRAINYARD_BENCHMARK(onednn_max_pool_back);
TRAINYARD_BENCHMARK(average_pool_back);
TRAINYARD_BENCHMARK(global_average);
TRAINYARD_BENCHMARK(global_average_back);
TRAINYARD_BENCHMARK(scale_channels);
TRAINYARD_BENCHMARK(scale_channels_back);
TRAINYARD_BENCHMARK(concat);
TRAINYARD_BENCHMARK(local_response_back);
TRAINYARD_BENCHMARK(pack);
TRAINYARD_BENCHMARK(unpack);

}  // namespace
}  // namespace trainyard::nn::cpu
