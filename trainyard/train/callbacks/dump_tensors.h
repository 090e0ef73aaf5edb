// Writes tensors of steps into files, for other programs.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Writes <directory>/step-<global step>.safetensors after each step, from replica 0; wrap it in a PeriodicCallback to
// select steps. Names are parameters (their values after the update), "<parameter>/gradient" (as reduced), outputs and
// losses: "logits", "cost". Numbers are written as float32.
class DumpTensors : public Callback {
 public:
  // Throws kInvalidArgument for an empty list. An unknown name ends the training with kNotFound.
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
