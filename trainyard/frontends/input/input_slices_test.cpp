// The input of several processes: slices of the global batches of one process, of each form that data have.
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/label_texts.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/tools/convert_dataset.h"
#include "trainyard/frontends/input/image_source.h"
#include "trainyard/frontends/options/cluster_settings.h"
#include "trainyard/train/testing/fake_accelerator.h"

namespace trainyard::frontends::input_slices_test {
namespace {

constexpr int64_t kImages = 96, kGlobalBatch = 24;

// Shapes in each form: {the data set's name, its folder}.
struct Form {
  std::string name, directory;
};

class Forms {
 public:
  Forms() {
    const std::string records = directory_.file("tfrecord");
    data::write_shapes({.train_count = kImages, .validation_count = 10}, records);
    const std::string folders = directory_.file("folder"), cifar = directory_.file("cifar");
    data::convert_dataset({.name = "shapes", .from = records, .output = folders, .to = "folder"});
    write_cifar(cifar);
    forms_ = {{"shapes", records}, {"imagenet", folders}, {"cifar10", cifar}};
  }
  const std::vector<Form>& all() const { return forms_; }

 private:
  // A label and 3072 bytes of pixels each, of which no two are the same.
  static void write_cifar(const std::string& directory) {
    core::FileSystem& files = core::local_file_system();
    files.make_directories(directory);
    for (int file = 0; file < 6; ++file) {
      const std::string name = file == 5 ? "test_batch.bin" : "data_batch_" + std::to_string(file + 1) + ".bin";
      const int64_t images = file == 4 ? kImages - 80 : 20;
      core::RandomStream random(5, name);
      std::string bytes;
      for (int64_t i = 0; i < images; ++i) {
        bytes.push_back(static_cast<char>(i % 10));
        for (int p = 0; p < 3072; ++p) bytes.push_back(static_cast<char>(random.below(256)));
      }
      files.write_file_atomically(core::join_path(directory, name), bytes);
    }
  }

  core::TempDir directory_;
  std::vector<Form> forms_;
};

// The images of a batch and their labels, each as a hash.
using Samples = std::vector<uint64_t>;

void add_samples(const data::Batch& batch, Samples& samples) {
  const at::Tensor images = batch.images().contiguous();
  if (images.size(0) == 0) return;
  const size_t bytes = images.nbytes() / static_cast<size_t>(images.size(0));
  for (int64_t i = 0; i < images.size(0); ++i) {
    const char* const image = static_cast<const char*>(images.const_data_ptr()) + static_cast<size_t>(i) * bytes;
    samples.push_back(core::stable_hash({image, bytes}) + static_cast<uint64_t>(batch.labels()[i].item<int64_t>()));
  }
}

class Input {
 public:
  explicit Input(const Form& form) {
    InputOptions options;
    options.data_name = form.name;
    options.data_dir = form.directory;
    options.shuffle_buffer = 16;
    options.threads = 1;
    settings_ = settle_input(options, form.name, {32, 32}, 1);
    settings_.transform.height = settings_.transform.width = 32;
    dataset_ = open_dataset(settings_, data::Subset::kTrain);
  }

  // Returns the labels of process `rank` of `ranks`, with `replicas` replicas each.
  std::shared_ptr<data::BatchSource> source(int rank, int ranks, int replicas) const {
    return make_image_source(settings_, {},
                             {.dataset = dataset_,
                              .num_classes = dataset_->label_count(),
                              .batch_size = kGlobalBatch / (ranks * replicas),
                              .replicas = replicas,
                              .first_replica = rank * replicas,
                              .total_replicas = ranks * replicas});
  }
  // Returns all labels of one process, which records their names and compares them.
  std::shared_ptr<data::BatchSource> source_of_names(std::shared_ptr<data::LabelTexts> texts,
                                                     std::shared_ptr<const data::LabelTexts> known) const {
    return make_image_source(settings_, {},
                             {.dataset = dataset_,
                              .num_classes = dataset_->label_count(),
                              .batch_size = kGlobalBatch,
                              .label_texts = std::move(texts),
                              .known_texts = std::move(known)});
  }

