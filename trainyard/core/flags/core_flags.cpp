#include "trainyard/core/flags/core_flags.h"

namespace trainyard::core {

void declare_program_flags(FlagTable& table) {
  constexpr const char* kGroup = "Program";
  table.text("config", std::nullopt, "a YAML file of flags; the command line stands over it").group(kGroup);
  table
      .boolean(
          "dump_config", false,
          "print the flags that are given as YAML for --config, the others with their defaults as comments, and end")
      .group(kGroup);
  table.choice("log_level", "info", {"debug", "info", "warning", "error", "off"}, "the least important message shown")
      .group(kGroup);
  table.choice("progress", "auto", {"auto", "on", "off"}, "a progress bar on stderr; auto: when that is a terminal")
      .group(kGroup);
}

// What only TensorFlow's runtime had.
void declare_foreign_flags(FlagTable& table) {
  constexpr const char* kGroup = "Settings of TensorFlow's runtime";
  table.boolean("timestamped_allocator", false, "delay the reuse of GPU memory by time stamps")
      .group(kGroup)
      .warned("memory is reused in stream order");
  constexpr const char* kKernels = "kernels are queued without a limit; the driver's queue bounds them";
  table.integer("gpu_kt_max_interval", 0, "kernels between two tracking events").group(kGroup).warned(kKernels);
  table.integer("gpu_kt_max_bytes", 0, "bytes of memory between two tracking events").group(kGroup).warned(kKernels);
  table.integer("gpu_kt_max_pending", 0, "kernels that may be queued").group(kGroup).warned(kKernels);
  table.boolean("sync_on_finish", false, "wait for the device at the end of each step")
      .group(kGroup)
      .warned("times are always taken after the device has finished");
  table.boolean("force_gpu_compatible", false, "keep every host tensor in pinned memory")
      .group(kGroup)
      .warned("batches for a GPU are always pinned, other tensors need not be");
  table.boolean("use_python32_barrier", false, "which of two barriers of Python to use")
      .group(kGroup)
      .warned("threads meet at the communicator's barrier");
  table.text("debugger", std::nullopt, "TensorFlow's debugger: cli, or host:port")
      .group(kGroup)
      .warned("use gdb, or --log_level=debug");
}

}  // namespace trainyard::core
