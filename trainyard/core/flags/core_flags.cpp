#include "trainyard/core/flags/core_flags.h"

namespace trainyard::core {
namespace {

void declare_program_flags(FlagTable& table) {
  constexpr const char* kGroup = "Program";
  table.text("config", std::nullopt, "a YAML file of flags; the command line stands over it").group(kGroup);
  table.boolean("dump_config", false, "print all flags with their values as YAML for --config, and end").group(kGroup);
  table.choice("log_level", "info", {"debug", "info", "warning", "error", "off"}, "the least important message shown")
      .group(kGroup);
  table.choice("progress", "auto", {"auto", "on", "off"}, "a progress bar on stderr; auto: when that is a terminal")
      .group(kGroup);
}

void declare_thread_flags(FlagTable& table) {
  constexpr const char* kGroup = "Threads";
  table
      .integer("num_intra_threads", std::nullopt,
               "threads that one operation may use, shared by the CPU replicas of the process; 0 or unset: all cores")
      .group(kGroup);
  table
      .choice(
          "max_cpu_isa", "auto", {"auto", "avx2", "avx512"},
          "the highest instruction set that anything of the program uses, as if the processor had no other: our "
          "kernels, oneDNN, LibTorch; the program starts itself again with TRAINYARD_MAX_CPU_ISA, which programs of "
          "others set themselves")
      .automatic("what TRAINYARD_MAX_CPU_ISA says, else all that the processor has")
      .group(kGroup);
  table.integer("num_inter_threads", 0, "threads that run operations side by side")
      .group(kGroup)
      .translated("each replica is one thread that runs one operation at a time; num_gpus sets how many there are");
  table
      .boolean(
          "use_numa_affinity", false,
          "keep each CPU replica, its team and the memory that it takes on one NUMA node, replica r on node r modulo "
          "their number; a machine with one node is left as it is")
      .group(kGroup);
  table
      .boolean("mkl", false,
               "the CPU kernels are always oneDNN's; mkl makes the defaults of the kmp_ flags count: no spinning, "
               "granularity=fine,verbose,compact,1,0, settings logged")
      .group(kGroup);
  table
      .integer(
          "kmp_blocktime", 0,
          "milliseconds that idle threads of a team spin before they sleep, by gcc's estimate of 100,000 turns each; "
          "the program starts itself again with GOMP_SPINCOUNT, programs of others set that themselves")
      .automatic("10,000 turns, or what the environment says")
      .group(kGroup);
  table
      .text("kmp_affinity", "granularity=fine,verbose,compact,1,0",
            "where the threads of a team run: [modifier,]...type[,permute[,offset]] with the types compact, scatter, "
            "explicit, none and the modifiers granularity=fine|core|package, proclist=[...], verbose, norespect")
      .automatic("anywhere")
      .group(kGroup);
  table.integer("kmp_settings", 1, "log the thread settings at the start").automatic("0").group(kGroup);
}

void declare_memory_flags(FlagTable& table) {
  constexpr const char* kGroup = "Memory";
  table
      .real("gpu_memory_frac_for_testing", 0,
            "the part of the GPU's memory that may be used; 0: all; above 1 with use_unified_memory")
      .bounds(0)
      .group(kGroup);
  table
      .boolean("use_unified_memory", std::nullopt,
               "GPU memory whose pages move between GPU and host: gpu_memory_frac_for_testing may be above 1 then, and "
               "steps "
               "are not captured")
      .group(kGroup);
  table.boolean("allow_growth", std::nullopt, "take GPU memory as it is needed; false: all of it at the start")
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

}  // namespace

void declare_flags(FlagTable& table) {
  declare_program_flags(table);
  declare_thread_flags(table);
  declare_memory_flags(table);
  declare_foreign_flags(table);
}

}  // namespace trainyard::core
