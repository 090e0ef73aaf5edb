// The CPU plan's kernels at shapes where they take much time, as bytes a second of the least traffic that they can do:
// every input read once, every output written once. Compared with a plain copy, and with oneDNN's pooling of the same
// maps.
#include <cstring>
#include <unordered_map>

#include <benchmark/benchmark.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/testing/memory.h"

namespace trainyard::nn::cpu {
namespace {

// What a kernel works on. Counts its bytes into the benchmark's traffic.
class Arena {
 public:
  explicit Arena(benchmark::State& state) : state_(state) {}
  ~Arena() { state_.SetBytesProcessed(state_.iterations() * traffic_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  DataType dtype() const { return state_.range(0) == 4 ? DataType::kFloat : DataType::kBfloat16; }
  void* bytes(int64_t count) {
    traffic_ += count;
    return memory_.zeros(count);
  }
  void* map(const MapShape& shape) { return bytes(shape.elements() * size_of(dtype())); }
  float* floats(int64_t count) { return static_cast<float*>(bytes(count * 4)); }
  uint8_t* mask(int64_t count) { return static_cast<uint8_t*>(bytes(count)); }

 private:
  benchmark::State& state_;
  BenchMemory memory_;
  int64_t traffic_ = 0;
};

MapShape shape_of(int64_t channels, int64_t size) {
  return {32, channels, size, size, channel_block()};
}

// Measures kernel(arguments(arena)).
template <typename Arguments, typename MakeArguments>
void measure(benchmark::State& state, void (*kernel)(const Arguments&), MakeArguments arguments) {
  Arena arena(state);
  const Arguments a = arguments(arena);
  for (auto _ : state) kernel(a);
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
  measure(state, sum_forward, [shape = shape_of(256, 56)](Arena& arena) {
    return SumForward{.shape = shape,
                      .dtype = arena.dtype(),
                      .activation = UnitActivation::kRelu,
                      .inputs = {arena.map(shape), arena.map(shape)},
                      .mask = arena.mask(shape.elements() / 8),
                      .output = arena.map(shape)};
  });
}

void silu_backward(benchmark::State& state) {
  measure(state, activation_backward, [shape = shape_of(144, 56)](Arena& arena) {
    return ActivationBackward{.shape = shape,
                              .dtype = arena.dtype(),
                              .activation = UnitActivation::kSilu,
                              .gradients = {arena.map(shape)},
                              .input = arena.map(shape),
                              .input_gradient = arena.map(shape)};
  });
}

// ResNet's only pooling.
constexpr Window kStem = {3, 3, 2, 2, 1, 1};

void max_pool(benchmark::State& state) {
  measure(state, max_pool_forward, [in = shape_of(64, 112), out = shape_of(64, 56)](Arena& arena) {
    return MaxPoolForward{.input_shape = in,
                          .output_shape = out,
                          .dtype = arena.dtype(),
                          .window = kStem,
                          .input = arena.map(in),
                          .output = arena.map(out),
                          .argmax = arena.mask(out.elements())};
  });
}

void max_pool_back(benchmark::State& state) {
  measure(state, max_pool_backward, [in = shape_of(64, 112), out = shape_of(64, 56)](Arena& arena) {
    return MaxPoolBackward{.input_shape = in,
                           .output_shape = out,
                           .dtype = arena.dtype(),
                           .window = kStem,
                           .gradient = arena.map(out),
                           .argmax = arena.mask(out.elements()),
                           .input_gradient = arena.map(in)};
  });
}

void onednn_max_pool(benchmark::State& state, bool back) {
  Arena arena(state);
  const MapShape in = shape_of(64, 112), out = shape_of(64, 56);
  const auto type = arena.dtype() == DataType::kFloat ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  const auto tag = channel_block() == 16 ? dnnl::memory::format_tag::nChw16c : dnnl::memory::format_tag::nChw8c;
  const dnnl::memory::desc in_map({in.batch, in.channels, in.height, in.width}, type, tag);
  const dnnl::memory::desc out_map({out.batch, out.channels, out.height, out.width}, type, tag);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto maximum = dnnl::algorithm::pooling_max;
  const dnnl::memory::dims strides = {2, 2}, kernel = {3, 3}, padding = {1, 1};
  const dnnl::pooling_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, maximum, in_map, out_map, strides, kernel, padding, padding}, engine);
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

void average_pool_back(benchmark::State& state) {  // Inception's
  measure(state, average_pool_backward, [shape = shape_of(288, 35)](Arena& arena) {
    return AveragePool{.input_shape = shape,
                       .output_shape = shape,
                       .dtype = arena.dtype(),
                       .window = {3, 3, 1, 1, 1, 1},
                       .input = arena.map(shape),
                       .output = arena.map(shape)};
  });
}

void global_average(benchmark::State& state) {
  measure(state, global_average_forward, [shape = shape_of(144, 56)](Arena& arena) {
    return GlobalAverageForward{.shape = shape,
                                .dtype = arena.dtype(),
                                .input = arena.map(shape),
                                .output = arena.floats(shape.batch * shape.channels)};
  });
}

void scale_channels_back(benchmark::State& state) {
  measure(state, scale_channels_backward, [shape = shape_of(144, 56)](Arena& arena) {
    return ScaleChannelsBackward{.shape = shape,
                                 .dtype = arena.dtype(),
                                 .gradient = arena.map(shape),
                                 .input = arena.map(shape),
                                 .factor = arena.floats(shape.batch * shape.channels),
                                 .input_gradient = arena.map(shape),
                                 .factor_gradient = arena.floats(shape.batch * shape.channels)};
  });
}

void concat(benchmark::State& state) {  // DenseNet's, moved by three lanes: blocks take lanes of two
  measure(state, copy_channels, [source = shape_of(248, 28), target = shape_of(256, 28)](Arena& arena) {
    return CopyChannels{.source_shape = source,
                        .target_shape = target,
                        .dtype = arena.dtype(),
                        .to = 3,
                        .count = 248,
                        .source = arena.map(source),
                        .target = arena.map(target),
                        .clear_rest = true};
  });
}

void local_response_back(benchmark::State& state) {  // AlexNet's
  measure(state, local_response_backward, [shape = shape_of(96, 55)](Arena& arena) {
    return LocalResponseBackward{.shape = shape,
                                 .dtype = arena.dtype(),
                                 .radius = 2,
                                 .bias = 2,
                                 .alpha = 1e-4F,
                                 .beta = 0.75F,
                                 .gradient = arena.map(shape),
                                 .input = arena.map(shape),
                                 .input_gradient = arena.map(shape)};
  });
}

void pack(benchmark::State& state) {
  measure(state, to_blocked, [shape = shape_of(64, 56)](Arena& arena) {
    return ToBlocked{.shape = shape,
                     .dtype = arena.dtype(),
                     .plain = arena.floats(shape.elements()),
                     .strides = {shape.channels * shape.pixels(), shape.pixels(), shape.width, 1},
                     .map = arena.map(shape)};
  });
}

void unpack(benchmark::State& state) {
  measure(state, to_plain, [shape = shape_of(64, 56)](Arena& arena) {
    return ToPlain{
        .shape = shape, .dtype = arena.dtype(), .map = arena.map(shape), .plain = arena.floats(shape.elements())};
  });
}

void both_dtypes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("bytes")->Arg(4)->Arg(2)->UseRealTime();  // of an element of the map
}

BENCHMARK(copy)->Arg(98)->UseRealTime();  // MiB, a map of ResNet's first layers
BENCHMARK(sum_relu_mask)->Apply(both_dtypes);
BENCHMARK(silu_backward)->Apply(both_dtypes);
BENCHMARK(max_pool)->Apply(both_dtypes);
BENCHMARK_CAPTURE(onednn_max_pool, forward, false)->Apply(both_dtypes);
BENCHMARK(max_pool_back)->Apply(both_dtypes);
BENCHMARK_CAPTURE(onednn_max_pool, backward, true)->Apply(both_dtypes);
BENCHMARK(average_pool_back)->Apply(both_dtypes);
BENCHMARK(global_average)->Apply(both_dtypes);
BENCHMARK(scale_channels_back)->Apply(both_dtypes);
BENCHMARK(concat)->Apply(both_dtypes);
BENCHMARK(local_response_back)->Apply(both_dtypes);
BENCHMARK(pack)->Apply(both_dtypes);
BENCHMARK(unpack)->Apply(both_dtypes);

}  // namespace
}  // namespace trainyard::nn::cpu
