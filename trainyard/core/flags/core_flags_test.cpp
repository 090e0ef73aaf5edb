#include "trainyard/core/flags/core_flags.h"

#include <string>

#include <gtest/gtest.h>

namespace trainyard::core::core_flags_test {
namespace {

// The tables of the reference page, without its introduction.
std::string tables_of(const FlagTable& table) {
  const std::string page = help_markdown(table);
  return page.substr(page.find("\n## "));
}

TEST(CoreFlags, AreThoseOfTheProgram) {
  FlagTable table;
  declare_program_flags(table);
  EXPECT_EQ(
      tables_of(table),
      "\n## Program\n\n| flag | type | default | meaning |\n|---|---|---|---|\n"
      "| `config` | string | not set | a YAML file of flags; the command line stands over it. |\n"
      "| `dump_config` | boolean | false | print the flags that are given as YAML for --config, the others with their "
      "defaults as comments, and end. |\n"
      "| `log_level` | debug \\| info \\| warning \\| error \\| off | info | the least important message shown. |\n"
      "| `progress` | auto \\| on \\| off | auto | a progress bar on stderr; auto: when that is a terminal. |\n");
}

TEST(CoreFlags, OfTensorFlowsRuntimeHaveNoEffect) {
  FlagTable table;
  declare_foreign_flags(table);
  const std::string queue = " No effect here: kernels are queued without a limit; the driver's queue bounds them. |\n";
  EXPECT_EQ(
      tables_of(table),
      "\n## Settings of TensorFlow's runtime\n\n| flag | type | default | meaning |\n|---|---|---|---|\n"
      "| `timestamped_allocator` | boolean | false | delay the reuse of GPU memory by time stamps. No effect here: "
      "memory is reused in stream order. |\n"
      "| `gpu_kt_max_interval` | integer | 0 | kernels between two tracking events." +
          queue + "| `gpu_kt_max_bytes` | integer | 0 | bytes of memory between two tracking events." + queue +
          "| `gpu_kt_max_pending` | integer | 0 | kernels that may be queued." + queue +
          "| `sync_on_finish` | boolean | false | wait for the device at the end of each step. No effect here: times "
          "are always taken after the device has finished. |\n"
          "| `force_gpu_compatible` | boolean | false | keep every host tensor in pinned memory. No effect here: "
          "batches for a GPU are always pinned, other tensors need not be. |\n"
          "| `use_python32_barrier` | boolean | false | which of two barriers of Python to use. No effect here: "
          "threads meet at the communicator's barrier. |\n"
          "| `debugger` | string | not set | TensorFlow's debugger: cli, or host:port. No effect here: use gdb, or "
          "--log_level=debug. |\n");
}

}  // namespace
}  // namespace trainyard::core::core_flags_test
