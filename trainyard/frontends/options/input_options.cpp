#include "trainyard/frontends/options/input_options.h"

#include <algorithm>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/option_flags.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/pipeline/bad_samples.h"

namespace trainyard::frontends {
namespace {

using core::FlagValues;
using InputFlags = core::OptionFlags<InputOptions>;

std::optional<int64_t> record_cache_bytes(const FlagValues& values) {
  const auto limit = values.optional_integer("record_cache_mib");
  if (!limit) return std::nullopt;
  if (values.boolean("datasets_use_caching")) return *limit << 20;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--record_cache_mib without a cache of records",
                                                        .remedy = "add --datasets_use_caching, or leave it out"});
}

// Throws for a flag of pairs that are mixed where none is.
void refuse_idle_mix_flags(const FlagValues& values, const data::MixOptions& mix) {
  const auto refuse = [&](const char* flag, bool used, const char* remedy) {
    if (!values.optional_real(flag) || used) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = std::string("--") + flag + " has nothing to choose", .remedy = remedy});
  };
  refuse("mixup_prob", mix.enabled(), "add --mixup_alpha or --cutmix_alpha, or leave it out");
  refuse("mixup_switch_prob", mix.mixup_alpha > 0 && mix.cutmix_alpha > 0,
         "add --mixup_alpha and --cutmix_alpha, or leave it out");
}

InputFlags make_source_flags() {
  InputFlags flags("Data");
  flags.add(
      "data_dir", &InputOptions::data_dir,
      "folder of the data set: TFRecords, WebDataset shards, class folders, or CIFAR-10 in its python or binary "
      "batches; or shards by name: a glob, train-{000..146}.tar; unset: synthetic images, which the commands train "
      "and eval want --synthetic for");
  flags.add("data_index_dir", &InputOptions::data_index_dir,
            "folder of the TFRecords' index files NAME.idx (trainyard data index); unset: the folder idx beside the "
            "shards, or theirs");
  flags.add(
      "data_name", &InputOptions::data_name,
      "imagenet (images of any size), cifar10, shapes or coco; unset: by the classes of class folders, else the first "
      "of them that is part of data_dir, else by what it holds");
  declare_unknown_class_flag(flags.table(), "Data");
  flags.table()
      .boolean("use_datasets", true, "which of two input paths to use")
      .group(flags.group())
      .translated("one pipeline serves both, with the same batches");
  return flags;
}

// Returns the division that --validation_split, or --folds with --fold, ask for.
std::optional<data::Division> read_division(const FlagValues& values) {
  const auto part = values.optional_real("validation_split");
  const auto folds = values.optional_integer("folds"), fold = values.optional_integer("fold");
  const auto refuse_if = [](bool holds, const char* problem, const char* remedy) {
    if (holds) throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .remedy = remedy});
  };
  refuse_if(part && folds, "--validation_split and --folds divide the images in two ways", "leave one of them out");
  refuse_if(folds && !fold, "--folds does not say which part is for validation", "add --fold, from 0 on");
  refuse_if(fold && !folds, "--fold without --folds", "add --folds, or leave it out");
  refuse_if((part || folds) && !values.boolean("split_class_folders"),
            "--nosplit_class_folders divides nothing, which --validation_split and --folds ask for",
            "leave one of them out");
  if (!part && !folds) return std::nullopt;
  data::Division division;
  if (part) division.validation = *part;
  if (folds) {
    division.folds = *folds;
    division.fold = *fold;
  }
  try {
    division.validate();
  } catch (const core::Error& error) {
    core::ErrorDetail detail = error.detail();
    detail.where = part ? "--validation_split" : "--folds and --fold";
    throw core::Error(error.code(), std::move(detail));
  }
  return division;
}

