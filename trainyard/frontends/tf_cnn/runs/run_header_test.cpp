// The header's rows that depend on how a run exchanges gradients, and the names of models, as tf_cnn_benchmarks'
// print_info() has them.
#include "trainyard/frontends/tf_cnn/run_header.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends::run_header_test {
namespace {

using ::testing::IsEmpty;

PreparedRun run_of(Dialect dialect, const std::string& model = "resnet50") {
  PreparedRun run;
  run.options.dialect = dialect;
  run.model = &models::find_model(model, "imagenet");
  run.dataset_label = "imagenet (synthetic)";
  run.batch_size = 32;
  return run;
}

// Returns the rows behind "Variables:", which say how gradients are joined.
std::vector<HeaderRow> exchange_rows(const PreparedRun& run) {
  std::vector<HeaderRow> rows = run_header_rows(run);
  while (!rows.empty() && rows.front().first != "Variables:") rows.erase(rows.begin());
  if (!rows.empty()) rows.erase(rows.begin());
  return rows;
}

using Rows = std::vector<HeaderRow>;

TEST(RunHeader, NamesTheAllReduceWhereTheOriginalDoes) {
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
  for (const char* mode : {"parameter_server", "independent"}) {
    run.options.device.variable_update = mode;
    EXPECT_THAT(exchange_rows(run), IsEmpty()) << mode;
  }
  for (const char* mode : {"replicated", "collective_all_reduce", "distributed_all_reduce"}) {
    run.options.device.variable_update = mode;
    EXPECT_EQ(exchange_rows(run), (Rows{{"AllReduce:", "None"}})) << mode;
  }
  run.options.device.all_reduce_spec = "pscpu:2k:xring";
  EXPECT_EQ(exchange_rows(run), (Rows{{"AllReduce:", "pscpu:2k:xring"}}));
}

TEST(RunHeader, NamesWhatWasMeasuredForAuto) {
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
  run.options.device.all_reduce_spec = "auto";
  run.options.device.variable_update = "distributed_all_reduce";
  EXPECT_EQ(exchange_rows(run), (Rows{{"AllReduce:", "auto (None)"}}));
  run.device.automatic_all_reduce_spec = "ring:256K:rechd";
  EXPECT_EQ(exchange_rows(run), (Rows{{"AllReduce:", "auto (ring:256K:rechd)"}}));
  run.options.device.variable_update = "horovod";
  EXPECT_EQ(exchange_rows(run).front(), (HeaderRow{"AllReduce:", "auto (ring:256K:rechd)"}));
}

// The original has one session for all workers, and names their devices.
TEST(RunHeader, OfDistributedAllReduceNamesTheDevicesOfAllWorkers) {
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
  EXPECT_THAT(run_header_rows(run), ::testing::Contains(HeaderRow{"SingleSess:", "False"}));
  run.options.device.variable_update = "distributed_all_reduce";
  run.replicas = 2;
  EXPECT_THAT(run_header_rows(run), ::testing::Contains(HeaderRow{"SingleSess:", "True"}));
  EXPECT_EQ(header_facts(run).devices,
            (std::vector<std::string>{"job:worker/replica:0/task0/cpu:0", "job:worker/replica:0/task0/cpu:1"}));
}

TEST(RunHeader, OfAWorkerNamesItsDevicesAndWhetherWorkersWait) {
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
  run.options.device.variable_update = "parameter_server";
  run.options.device.cluster.job_name = "worker";
  run.options.device.cluster.task_index = 1;
  run.options.device.staged_vars = true;
  run.replicas = 2;
  EXPECT_EQ(header_facts(run).devices,
            (std::vector<std::string>{"/job:worker/replica:0/task:1/cpu:0", "/job:worker/replica:0/task:1/cpu:1"}));
  EXPECT_EQ(exchange_rows(run), (Rows{{"Sync:", "True"}, {"Staged vars:", "True"}}));
  run.options.device.cluster.cross_replica_sync = false;
  EXPECT_EQ(exchange_rows(run).front(), (HeaderRow{"Sync:", "False"}));
}

// The original echoes --horovod_device and sums; what the run does otherwise is said.
TEST(RunHeader, SaysOfHorovodWhatTheOriginalSaysAndWhatIsOtherwise) {
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
  run.options.device.variable_update = "horovod";
  EXPECT_EQ(exchange_rows(run), (Rows{{"Reduce:", "average"}}));
  run.options.device.horovod_device = "cpu";
  EXPECT_EQ(exchange_rows(run), (Rows{{"Horovod on:", "cpu"}, {"Reduce:", "average"}}));
  run.options.device.horovod_reduce = "sum";
  EXPECT_EQ(exchange_rows(run), (Rows{{"Horovod on:", "cpu"}}));
  run.options.update.gradient_reduction = "mean";
  EXPECT_EQ(exchange_rows(run), (Rows{{"Horovod on:", "cpu"}, {"Reduce:", "mean"}}));
  run.options.device.horovod_device.clear();
  run.options.update.gradient_reduction = "sum";
  EXPECT_THAT(exchange_rows(run), IsEmpty());
  EXPECT_EQ(header_facts(run).devices, (std::vector<std::string>{"horovod/cpu:0"}));
}

TEST(RunHeader, HasTheOriginalsNamesOfModels) {
  const std::map<std::string, std::string> names = {{"lenet", "lenet5"},
                                                    {"nasnetlarge", "nasnet"},
                                                    {"official_resnet50", "official_resnet_50_v1"},
                                                    {"official_resnet200_v2", "official_resnet_200_v2"},
                                                    {"resnet50_v1.5", "resnet50_v1.5"},
                                                    {"resnet50_v2", "resnet50_v2"},
                                                    {"vgg16", "vgg16"}};
  for (const auto& [model, name] : names) {
    EXPECT_EQ(header_facts(run_of(Dialect::kTfCnnBenchmarks, model)).model, name);
    EXPECT_EQ(header_facts(run_of(Dialect::kTrainyard, model)).model, model);
  }
}

}  // namespace
}  // namespace trainyard::frontends::run_header_test
