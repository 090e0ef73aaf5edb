#include "trainyard/frontends/options/thread_options.h"

namespace trainyard::frontends {

void declare_thread_flags(core::FlagTable& table) {
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

ThreadOptions read_thread_options(const core::FlagValues& values) {
  const auto counts = [&](const char* flag) { return values.given(flag) || values.boolean("mkl"); };
  ThreadOptions options;
  options.intra_op_threads = static_cast<int>(values.optional_integer("num_intra_threads").value_or(0));
  options.use_numa_affinity = values.boolean("use_numa_affinity");
  if (counts("kmp_affinity")) options.affinity = core::parse_affinity(values.text("kmp_affinity"));
  options.print = counts("kmp_settings") && values.integer("kmp_settings") != 0;
  if (counts("kmp_blocktime")) options.spin_milliseconds = values.integer("kmp_blocktime");
  return options;
}

}  // namespace trainyard::frontends