// Returns the flags of how images are divided into training and validation, and of tables of labels.
InputFlags make_division_flags() {
  InputFlags flags("Data");
  flags.add("split_class_folders", &InputOptions::split_class_folders,
            "class folders without folders train and val, and tables of labels: keep a fifth of each class, by a hash "
            "of the images' names, for validation, in trainings and in evaluations; false: each of them takes all "
            "images");
  core::FlagTable& table = flags.table();
  table
      .real("validation_split", std::nullopt,
            "images without a validation set: keep this part of each class for validation, by a hash of the images' "
            "names. A checkpoint remembers it")
      .above(0)
      .below(1)
      .group(flags.group());
  table
      .integer("folds", std::nullopt,
               "images without a validation set: cut each class into so many parts, by a hash of the images' names; "
               "the one that --fold names is for validation")
      .bounds(2, 1'000'000)
      .group(flags.group());
  table.integer("fold", std::nullopt, "with folds: which part is for validation, 0 to folds - 1")
      .bounds(0, 999'999)
      .group(flags.group());
  flags.add("labels_csv", &InputOptions::labels_csv,
            "table of the labels of the files below data_dir, as comma-separated values: the columns file,label; or "
            "several labels an image, file,labels with ';' between them, or file and a column of 0 and 1 for each "
            "class");
  flags.choice("on_unlabelled_file", &InputOptions::on_unlabelled_file,
               std::vector<std::pair<std::string, data::OnUnlabelledFile>>{{"fail", data::OnUnlabelledFile::kFail},
                                                                           {"skip", data::OnUnlabelledFile::kSkip}},
               "with labels_csv: what becomes of images that the table does not name: the run fails, or they are left "
               "out");
  flags.also([](const FlagValues& values, InputOptions& options) {
    options.division = read_division(values);
    if (!options.labels_csv.empty()) return;
    if (options.on_unlabelled_file == data::OnUnlabelledFile::kFail) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--on_unlabelled_file without a table of labels", .remedy = "add --labels_csv"});
  });
  return flags;
}

void add_bad_sample_flags(InputFlags& flags) {
  flags.table()
      .choice(
          "on_bad_sample", "fail", {"fail", "skip", "substitute"},
          "what becomes of a sample that cannot be read or decoded: the run fails; the next one of the order takes its "
          "place (an exact evaluation leaves it out); another one drawn by the seed takes its place")
      .group(flags.group());
  flags
      .add(
          "bad_sample_budget", [](InputOptions & options) -> auto& { return options.bad_samples.budget; },
          "bad samples that are skipped or substituted before the run fails: up to 1 as a part of the data set's "
          "samples, at least one of them but for 0, above that as a number; unset: 0.0001, and ten at least (half of a "
          "set of fewer than twenty)")
      .bounds(0, 1e15);
  flags.also([](const FlagValues& values, InputOptions& options) {
    options.bad_samples.policy = data::on_bad_sample(values.text("on_bad_sample"));
    options.bad_samples.validate();
    options.on_unknown_class = data::on_unknown_class(values.text("on_unknown_class"));
  });
}

// Adds the flags of what is read and made ahead of the steps, and by how many threads.
void add_ahead_flags(InputFlags& flags) {
  flags.table().boolean("datasets_use_prefetch", true, "make the next batches while a step runs").group(flags.group());
  flags.table().integer("datasets_prefetch_buffer_size", 1, "batches kept ready for each device").group(flags.group());
  flags.add("datasets_num_private_threads", &InputOptions::threads,
            "threads that read and decode; unset: by the cores left");
  flags.add("datasets_use_caching", &InputOptions::cache_records,
            "keep the records, as compressed, in memory after they were read once");
  flags.table()
      .integer(
          "record_cache_mib", std::nullopt,
          "how much memory datasets_use_caching may take, in MiB, for the training images of a process and again "
          "for its validation images; unset: half of what is free at the start, for both and for all processes that "
          "a launcher (mpirun, torchrun, srun) says to be on this machine")
      .bounds(1, 1 << 30)
      .group(flags.group());
  flags.add("datasets_repeat_cached_sample", &InputOptions::repeat_cached_sample,
            "feed one record again and again, from memory: tests the pipeline");
  core::FlagTable& table = flags.table();
  const std::string& group = flags.group();
  table.integer("datasets_parallel_interleave_cycle_length", std::nullopt, "files that are read side by side")
      .group(group)
      .translated("the order of records is a function of the seed, whatever is read at the same time");
  table.boolean("datasets_sloppy_parallel_interleave", false, "allow an order that depends on which file is faster")
      .group(group)
      .translated("the order is always a function of the seed, at no cost");
  table.integer("datasets_parallel_interleave_prefetch", std::nullopt, "records read ahead in each file")
      .group(group)
      .translated("records are read by offset, as the order asks for them");
  table
      .integer("multi_device_iterator_max_buffer_size", 1,
               "batches kept on the host for each device: the larger of it and datasets_prefetch_buffer_size counts")
      .group(group);
  flags.also([](const FlagValues& values, InputOptions& options) {
    const bool ahead = values.boolean("datasets_use_prefetch");
    options.batches_ahead = ahead ? std::max<int64_t>({1, values.integer("datasets_prefetch_buffer_size"),
                                                       values.integer("multi_device_iterator_max_buffer_size")})
                                  : 0;
    options.record_cache_bytes = record_cache_bytes(values);
  });
}

void add_decoding_flags(InputFlags& flags) {
  flags
      .add("shuffle_buffer", &InputOptions::shuffle_buffer,
           "samples among which the next one of a shuffled epoch is drawn; 0: all")
      .bounds(0);
  flags.table()
      .integer("decoded_cache_mib", 0,
               "keep decoded images in memory, up to so many MiB: whole ones, which later epochs only crop")
      .bounds(0, 1 << 30)
      .group(flags.group());
  flags.also([](const FlagValues& values, InputOptions& options) {
    options.decoded_cache_bytes = values.integer("decoded_cache_mib") << 20;
  });
  flags.add("decoded_cache_dir", &InputOptions::decoded_cache_dir,
            "keep decoded images in files in this folder, for later runs too; refused once the data have changed");
  flags.choice("dali_mode", &InputOptions::decode_on_gpu,
               std::vector<std::pair<std::string, bool>>{{"none", false}, {"CPU", false}, {"GPU", true}},
               "where JPEGs of ImageNet become input; GPU: nvJPEG decodes them, and they are cut out, resized and "
               "normalized there in one pass, the same windows; none and CPU: by the input's threads, the same way");
  flags.table()
      .integer("batch_group_size", 1, "batches that are made at a time; the warm-up is rounded up to a multiple")
      .group(flags.group());
}

template <typename Member>
auto of_mix(Member member) {
  return [member](InputOptions & options) -> auto& {
    return options.mix.*member;
  };
}

void add_batch_flags(InputFlags& flags) {
  using M = data::MixOptions;
  flags.group("Batches");
  flags.add("balanced_sampling", &InputOptions::balanced_sampling,
            "draw each class equally often in training, whatever its number of images: an epoch keeps its number of "
            "images, and images of rare classes come several times, augmented anew each time");
  flags
      .add("mixup_alpha", of_mix(&M::mixup_alpha),
           "mixup: blend pairs of images and their labels, with shares from Beta(alpha, alpha); 0: no mixup")
      .bounds(0);
  flags
      .add("cutmix_alpha", of_mix(&M::cutmix_alpha),
           "CutMix: exchange boxes within pairs of images, of areas from Beta(alpha, alpha), and mix their labels by "
           "area; 0: no CutMix")
      .bounds(0);
  flags
      .given(of_mix(&M::probability),
             flags.table().real("mixup_prob", std::nullopt,
                                "with mixup_alpha or cutmix_alpha: how likely a pair is mixed; unset: 1"))
      .bounds(0, 1);
  flags
      .given(of_mix(&M::cutmix_probability),
             flags.table().real("mixup_switch_prob", std::nullopt,
                                "with mixup_alpha and cutmix_alpha: how likely a pair that is mixed takes CutMix; "
                                "unset: 0.5"))
      .bounds(0, 1);
  flags.also([](const FlagValues& values, InputOptions& options) { refuse_idle_mix_flags(values, options.mix); });
  flags
      .add("repeated_augmentation", &InputOptions::repeated_augmentation,
           "how often each sample comes in an epoch, augmented anew each time; an epoch keeps its number of images and "
           "visits fewer samples")
      .bounds(1, 1024);
  flags.table()
      .text("progressive_sizes", std::nullopt,
            "sizes of training images by epoch, \"0:128,20:192,35:224\": 128 x 128 pixels from epoch 0 on, and so on; "
            "evaluations take the last one; unset: image_size throughout")
      .group(flags.group());
  flags.also([](const FlagValues& values, InputOptions& options) {
    options.epoch_sizes = data::parse_epoch_sizes(values.text("progressive_sizes"));
  });
}

// Returns the flags behind those of the source.
InputFlags make_input_flags() {
  InputFlags flags("Data");
  declare_image_flags(flags.table());
  flags.also([](const FlagValues& values, InputOptions& options) {
    options.seed = static_cast<uint64_t>(values.integer("tf_random_seed"));
    options.images = read_image_options(values);
  });
  flags.group("Input pipeline");
  add_bad_sample_flags(flags);
  add_ahead_flags(flags);
  add_decoding_flags(flags);
  add_batch_flags(flags);
  return flags;
}

}  // namespace