 private:
  InputSettings settings_;
  std::shared_ptr<const data::Dataset> dataset_;
};

// What all replicas of all processes get in a step, in the order of the global batch.
Samples step_of(const std::vector<std::shared_ptr<data::BatchSource>>& processes) {
  Samples samples;
  for (const auto& process : processes) {
    for (const data::Batch& batch : process->next()) {
      EXPECT_EQ(batch.first_sample, std::ssize(samples));
      add_samples(batch, samples);
    }
  }
  return samples;
}

std::vector<std::shared_ptr<data::BatchSource>> processes_of(const Input& input, int ranks, int replicas) {
  std::vector<std::shared_ptr<data::BatchSource>> processes;
  for (int rank = 0; rank < ranks; ++rank) processes.push_back(input.source(rank, ranks, replicas));
  return processes;
}

// Batches of a multiple of 4 images: the place in a batch chooses the order of colour distortions.
const std::vector<std::pair<int, int>> kLayouts = {{1, 2}, {2, 1}, {3, 1}, {1, 3}, {2, 3}, {3, 2}, {6, 1}};

TEST(InputSlices, ProcessesTakeWhatOneWouldStepByStep) {
  const Forms forms;
  for (const Form& form : forms.all()) {
    SCOPED_TRACE(form.name);
    const Input input(form);
    const auto alone = processes_of(input, 1, 1);
    std::vector<Samples> steps;
    for (int step = 0; step < 6; ++step) steps.push_back(step_of(alone));
    std::set<uint64_t> epoch;
    for (int step = 0; step < kImages / kGlobalBatch; ++step) {
      epoch.insert(steps[static_cast<size_t>(step)].begin(), steps[static_cast<size_t>(step)].end());
    }
    EXPECT_EQ(std::ssize(epoch), kImages) << "each sample once an epoch";
    for (const auto& [ranks, replicas] : kLayouts) {
      const auto processes = processes_of(input, ranks, replicas);
      for (const Samples& expected : steps) EXPECT_EQ(step_of(processes), expected) << ranks << " x " << replicas;
    }
  }
}

// tf_cnn_benchmarks' test of this name: task 3 of four workers begins at 0.75 of the images, task 0 at 0. There a
// worker turns the order of the files; here it takes its part of each global batch, which leaves no image out.
TEST(InputSlices, testShiftRatio) {
  const Forms forms;
  const Input input(forms.all()[0]);
  ClusterOptions cluster{.job_name = "worker", .ps_hosts = {"p1:1"}, .worker_hosts = {"w1:1", "w2:1", "w3:1", "w4:1"}};
  const auto alone = input.source(0, 1, 1);
  Samples whole;
  for (int step = 0; step < kImages / kGlobalBatch; ++step) add_samples(alone->next()[0], whole);
  std::set<uint64_t> seen;
  for (const int task : {0, 1, 2, 3}) {
    cluster.task_index = task;
    const parallel::ProcessRank rank = worker_rank(cluster);
    const auto source = input.source(rank.rank, rank.size, 1);
    for (int64_t step = 0; step < kImages / kGlobalBatch; ++step) {
      const data::Batch batch = source->next()[0];
      EXPECT_EQ(static_cast<double>(batch.first_sample) / kGlobalBatch, 0.25 * task);
      Samples own;
      add_samples(batch, own);
      const auto begin = whole.begin() + step * kGlobalBatch + batch.first_sample;
      EXPECT_EQ(own, Samples(begin, begin + kGlobalBatch / 4)) << "task " << task << ", step " << step;
      seen.insert(own.begin(), own.end());
    }
  }
  EXPECT_EQ(std::ssize(seen), kImages) << "each image once an epoch";
}

TEST(InputSlices, AnotherNumberOfProcessesGoesOnAtTheSamePlace) {
  const Forms forms;
  for (const Form& form : forms.all()) {
    SCOPED_TRACE(form.name);
    const Input input(form);
    const auto before = processes_of(input, 2, 3);
    for (int step = 0; step < 2; ++step) step_of(before);
    const data::Position place = before[0]->position();
    EXPECT_EQ(place, before[1]->position());
    const std::vector<Samples> expected = {step_of(before), step_of(before), step_of(before)};
    for (const auto& [ranks, replicas] : kLayouts) {
      const auto after = processes_of(input, ranks, replicas);
      for (const auto& process : after) process->seek(place);
      for (const Samples& samples : expected) EXPECT_EQ(step_of(after), samples) << ranks << " x " << replicas;
    }
  }
}

TEST(InputSlices, AnExactEvaluationSeesEachImageOnce) {
  const Forms forms;
  for (const Form& form : forms.all()) {
    SCOPED_TRACE(form.name);
    const Input input(form);
    for (const int ranks : {1, 2, 3, 5}) {
      // 96 images in batches of 23 a rank: of 5 ranks the last one has 4 and nothing in the end.
      InputOptions options;
      options.data_name = form.name;
      options.data_dir = form.directory;
      InputSettings settings = settle_input(options, form.name, {32, 32}, 1);
      settings.transform.height = settings.transform.width = 32;
      const std::shared_ptr<const data::Dataset> dataset = open_dataset(settings, data::Subset::kTrain);
      Samples seen;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto source = make_image_source(settings, {},
                                              {.dataset = dataset,
                                               .num_classes = dataset->label_count(),
                                               .batch_size = 23,
                                               .first_replica = rank,
                                               .total_replicas = ranks,
                                               .training = false,
                                               .repeat = false});
        for (std::vector<data::Batch> next = source->next(); !next.empty(); next = source->next()) {
          add_samples(next[0], seen);
        }
      }
      EXPECT_EQ(std::ssize(seen), kImages) << ranks;
      EXPECT_EQ(std::ssize(std::set<uint64_t>(seen.begin(), seen.end())), kImages) << ranks;
    }
  }
}

// The order that is drawn by labels has no end, which a single pass would need.
TEST(ImageSource, HasTheOrderOfTheLabelsThatItIsGiven) {
  const Forms forms;
  InputOptions options;
  options.data_name = forms.all()[0].name;
  options.data_dir = forms.all()[0].directory;
  const InputSettings settings = settle_input(options, options.data_name, {32, 32}, 1);
  const std::shared_ptr<const data::Dataset> dataset = open_dataset(settings, data::Subset::kTrain);
  ImageSourceOptions source{.dataset = dataset, .num_classes = dataset->label_count(), .batch_size = 8};
  source.repeat = false;
  source.balanced_labels = std::make_shared<const std::vector<int64_t>>(static_cast<size_t>(dataset->size()), 0);
  const std::optional<core::Error> error = core::error_of([&] { make_image_source(settings, {}, source); });
  ASSERT_TRUE(error.has_value());
  EXPECT_TRUE(core::says(*error, "balanced_labels")) << error->what();
}

// Positions count in the samples of an epoch.
TEST(ImageSource, SyntheticImagesHaveTheSizesAndTheEpochThatAreAsked) {
  InputSettings settings;
  settings.dataset = "imagenet";
  settings.transform.height = 6;
  settings.transform.width = 7;
  const auto source =
      make_image_source(settings, {}, {.num_classes = 3, .batch_size = 4, .replicas = 2, .epoch_size = 20});
  const std::vector<data::Batch> batches = source->next();
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[1].images().sizes().vec(), (std::vector<int64_t>{4, 3, 6, 7}));
  EXPECT_LT(batches[1].labels().max().item<int64_t>(), 3);
  EXPECT_EQ(source->position(), (data::Position{0, 8}));
  for (int step = 0; step < 2; ++step) source->next();
  EXPECT_EQ(source->position(), (data::Position{1, 4}));
}

