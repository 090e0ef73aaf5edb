// --batch_size=auto where a budget is the machine's or a GPU's, and the trials of sizes on real memory.
#include "trainyard/frontends/tf_cnn/batch_trials.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/core/system/cgroup.h"
#include "trainyard/core/system/system_files.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/testing/class_folders.h"
#include "trainyard/frontends/tf_cnn/auto_batch.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/trainer_options.h"
#include "trainyard/nn/execution/device_memory.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/devices/run_memory.h"
#include "trainyard/train/step/graph_tower.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/fake_accelerator.h"

namespace trainyard::frontends::batch_trials_test {
namespace {

using ::testing::AnyOf, ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

TfCnnOptions options_of_small_run() {
  TfCnnOptions options;
  options.model = "resnet20";
  options.input.data_name = "cifar10";
  options.device.gpu = false;
  options.batch_size = 2;
  options.steps.num_batches = 1;
  options.steps.num_warmup_batches = 0;
  return options;
}

// A run of one image a step, of 3 MiB, whatever there is memory for: an epoch has 16 images.
TfCnnOptions options_of_photos(const std::string& folder) {
  TfCnnOptions options = options_of_small_run();
  options.model = "trivial";
  options.input.data_name.clear();
  options.input.data_dir = folder;
  options.image_size = 512;
  return options;
}

// Returns the memory of the machine, or what its control groups allow of it.
int64_t machine_bytes() {
  const auto machine = static_cast<int64_t>(core::memory_info_bytes("MemTotal"));
  const auto allowed = core::cgroup_limits().memory_bytes;
  return allowed ? std::min(machine, static_cast<int64_t>(*allowed)) : machine;
}

core::log::Level current_level() {
  const core::log::Level level = core::log::set_level(core::log::Level::kWarning);
  core::log::set_level(level);
  return level;
}

int64_t allocator_limit() {
  return static_cast<int64_t>(core::cpu_allocator_statistics().limit_bytes);
}

// Returns an exit code: the trials install an allocator for the rest of the process.
int try_sizes() {
  PreparedRun run = prepare(options_of_small_run());
  EXPECT_FALSE(can_try_batches(run)) << "without the allocator";
  if (!core::install_cpu_allocator(static_cast<uint64_t>(8192 * kMiB))) return 2;
  EXPECT_TRUE(can_try_batches(run));
  PreparedRun forward = run;
  forward.options.mode = RunMode::kForwardOnly;
  EXPECT_FALSE(can_try_batches(forward));
  std::vector<int64_t> limits;
  std::vector<core::log::Level> levels;
  const auto make_trainer = [&] {
    limits.push_back(allocator_limit());
    levels.push_back(current_level());
    train::TowerTrainerOptions options = make_trainer_options(run);
    options.loss = train::loss_of([](const at::Tensor& output, const at::Tensor&) {
      return output.mean().mul(std::numeric_limits<double>::quiet_NaN());
    });
    return options;
  };
  // Code and threads are in memory from here on.
  static_cast<void>(try_batches(run, {.make_trainer = make_trainer, .budget = 8192 * kMiB}));
  limits.clear();
  levels.clear();

  // Room for five images of 256 MiB, and half of one for what a trainer takes.
  constexpr int64_t kImage = 256 * kMiB;
  const int64_t budget = train::resident_bytes() + 5 * kImage + kImage / 2;
  core::log::set_level(core::log::Level::kInfo);
  const BatchTrials trials{
      .make_trainer = make_trainer, .untouched_per_image = kImage, .first = 2, .most = 64, .budget = budget};
  TriedBatch tried = try_batches(run, trials);
  EXPECT_EQ(tried.batch, 5);
  EXPECT_EQ(tried.beyond, 6);
  EXPECT_EQ(tried.trials, 5) << "2, 4, 8, 6 and 5";
  EXPECT_GT(tried.bytes, 5 * kImage);
  EXPECT_LE(tried.bytes, budget);
  EXPECT_EQ(limits.size(), 3U) << "of 8 and 6 images not even the input fits";
  for (const int64_t limit : limits) {
    EXPECT_NEAR(static_cast<double>(limit), 5.5 * static_cast<double>(kImage), static_cast<double>(kImage));
  }
  for (const core::log::Level level : levels) EXPECT_EQ(level, core::log::Level::kWarning);
  EXPECT_EQ(current_level(), core::log::Level::kInfo);
  EXPECT_EQ(allocator_limit(), 8192 * kMiB);

  // A limit that is there already and is lower, and a log of errors alone.
  core::install_cpu_allocator(static_cast<uint64_t>(900 * kMiB));
  core::log::set_level(core::log::Level::kError);
  limits.clear();
  levels.clear();
  tried = try_batches(run, trials);
  EXPECT_EQ(tried.batch, 3);
  EXPECT_EQ(tried.beyond, 4);
  EXPECT_EQ(tried.trials, 3) << "2, 4 and 3";
  EXPECT_EQ(limits, (std::vector<int64_t>{900 * kMiB, 900 * kMiB}));
  for (const core::log::Level level : levels) EXPECT_EQ(level, core::log::Level::kError);
  EXPECT_EQ(current_level(), core::log::Level::kError);
  EXPECT_EQ(allocator_limit(), 900 * kMiB);

  BatchTrials other = trials;
  other.untouched_per_image = 4 * kImage;
  EXPECT_EQ(core::code_of([&] { static_cast<void>(try_batches(run, other)); }), core::ErrorCode::kNoSpace);
  other = trials;
  other.make_trainer = []() -> train::TowerTrainerOptions {
    throw core::Error(core::ErrorCode::kUnsupported, "no trainer");
  };
  EXPECT_EQ(core::code_of([&] { static_cast<void>(try_batches(run, other)); }), core::ErrorCode::kUnsupported);
  EXPECT_EQ(allocator_limit(), 900 * kMiB);
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST(BatchTrials, FindTheLargestSizeWithinTheBudget) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << core::skip::kNeedsOwnAllocator;
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(try_sizes()), ::testing::ExitedWithCode(0), "");
}

// Returns an exit code, as try_sizes() does.
int try_images_of_data() {
  if (!core::install_cpu_allocator(static_cast<uint64_t>(8192 * kMiB))) return 2;
  const core::TempDir temp;
  data::write_two_classes(temp.file("photos"));
  TfCnnOptions options = options_of_photos(temp.file("photos"));
  options.batch_size = kLargestBatch;
  options.batch_memory_bytes = 2000 * kMiB;
  // Returns the MiB that one image took.
  const auto tried = [&options](int batches_ahead) -> int64_t {
    options.input.batches_ahead = batches_ahead;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(prepare(options).batch_size, 1);
    const std::string log = ::testing::internal::GetCapturedStderr();
    std::smatch found;
    if (!std::regex_search(log, found, std::regex("1 images a device took ([0-9]+) MiB of 2000 MiB in a step"))) {
      ADD_FAILURE() << log;
      return 0;
    }
    return std::stoll(found[1].str());
  };
  tried(2);  // code and threads are in memory from here on
  const int64_t few = tried(2), many = tried(52);
  EXPECT_NEAR(static_cast<double>(many - few), 50 * 3, 40) << "batches that wait, which a trial does not make";

  // The other process does not try the same sizes at the same time, and answers nothing.
  options.batch_size = 1;
  options.batch_memory_bytes.reset();
  const PreparedRun run = prepare(options);
  parallel::on_ranks(2, [&run](const std::shared_ptr<parallel::ProcessGroup>& group) {
    if (group->rank() != 0) return;
    PreparedRun own = run;
    own.options.batch_memory_bytes = 2000 * kMiB;
    own.device.processes = group;
    EXPECT_EQ(core::message_of([&own] { EXPECT_EQ(find_batch_size(own), 1); }), "no error");
  });
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST(BatchTrials, CountTheBatchesThatWaitAndContactNoOtherProcess) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << core::skip::kNeedsOwnAllocator;
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(try_images_of_data()), ::testing::ExitedWithCode(0), "");
}

