#include "trainyard/nn/flags.h"

#include <cstdint>

namespace trainyard::nn {
namespace {

void declare_device_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Devices";
  table.choice("device", "gpu", {"cpu", "gpu", "CPU", "GPU"}, "where the model runs")
      .automatic("gpu if there is one, else cpu")
      .group(kGroup);
  table
      .choice("data_format", "NCHW", {"NHWC", "NCHW"},
              "the layout of images as users see it; kernels choose their own, and both work on every device")
      .group(kGroup);
  table.text("gpu_thread_mode", "gpu_private", "how host threads launch GPU work: global, gpu_private or gpu_shared")
      .group(kGroup)
      .translated("each GPU has one thread of the host that hands its work over, whatever the mode");
  table.integer("per_gpu_thread_count", 0, "host threads a GPU; 0: 2")
      .group(kGroup)
      .translated("one thread of the host hands a GPU's work over: a second one would wait for the first");
}

}  // namespace

void declare_fusion_flags(core::FlagTable& table, const char* group) {
  table.boolean("enable_optimizations", true, "run layers as one where they follow each other; false: each by itself")
      .group(group);
  table
      .text("rewriter_config", std::nullopt,
            "which layers run as one: \"remapping: OFF norm_activation: ON\"; memory_optimization: "
            "RECOMPUTATION_HEURISTICS is recompute=elementwise")
      .group(group);
  table
      .boolean("batchnorm_persistent", true,
               "allow batch normalization kernels that add and activate, too; false: each batch norm runs by itself")
      .group(group);
}

namespace {

void declare_kernel_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Kernels";
  table.boolean("winograd_nonfused", true, "allow Winograd convolutions").group(kGroup);
  table
      .choice("conv_algorithm", "auto", {"auto", "direct", "winograd"},
              "how convolutions are computed on the CPU; auto measures once which is faster, for at most 10 s a run, "
              "winograd is used where there is a kernel (3x3, in float, and in bfloat16 with AVX512_BF16)")
      .group(kGroup);
  table
      .boolean("deterministic", false,
               "choose kernels by fixed rules instead of by measuring, so that machines with the same instruction set, "
               "given the same number of threads, compute the same bits, and so does a GPU each time")
      .group(kGroup);
  table
      .choice("recompute", "none", {"none", "elementwise", "blocks"},
              "which activations are not kept for the backward but made again, for less memory and the same bits: "
              "those of batch norms and the like, or whole blocks of layers")
      .group(kGroup);
  table
      .choice("executor", "auto", {"auto", "cpu", "cuda", "reference"},
              "what runs the model: auto is the device's own, which is fast; reference is plain LibTorch, which tests "
              "trust")
      .group(kGroup);
  table.boolean("xla", false, "the same as xla_compile").group(kGroup);
  table
      .boolean("xla_compile", false,
               "on a GPU: capture the whole training step, after some that run as they are, and replay it")
      .group(kGroup);
  table.boolean("tf32", false, "on a GPU: float products and convolutions may round their factors to 10 bits")
      .group(kGroup);
  declare_fusion_flags(table, kGroup);
  table.boolean("use_tf_layers", true, "which of two implementations of the layers to use")
      .group(kGroup)
      .translated("there is one implementation, with the same result and the same checkpoints");
  table.boolean("use_resource_vars", false, "which of two kinds of variables to use")
      .group(kGroup)
      .translated("there is one kind of variables, with the same result");
}

void declare_precision_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Precision";
  table.boolean("use_bf16", false, "compute in bfloat16; variables, logits and batch normalization stay in 32 bits")
      .group(kGroup);
  table
      .boolean("use_fp16", false,
               "on a GPU: compute in 16 bits with a scaled loss; variables, logits and batch normalization stay in 32")
      .group(kGroup);
  table
      .boolean(
          "fp16_vars", false,
          "with use_fp16 or use_bf16: variables and what the optimizer keeps of them are 16-bit numbers, too; they "
          "are rounded after each update, and memory and checkpoints hold them in 32 bits")
      .group(kGroup);
}

void declare_inference_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Frozen inference";
  table
      .boolean(
          "freeze_when_forward_only", false,
          "with forward_only: variables are constants, and batch norms are folded into the convolutions before them")
      .group(kGroup);
  table
      .choice(
          "trt_mode", "", {"", "FP32", "FP16", "INT8"},
          "with freeze_when_forward_only: precision of the frozen graph; FP16 is bfloat16 on a CPU, which has to have "
          "AVX512_BF16")
      .group(kGroup)
      .pending_value("INT8", "frozen graphs in 8-bit integers");
  table
      .integer("trt_max_workspace_size_bytes", int64_t{4} << 30,
               "with trt_mode: the most memory that activations and the kernels' scratch may take on a device")
      .group(kGroup);
}

void declare_graph_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Traces and graphs";
  table
      .text(
          "graph_file", std::nullopt,
          "write the model's graph: text for a name ending in txt, else ONNX with the weights that the run begins with")
      .group(kGroup);
  table
      .text("partitioned_graph_file_prefix", std::nullopt,
            "write the graph of each device in the same forms, with the weights of the step that trace_file traces: "
            "NAME_cpu_0.txt of NAME.txt")
      .group(kGroup);
}

}  // namespace

void declare_flags(core::FlagTable& table) {
  declare_device_flags(table);
  declare_kernel_flags(table);
  declare_precision_flags(table);
  declare_inference_flags(table);
  declare_graph_flags(table);
}

}  // namespace trainyard::nn