// Batches are made where an accelerator can read them.
TEST(ImageSource, BatchesOfAnAcceleratorAreInItsPinnedMemory) {
  struct Pinning : train::FakeAccelerator {
    at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType dtype) override {
      const at::Tensor memory = FakeAccelerator::pinned(sizes, dtype);
      const std::lock_guard lock(mutex);
      made.insert(memory.const_data_ptr());
      return memory;
    }
    std::mutex mutex;
    std::set<const void*> made;
  };
  const Forms forms;
  InputOptions options;
  options.data_name = forms.all()[0].name;
  options.data_dir = forms.all()[0].directory;
  options.threads = 1;
  const InputSettings settings = settle_input(options, options.data_name, {32, 32}, 1);
  const std::shared_ptr<const data::Dataset> dataset = open_dataset(settings, data::Subset::kTrain);
  const auto accelerator = std::make_shared<Pinning>();
  train::OpenDevices devices;
  devices.accelerators = {accelerator};
  const ImageSourceOptions asked{.dataset = dataset, .num_classes = dataset->label_count(), .batch_size = 4};
  const auto source = make_image_source(settings, devices, asked);
  const std::vector<data::Batch> batches = source->next();
  ASSERT_EQ(batches.size(), 1U);
  const std::lock_guard lock(accelerator->mutex);
  EXPECT_EQ(accelerator->made.count(batches[0].labels().const_data_ptr()), 1U);
}

// As an evaluation compares the names in its records with those of its training.
TEST(ImageSource, RecordsNamesOfLabelsAndComparesThemWithThoseOfOtherData) {
  const Forms forms;
  const Input input(forms.all()[1]);  // class folders: each image has the name of its class
  const auto texts = std::make_shared<data::LabelTexts>(), others = std::make_shared<data::LabelTexts>();
  EXPECT_EQ(input.source_of_names(texts, nullptr)->next().size(), 1U);
  ASSERT_FALSE(texts->all().empty());
  for (const auto& [label, name] : texts->all()) others->add(label, "no " + name, "the training");
  const auto message = [&](const std::shared_ptr<data::LabelTexts>& known) {
    return core::message_of([&] { static_cast<void>(input.source_of_names(nullptr, known)->next()); });
  };
  EXPECT_EQ(message(texts), "no error");
  EXPECT_NE(message(others).find("stands for two classes"), std::string::npos) << message(others);
}

}  // namespace
}  // namespace trainyard::frontends::input_slices_test
