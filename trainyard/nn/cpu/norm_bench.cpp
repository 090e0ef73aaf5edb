// Batch normalization with ReLU, in turn with oneDNN's (fuse_norm_relu) and with a copy of the same bytes. There is one
// shape each of ResNet-50 at batch 32, resnet20 at 128 and MobileNetV2. The counters are GB/s of the least traffic:
// forward reads the input and writes the output, backward reads input and gradient and writes a gradient, a residual is
// read (forward) or written (backward). Each counter is that of the fastest turn, since other programs on the machine
// only make turns slower. The benchmark's own time is that of our kernel.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "trainyard/core/testing/seconds_of.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/testing/memory.h"

namespace trainyard::nn::cpu {
namespace {

struct Buffers {
  explicit Buffers(const MapShape& shape, DataType dtype)
      : map_bytes(shape.elements() * size_of(dtype)),
        mask(static_cast<uint8_t*>(memory.zeros(shape.elements() / 8))),
        channels(shape.padded_channels()) {}

  // Numbers of both signs in both dtypes; neither denormal nor huge.
  void* numbers() {
    auto* map = static_cast<uint8_t*>(memory.zeros(map_bytes));
    constexpr int64_t kPattern = 1 << 16;
    uint32_t state = 1;
    for (int64_t i = 0; i + 1 < std::min(kPattern, map_bytes); i += 2) {
      state = state * 1664525 + 1013904223;
      map[i] = static_cast<uint8_t>(state >> 22);
      map[i + 1] = static_cast<uint8_t>(0x3D + (state >> 31) * 0x80 + (state >> 30) % 2);
    }
    for (int64_t i = kPattern; i < map_bytes; i += kPattern)
      std::memcpy(map + i, map, static_cast<size_t>(std::min(kPattern, map_bytes - i)));
    return map;
  }
  void* zeros() { return memory.zeros(map_bytes); }
  float* ones() {
    auto* vector = static_cast<float*>(memory.zeros(channels * 4));
    std::fill(vector, vector + channels, 1.0F);
    return vector;
  }