// Nor is what an exchange takes counted.
TEST(AutoBatch, APlanContactsNoOtherProcess) {
  for (const int replicas : {1, 2}) {
    TfCnnOptions options = options_of_small_run();
    options.device.replicas = replicas;
    options.device.variable_update = "replicated";
    PreparedRun run = prepare(options);
    run.options.batch_memory_bytes = 1;
    parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
      if (group->rank() != 0) return;
      const auto refusal = [&run] {
        return core::message_of([&run] { static_cast<void>(find_batch_size(run)); }, core::ErrorCode::kNoSpace);
      };
      const std::string alone = refusal();
      run.options.device.variable_update = replicas == 1 ? "horovod" : "collective_all_reduce";
      run.options.device.gradient_compression = "powersgd";
      run.device.processes = group;
      run.device.make_communicators = []() -> std::vector<std::unique_ptr<core::Communicator>> {
        throw core::Error(core::ErrorCode::kInternal, "another process is contacted");
      };
      run.device.make_gradient_communicators = run.device.make_communicators;
      EXPECT_THAT(alone, HasSubstr("there is no memory for a batch of one image"));
      EXPECT_EQ(refusal(), alone) << replicas;
      run.device.processes = nullptr;
    });
  }
}

TEST(AutoBatch, TakesThreeQuartersOfTheMachinesMemory) {
  const core::TempDir temp;
  data::write_two_classes(temp.file("photos"));
  TfCnnOptions options = options_of_photos(temp.file("photos"));
  options.batch_size = kLargestBatch;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(prepare(options).batch_size, 1) << "16 images are steps of one image";
  const std::string log = ::testing::internal::GetCapturedStderr();
  const bool limited = core::cgroup_limits().memory_bytes.has_value();
  const auto usual = static_cast<int64_t>(0.75 * static_cast<double>(machine_bytes()));
  const std::string of_all =
      fmt::format(" MiB of {} MiB of three quarters of {}; more would be too few steps of 16 images (", usual / kMiB,
                  limited ? "the memory that control groups allow" : "the machine's memory");
  // Other programs take and release memory meanwhile.
  const auto available = static_cast<double>(core::memory_info_bytes("MemAvailable"));
  if (available > 1.2 * static_cast<double>(usual)) {
    EXPECT_THAT(log, HasSubstr(of_all));
  } else {
    EXPECT_THAT(log, AnyOf(HasSubstr(of_all), HasSubstr(" MiB that are free; more would be too few steps")));
  }
}