void declare_unknown_class_flag(core::FlagTable& table, const char* group) {
  table
      .choice("on_unknown_class", "fail", {"fail", "skip"},
              "what becomes of validation images of a class that the training images, or the checkpoint that is "
              "evaluated, do not have: the run fails, or they are left out")
      .group(group);
}

void declare_source_flags(core::FlagTable& table) {
  core::flags_of<make_source_flags>().declare(table);
}

void declare_division_flags(core::FlagTable& table) {
  core::flags_of<make_division_flags>().declare(table);
}

void read_division_flags(const FlagValues& values, InputOptions& options) {
  core::flags_of<make_division_flags>().read(values, options);
}

void declare_input_flags(core::FlagTable& table) {
  core::flags_of<make_source_flags>().declare(table);
  declare_division_flags(table);
  core::flags_of<make_input_flags>().declare(table);
}

void declare_synthetic_flag(core::FlagTable& table) {
  table
      .boolean("synthetic", false,
               "take synthetic images, which need no data_dir: to measure speed. `trainyard train` takes them only "
               "where this asks for them")
      .group("Data");
}

InputOptions read_input_options(const FlagValues& values) {
  InputOptions options = core::flags_of<make_source_flags>().read(values);
  read_division_flags(values, options);
  core::flags_of<make_input_flags>().read(values, options);
  return options;
}

}  // namespace trainyard::frontends