  BenchMemory memory;
  int64_t map_bytes;
  uint8_t* mask;
  int64_t channels;
  void *input = numbers(), *residual = numbers(), *gradient = numbers();
  void *output = zeros(), *masked = zeros(), *input_gradient = zeros();
  float *weight = ones(), *bias = ones(), *mean = ones(), *variance = ones(), *scale = ones(), *shift = ones();
  float *weight_gradient = ones(), *bias_gradient = ones();
};

// oneDNN's batch normalization, forward or backward, on the same layout.
class Dnnl {
 public:
  Dnnl(const MapShape& s, DataType dtype, bool backward, Buffers& b) : stream_(engine_) {
    using Flags = dnnl::normalization_flags;
    const Flags flags = Flags::use_scale | Flags::use_shift | Flags::fuse_norm_relu;
    const dnnl::memory::desc map(
        {s.batch, s.padded_channels(), s.height, s.width},
        dtype == DataType::kFloat ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16,
        s.block == 16 ? dnnl::memory::format_tag::nChw16c : dnnl::memory::format_tag::nChw8c);
    const dnnl::batch_normalization_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, map, 1e-5F, flags}, engine_);
    add(DNNL_ARG_SRC, map, b.input);
    add(DNNL_ARG_DST, map, b.output);
    add(DNNL_ARG_MEAN, forward.mean_desc(), b.mean);
    add(DNNL_ARG_VARIANCE, forward.variance_desc(), b.variance);
    add(DNNL_ARG_SCALE, forward.mean_desc(), b.weight);
    add(DNNL_ARG_SHIFT, forward.mean_desc(), b.bias);
    arguments_.emplace(DNNL_ARG_WORKSPACE, dnnl::memory(forward.workspace_desc(), engine_));
    primitive_ = dnnl::batch_normalization_forward(forward);
    if (!backward) return;
    run();  // fills the workspace
    add(DNNL_ARG_DIFF_DST, map, b.gradient);
    add(DNNL_ARG_DIFF_SRC, map, b.input_gradient);
    add(DNNL_ARG_DIFF_SCALE, forward.mean_desc(), b.weight_gradient);
    add(DNNL_ARG_DIFF_SHIFT, forward.mean_desc(), b.bias_gradient);
    primitive_ =
        dnnl::batch_normalization_backward({{dnnl::prop_kind::backward, map, map, 1e-5F, flags}, engine_, forward});
  }
  void run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  void add(int argument, const dnnl::memory::desc& description, void* data) {
    arguments_.insert_or_assign(argument, dnnl::memory(description, engine_, data));
  }
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

void norm(benchmark::State& state, bool backward, bool residual, DataType dtype, UnitActivation activation) {
  at::set_num_threads(core::available_cores());
  const MapShape s = {.batch = state.range(0),
                      .channels = state.range(1),
                      .height = state.range(2),
                      .width = state.range(2),
                      .block = channel_block()};
  Buffers b(s, dtype);
  const NormForward forward = {.shape = s,
                               .dtype = dtype,
                               .activation = activation,
                               .input = b.input,
                               .residual = residual ? b.residual : nullptr,
                               .weight = b.weight,
                               .bias = b.bias,
                               .output = b.output,
                               .mask = residual ? b.mask : nullptr,
                               .mean = b.mean,
                               .variance = b.variance,
                               .scale = b.scale,
                               .shift = b.shift};
  const NormBackward back = {.shape = s,
                             .dtype = dtype,
                             .activation = activation,
                             .gradients = {b.gradient},
                             .input = b.input,
                             .mask = residual ? b.mask : nullptr,
                             .mean = b.mean,
                             .variance = b.variance,
                             .scale = b.scale,
                             .shift = b.shift,
                             .masked = residual ? b.masked : nullptr,
                             .input_gradient = b.input_gradient,
                             .weight_gradient = b.weight_gradient,
                             .bias_gradient = b.bias_gradient};
  norm_forward(forward);
  Dnnl other(s, dtype, backward, b);
  const int64_t bytes = b.map_bytes;
  double ours = 1e9, dnnl = 1e9, copy = 1e9;
  for (auto _ : state) {
    const double seconds = core::seconds_of([&] { backward ? norm_backward(back) : norm_forward(forward); });
    state.SetIterationTime(seconds);
    ours = std::min(ours, seconds);
    dnnl = std::min(dnnl, core::seconds_of([&] { other.run(); }));
    copy = std::min(copy, core::seconds_of([&] {
                      at::parallel_for(0, bytes, 1 << 16, [&](int64_t begin, int64_t end) {
                        std::memcpy(static_cast<char*>(b.output) + begin, static_cast<char*>(b.input) + begin,
                                    static_cast<size_t>(end - begin));
                      });
                    }));
  }
  const auto map = static_cast<double>(bytes) / 1e9;
  state.counters["GB/s"] = map * (2 + backward + residual) / ours;
  state.counters["dnnl_GB/s"] = map * (2 + backward) / dnnl;
  state.counters["copy_GB/s"] = map * 2 / copy;
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({32, 256, 56});  // larger than every cache
  benchmark->Args({128, 16, 32});  // about a cache
  benchmark->Args({32, 24, 56});   // a block that is half full
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond);
}

constexpr DataType kF32 = DataType::kFloat, kBf16 = DataType::kBfloat16;
constexpr UnitActivation kRelu = UnitActivation::kRelu;
BENCHMARK_CAPTURE(norm, forward, false, false, kF32, kRelu)->Apply(shapes);
BENCHMARK_CAPTURE(norm, backward, true, false, kF32, kRelu)->Apply(shapes);
BENCHMARK_CAPTURE(norm, forward_residual, false, true, kF32, kRelu)->Apply(shapes);
BENCHMARK_CAPTURE(norm, backward_residual, true, true, kF32, kRelu)->Apply(shapes);
BENCHMARK_CAPTURE(norm, forward_bf16, false, false, kBf16, kRelu)->Apply(shapes);
BENCHMARK_CAPTURE(norm, backward_bf16, true, false, kBf16, kRelu)->Apply(shapes);
BENCHMARK_CAPTURE(norm, forward_residual_bf16, false, true, kBf16, kRelu)->Apply(shapes);
BENCHMARK_CAPTURE(norm, backward_residual_bf16, true, true, kBf16, kRelu)->Apply(shapes);

}  // namespace
}  // namespace trainyard::nn::cpu