// 16 GiB, of which this process may have half.
class HalfAccelerator : public train::FakeAccelerator {
 public:
  nn::DeviceMemory memory() override {
    return {.total = 16384 * kMiB, .limit = 8192 * kMiB, .free = 8192 * kMiB, .held = 200 * kMiB, .used = 100 * kMiB};
  }
};

PreparedRun run_on_fake() {
  PreparedRun run = prepare(options_of_small_run());
  run.device.accelerators = {std::make_shared<HalfAccelerator>()};
  return run;
}

TEST(AutoBatch, OnAGpuIsAnEstimateOfItsMemory) {
  const PreparedRun run = run_on_fake();
  EXPECT_FALSE(can_try_batches(run));
  ::testing::internal::CaptureStderr();
  const int64_t found = find_batch_size(run);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(fmt::format("batch_size=auto: {} images a device need ", found)));
  EXPECT_THAT(log, HasSubstr(" MiB of 6144 MiB of three quarters of the GPU's memory; "));
  // An image's activations, and its pixels in the batch in work and in the one that waits.
  const int64_t image = nn::activation_bytes_per_image(run.graph, 4, true) + 2 * 4 * 3 * 32 * 32;
  EXPECT_LE(found, 6144 * kMiB / image);
  EXPECT_GT(found, (6144 - 64) * kMiB / image);
}

TEST(AutoBatch, OnAGpuCountsParametersAndGradientsOnce) {
  PreparedRun run = run_on_fake();
  run.options.batch_memory_bytes = 1;
  const std::string error =
      core::message_of([&] { static_cast<void>(find_batch_size(run)); }, core::ErrorCode::kNoSpace);
  std::smatch found;
  ASSERT_TRUE(std::regex_search(error, found, std::regex("expected at most 1 bytes, got ([0-9]+) bytes"))) << error;
  int64_t elements = 0;
  for (const nn::Node& node : run.graph.nodes) elements += nn::parameter_count(node);
  const int64_t activations = nn::activation_bytes_per_image(run.graph, 4, true);
  EXPECT_NEAR(std::stod(found[1].str()), static_cast<double>(2 * 4 * elements + activations + 2 * 4 * 3 * 32 * 32),
              static_cast<double>(activations) / 2)
      << "sgd has no slots";
}

