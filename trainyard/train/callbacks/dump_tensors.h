// Writes tensors of steps into files, to look at them with other programs.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Writes <directory>/step-<global step>.safetensors after each step, of replica 0; a PeriodicCallback says after which.
// Names are those of parameters, which have their values after the update, "<parameter>/gradient" as reduced, and those
// of outputs and losses: "logits", "cost". Numbers are written as float32.
class DumpTensors : public Callback {
 public:
  // Throws kInvalidArgument for no names. A name that a step does not have ends the training with kNotFound.
  DumpTensors(std::string directory, std::vector<std::string> names,
              core::FileSystem& files = core::local_file_system());

  std::string name() const override { return "dump_tensors"; }
  bool chief_only() const override { return true; }
  void after_step(Trainer& trainer, const StepView& view) override;

 private:
  std::string directory_;
  std::vector<std::string> names_;
  core::FileSystem* files_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
