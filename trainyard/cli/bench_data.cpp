#include "trainyard/cli/bench_data.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/machine/machine_info.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/datasets/sample_labels.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/frontends/input/dataset_choice.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/frontends/options/flag_ranges.h"
#include "trainyard/frontends/options/input_options.h"
#include "trainyard/models/flags.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::cli {
namespace {

constexpr int kWarmUpBatches = 3;
constexpr double kPartForEachComparison = 0.25;  // of the seconds

// Whole images, of which nothing is made.
class DecodeOnly : public data::Transform {
 public:
  explicit DecodeOnly(data::ImageSize size) : size_(size) {}
  data::ImageSize size() const override { return size_; }
  core::Result<void> apply(const data::Record& record, const data::SampleKey&, void*) const override {
    if (record.encoding == data::Encoding::kRawChw || record.encoding == data::Encoding::kDecoded) return {};
    const auto image = data::decode_image(record.bytes);
    if (!image.ok()) return image.error().in(record.where);
    return {};
  }

 private:
  data::ImageSize size_;  // of the batch's places, which stay as they are
};

struct Timed {
  double seconds = 0;
  int64_t images = 0;
  double rate() const { return static_cast<double>(images) / seconds; }
};

void check_stop(const core::StopToken& stop) {
  if (stop.stop_requested()) throw core::Error(core::ErrorCode::kCancelled, "the measurement was stopped");
}

Timed take_for(data::BatchSource& source, double seconds, const core::StopToken& stop) {
  Timed timed;
  const auto start = std::chrono::steady_clock::now();
  do {
    check_stop(stop);
    for (const data::Batch& batch : source.next()) timed.images += batch.samples();
    timed.seconds = core::seconds_since(start);
  } while (timed.seconds < seconds);
  return timed;
}

// Throws kInvalidArgument for a size that the model, if one is named, cannot have.
nn::Size2d choose_image_size(const DataBenchOptions& options, const std::string& dataset) {
  if (!options.model.empty()) {
    return frontends::image_size_of(models::build_model(options.model, dataset, {.image_size = options.image_size}));
  }
  if (options.image_size != nn::Size2d(0)) return options.image_size;
  return frontends::usual_image_size(dataset);
}

}  // namespace

void declare_bench_data_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Measurement";
  table.integer("batch_size", 64, "images a batch").bounds(1, 65536).group(kGroup);
  table
      .integer(
          "num_threads", std::nullopt,
          "threads that work on input; unset: datasets_num_private_threads, else the cores that the process may use")
      .bounds(1, 4096)
      .group(kGroup);
  table.real("seconds", 10, "how long it is timed; a quarter of that for each comparison")
      .bounds(0, 86'400)
      .group(kGroup);
  table.integer("warmup_epochs", 0, "passes over the data before that, to fill a cache").bounds(0, 1000).group(kGroup);
  models::declare_image_size_flag(table, kGroup, "the model's, or 224 (CIFAR-10 and shapes: 32)");
  table.text("model", std::nullopt, "the model whose image size to take").group(kGroup);
  table.integer("tf_random_seed", 1234, "of order and augmentation").group(kGroup);
  frontends::declare_input_flags(table);
}

DataBenchOptions read_bench_data_options(const core::FlagValues& values) {
  frontends::check_flag_ranges(values);
  DataBenchOptions options;
  options.input = frontends::read_input_options(values);
  options.input.images.turns_by_exif = true;
  options.model = values.text("model");
  options.image_size = models::read_image_size(values);
  options.batch_size = values.integer("batch_size");
  if (const auto threads = values.optional_integer("num_threads")) options.threads = static_cast<int>(*threads);
  options.seconds = values.real("seconds");
  options.warmup_epochs = values.integer("warmup_epochs");
  options.batch_group_size = values.integer("batch_group_size");
  return options;
}

