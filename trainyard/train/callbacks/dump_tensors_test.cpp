#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/train/callbacks/callback_wrappers.h"
#include "trainyard/train/callbacks/debugging.h"
#include "trainyard/train/testing/callback_conformance.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::dump_tensors_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const core::TempDir& dump_directory() {
  static const core::TempDir directory;
  return directory;
}
TRAINYARD_CALLBACK_CONFORMANCE(DumpTensors, [] {
  return std::make_shared<DumpTensors>(dump_directory().path(), std::vector<std::string>{"cost"});
});

TEST(DumpTensors, WritesParametersGradientsOutputsAndLosses) {
  const core::TempDir directory;
  const std::vector<std::string> names{"fc.weight", "fc.weight/gradient", "logits", "cost"};
  TowerTrainer trainer(tiny_options(), tiny_source(24, 4));
  // What the step gave, noted beside the callback.
  struct Note : Callback {
    std::string name() const override { return "note"; }
    void after_step(Trainer&, const StepView& view) override {
      const ReplicaView& replica = view.replicas[0];
      const nn::ParameterId id = *replica.parameters->find("fc.weight");
      values = {replica.parameters->value(id).clone(), replica.parameters->gradient(id).clone(),
                replica.output().clone(), replica.loss().clone()};
    }
    std::vector<at::Tensor> values;
  };
  const auto note = std::make_shared<Note>();
  trainer.add(note);
  trainer.add(std::make_shared<PeriodicCallback>(std::make_shared<DumpTensors>(directory.file("dump"), names),
                                                 Period{.every_k_steps = 3}));
  trainer.train({.steps_per_epoch = 6});
  EXPECT_THAT(core::local_file_system().list(directory.file("dump")),
              ElementsAre("step-3.safetensors", "step-6.safetensors"));
  const formats::TensorFile file = formats::open_tensor_file(directory.file("dump/step-6.safetensors"));
  for (size_t i = 0; i < names.size(); ++i) {
    const formats::StoredTensor* stored = file.find(names[i]);
    ASSERT_NE(stored, nullptr) << names[i];
    const at::Tensor expected = note->values[i].to(at::kFloat).contiguous();
    EXPECT_EQ(stored->shape, expected.sizes().vec()) << names[i];
    EXPECT_EQ(file.read_floats(*stored),
              std::vector<float>(expected.const_data_ptr<float>(), expected.const_data_ptr<float>() + expected.numel()))
        << names[i];
  }
}

TEST(DumpTensors, ANameThatAStepDoesNotHaveEndsTheTraining) {
  const core::TempDir directory;
  TowerTrainer trainer(tiny_options(), tiny_source(24, 4));
  trainer.add(std::make_shared<DumpTensors>(directory.path(), std::vector<std::string>{"fc.wait"}));
  EXPECT_THAT(core::message_of([&] { trainer.train({.steps_per_epoch = 1}); }, core::ErrorCode::kNotFound),
              HasSubstr("a step has no tensor 'fc.wait' to write"));
  EXPECT_NE(core::message_of([&] { DumpTensors(directory.path(), {}); }), "no error");
}

TEST(DumpTensors, TellsWhichNamesThereAre) {
  const core::TempDir directory;
  TowerTrainer trainer(tiny_options(), tiny_source(24, 4));
  trainer.add(std::make_shared<DumpTensors>(directory.path(), std::vector<std::string>{"fc.wait/gradient"}));
  EXPECT_THAT(
      core::message_of([&] { trainer.train({.steps_per_epoch = 1}); }, core::ErrorCode::kNotFound),
      HasSubstr("expected the name of a parameter, alone or with /gradient behind it, or one of: logits, cost"));
  struct Steps : Trainer {
    void run_step(StepView&) override {}
  } without_replicas;
  without_replicas.add(std::make_shared<DumpTensors>(directory.path(), std::vector<std::string>{"cost"}));
  EXPECT_THAT(core::message_of([&] { without_replicas.train({.steps_per_epoch = 1}); }, core::ErrorCode::kNotFound),
              HasSubstr("works with trainers whose steps have replicas"));
}

}  // namespace
}  // namespace trainyard::train::dump_tensors_test