// Returns the bytes of one image a device, of a search that has no memory.
int64_t bytes_of_one_image(const TfCnnOptions& options) {
  const std::string error = core::message_of([&] { prepare(options); }, core::ErrorCode::kNoSpace);
  std::smatch found;
  if (!std::regex_search(error, found, std::regex("expected at most 1 bytes, got ([0-9]+) bytes"))) {
    ADD_FAILURE() << error;
    return 0;
  }
  return std::stoll(found[1].str());
}

// Replicas have one set with a parameter server, and else one each.
TEST(AutoBatch, CountsTheParametersOfTheVariableUpdate) {
  TfCnnOptions options = options_of_small_run();
  options.batch_size = kLargestBatch;
  options.batch_memory_bytes = 1;
  options.device.replicas = 2;
  options.device.variable_update = "parameter_server";
  const int64_t shared = bytes_of_one_image(options);
  options.device.variable_update = "replicated";
  const int64_t copies = bytes_of_one_image(options);
  EXPECT_GT(shared, 512 * kMiB) << "the program";
  EXPECT_GT(copies - shared, 4 * 200'000) << "the floats of resnet20";
}

// Its memory is not planned, so that nothing can be said.
TEST(RequireMemory, TakesAnExecutorWithoutAPlan) {
  TfCnnOptions options = options_of_small_run();
  options.device.executor = "reference";
  PreparedRun run = prepare(options);
  run.batch_size = int64_t{1} << 30;
  EXPECT_EQ(core::message_of([&] { require_memory(run); }), "no error");
}

TEST(RequireMemory, ThrowsWhatATrainerThrows) {
  PreparedRun run = prepare(options_of_small_run());
  run.batch_size = int64_t{1} << 30;
  run.options.device.variable_update = "horovod";
  EXPECT_THAT(core::message_of([&] { require_memory(run); }), HasSubstr("horovod is between processes"));
}

// Cannot plan more than some images.
class PlansUpTo : public nn::Executor {
 public:
  PlansUpTo(const nn::Graph& graph, const nn::BuildContext& context)
      : Executor(graph, context), layers_(nn::make_executor("reference", graph, context)) {}
  core::NamedTensors run(const core::NamedTensors& inputs, const nn::StepRandom& random) override {
    return layers_->run(inputs, random);
  }
  std::optional<nn::ExecutorMemory> prepare(int64_t batch) override {
    if (batch > most) throw core::Error(core::ErrorCode::kInternal, "these maps cannot be planned");
    return nn::ExecutorMemory{.activations = batch};
  }

  inline static int64_t most = 0;

 private:
  std::unique_ptr<nn::Executor> layers_;
};

// Beyond all memory, maps may be beyond what can be planned, too. Below it, a plan that fails is a mistake.
TEST(RequireMemory, TakesAPlanThatFailsForTooLargeABatchBeyondAllMemoryOnly) {
  static const core::Registration<nn::ExecutorFactory> registration(
      nn::executors(), "plans_up_to", [](const nn::Graph& graph, const nn::BuildContext& context) {
        return std::make_unique<PlansUpTo>(graph, context);
      });
  PreparedRun run = prepare(options_of_small_run());
  run.device.executor = "plans_up_to";
  const int64_t all = machine_bytes() / nn::activation_bytes_per_image(run.graph, 4, true);
  PlansUpTo::most = all;
  run.batch_size = 2 * all;
  EXPECT_THAT(core::message_of([&] { require_memory(run); }, core::ErrorCode::kNoSpace),
              HasSubstr(", got more; pass --batch_size="));
  PlansUpTo::most = all / 2;
  run.batch_size = all / 4 * 3;
  EXPECT_THAT(core::message_of([&] { require_memory(run); }, core::ErrorCode::kInternal),
              HasSubstr("these maps cannot be planned"));
}

}  // namespace
}  // namespace trainyard::frontends::batch_trials_test