DataBenchReport bench_data(const DataBenchOptions& asked) {
  if (asked.input.data_dir.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "trainyard bench data needs a data set", .remedy = "pass its folder as --data_dir"});
  }
  const std::string dataset_name = frontends::choose_dataset(asked.input).name;
  if (asked.input.decode_on_gpu) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "--dali_mode=GPU cannot be used: bench data measures the input of the CPU",
                       .remedy = "leave it out"});
  }
  frontends::InputSettings settings =
      frontends::settle_input(asked.input, dataset_name, choose_image_size(asked, dataset_name), 1);
  if (asked.threads) {
    settings.input_threads = *asked.threads;
  } else if (!asked.input.threads) {
    settings.input_threads = core::available_cores();  // there is no step that needs any
  }
  if (!settings.epoch_sizes.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--progressive_sizes has no epochs here", .remedy = "measure a size: --image_size"});
  }
  const double seconds = asked.seconds;
  const int64_t group_size = asked.batch_group_size;

  DataBenchReport report{.dataset = dataset_name,
                         .batch_size = asked.batch_size,
                         .height = settings.transform.height,
                         .width = settings.transform.width,
                         .threads = settings.input_threads};
  const auto start = std::chrono::steady_clock::now();
  const auto dataset = frontends::open_dataset(settings, data::Subset::kTrain);
  report.samples = dataset->size();
  data::PipelineOptions options = pipeline_options(settings, true);
  options.batch_size = report.batch_size;
  if (settings.balanced_sampling) {
    options.balanced_labels = std::make_shared<const std::vector<int64_t>>(data::sample_labels(*dataset));
  }
  if (dataset->has_label_sets()) options.label_set_size = dataset->label_count();
  const std::shared_ptr<const data::Transform> transform = data::transforms().get(dataset_name)(settings.transform);
  data::Pipeline full(dataset, transform, options);
  full.next();
  report.first_batch_seconds = core::seconds_since(start);

  data::SyntheticSource synthetic({.batch_size = report.batch_size, .height = report.height, .width = report.width});
  report.rates.push_back({"synthetic", take_for(synthetic, kPartForEachComparison * seconds, asked.stop).rate()});

  const int64_t epochs = (asked.warmup_epochs * report.samples + report.batch_size - 1) / report.batch_size;
  const int64_t groups = (epochs + kWarmUpBatches + group_size - 1) / group_size;
  for (int64_t b = 0; b < groups * group_size; ++b) {
    check_stop(asked.stop);
    full.next();
  }
  const data::PipelineStatistics before = full.statistics();
  const double waited_before = full.waited_seconds();
  const Timed timed = take_for(full, seconds, asked.stop);
  const data::PipelineStatistics after = full.statistics();
  report.waited_seconds = full.waited_seconds() - waited_before;
  report.seconds = timed.seconds;
  report.images = timed.images;
  report.bytes = after.bytes - before.bytes;
  report.stages = after.seconds - before.seconds;
  report.peak_memory_bytes = core::peak_memory_bytes();
  full.stop();

  options.mix = {};  // there would be nothing to mix
  data::Pipeline decode_only(dataset, std::make_shared<DecodeOnly>(transform->size()), options);
  for (int b = 0; b < kWarmUpBatches; ++b) decode_only.next();
  report.rates.push_back({"decode only", take_for(decode_only, kPartForEachComparison * seconds, asked.stop).rate()});
  report.rates.push_back({"full", timed.rate()});
  return report;
}

std::string data_bench_text(const DataBenchReport& report) {
  std::string text =
      fmt::format("{}: {} images, batches of {} x 3 x {} x {} float32, {} threads, {:.1f} s\n\n", report.dataset,
                  report.samples, report.batch_size, report.height, report.width, report.threads, report.seconds);
  text += fmt::format("{:<12}{:>10}{:>10}{:>12}\n", "stage", "seconds", "share", "us/image");
  const double all = std::max(report.stages.sum(), 1e-9);
  for (int i = 0; i < data::kStages; ++i) {
    const double spent = report.stages.seconds[i];
    text += fmt::format("{:<12}{:>10.2f}{:>9.1f}%{:>12.1f}\n", data::stage_name(static_cast<data::Stage>(i)), spent,
                        100 * spent / all, 1e6 * spent / static_cast<double>(std::max<int64_t>(report.images, 1)));
  }
  text += "\n";
  for (const DataRate& rate : report.rates)
    text += fmt::format("{:<12}{:>12.1f} images/s\n", rate.name, rate.images_per_second);
  text += fmt::format(
      "\nread {:.1f} MB/s of encoded images; the consumer waited {:.0f} % of the time; first batch after {:.2f} s; "
      "peak "
      "memory {:.0f} MiB\n",
      1e-6 * static_cast<double>(report.bytes) / report.seconds, 100 * report.waited_seconds / report.seconds,
      report.first_batch_seconds, static_cast<double>(report.peak_memory_bytes) / (1 << 20));
  text += fmt::format("total images/sec: {:.2f}\n", report.rates.back().images_per_second);
  return text;
}

}  // namespace trainyard::cli
