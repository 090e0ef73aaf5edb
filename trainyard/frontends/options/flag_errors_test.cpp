// What the flags of single groups are read as, and the whole errors of those that need others.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/flags/flags.h"
#include "trainyard/core/flags/option_flags.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/options/device_options.h"
#include "trainyard/frontends/options/display_options.h"
#include "trainyard/frontends/options/freeze_options.h"
#include "trainyard/frontends/options/input_options.h"
#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/frontends/options/teacher_options.h"
#include "trainyard/frontends/tf_cnn/flags.h"

namespace trainyard::frontends::flag_errors_test {
namespace {

using Arguments = std::vector<std::string>;
using ::testing::HasSubstr;

FreezeOptions read_freeze(const Arguments& arguments) {
  core::FlagTable table;
  declare_freeze_flags(table, "Training");
  return read_freeze_options(core::parse_flags(table, arguments));
}

TEST(FreezeFlags, TheEpochIsBehindTheLastColon) {
  const FreezeOptions options =
      read_freeze({"--freeze=stem*", "--freeze_until=conv*:2,a:b:0.5", "--freeze_after=fc*:3"});
  EXPECT_EQ(options.patterns, std::vector<std::string>{"stem*"});
  ASSERT_EQ(options.epochs.size(), 3U);
  EXPECT_EQ(options.epochs[0].pattern, "conv*");
  EXPECT_EQ(options.epochs[0].begin, 0);
  EXPECT_EQ(options.epochs[0].end, 2);
  EXPECT_EQ(options.epochs[1].pattern, "a:b");
  EXPECT_EQ(options.epochs[1].end, 0.5);
  EXPECT_EQ(options.epochs[2].pattern, "fc*");
  EXPECT_EQ(options.epochs[2].begin, 3);
  EXPECT_FALSE(options.epochs[2].end.has_value());
}

TEST(FreezeFlags, PartsThatAreNoneAreNamed) {
  for (const std::string part : {"conv", ":2", "conv:"}) {
    EXPECT_EQ(core::message_of([&] { read_freeze({"--freeze_until=fc*:1," + part}); }),
              "a part is not a pattern of names and an epoch: --freeze_until: expected PATTERN:EPOCH, as in "
              "layer1.*:2, got " +
                  part);
  }
  // Nothing is frozen until epoch 0, but from it on.
  EXPECT_THAT(core::message_of([] { read_freeze({"--freeze_until=fc*:0"}); }), HasSubstr("freeze_until"));
  EXPECT_EQ(read_freeze({"--freeze_after=fc*:0"}).epochs.size(), 1U);
  EXPECT_EQ(read_freeze({"--freeze_after=fc*:1000000000"}).epochs.size(), 1U);
  for (const std::string epoch : {"-1", "1000000001"}) {
    EXPECT_THAT(core::message_of([&] { read_freeze({"--freeze_after=fc*:" + epoch}); }), HasSubstr("freeze_after"));
  }
}

TeacherOptions read_teacher(const Arguments& arguments) {
  core::FlagTable table;
  core::flags_of<teacher_flags>().declare(table);
  return core::flags_of<teacher_flags>().read(core::parse_flags(table, arguments));
}

TEST(TeacherFlags, TheFlagWithoutATeacherIsNamed) {
  const auto message = [](const Arguments& arguments) { return core::message_of([&] { read_teacher(arguments); }); };
  const std::string rest = " without a teacher; add --distill_from, or leave it out";
  EXPECT_EQ(message({"--distill_temperature=2"}), "--distill_temperature" + rest);
  EXPECT_EQ(message({"--distill_temperature=2", "--distill_weight=1"}), "--distill_weight" + rest);
  EXPECT_EQ(message({"--distill_weight=1", "--distill_model=resnet18"}), "--distill_model" + rest);
  EXPECT_EQ(message({}), "no error");
  EXPECT_NE(message({"--distill_from=run", "--distill_temperature=0"}), "no error");
  const TeacherOptions plain = read_teacher({"--distill_from=run"});
  EXPECT_EQ(plain.from, "run");
  EXPECT_EQ(plain.loss.weight, 0.5);
  EXPECT_EQ(plain.loss.temperature, 1);
  const TeacherOptions given = read_teacher({"--distill_from=run", "--distill_weight=0.25", "--distill_temperature=4"});
  EXPECT_EQ(given.loss.weight, 0.25);
  EXPECT_EQ(given.loss.temperature, 4);
}

TEST(DisplayFlags, TrackersAreKnownOnes) {
  const auto read = [](const Arguments& arguments) {
    core::FlagTable table;
    core::flags_of<log_flags>().declare(table);
    return core::flags_of<log_flags>().read(core::parse_flags(table, arguments));
  };
  const auto message = [&](const Arguments& arguments) { return core::message_of([&] { read(arguments); }); };
  EXPECT_EQ(message({"--trackers=mlflow,mlflaw"}),
            "unknown tracker 'mlflaw': --trackers; did you mean 'mlflow'? known: mlflow");
  EXPECT_EQ(message({"--mlflow_dir=x"}), "--mlflow_dir is of --trackers=mlflow; pass both, or neither");
  EXPECT_EQ(read({"--trackers=mlflow", "--mlflow_dir=x"}).mlflow_dir, "x");
  EXPECT_FALSE(read({}).save_summaries_steps.has_value());
  EXPECT_EQ(read({"--save_summaries_steps=0"}).save_summaries_steps, 0);
}

InputOptions read_division(const Arguments& arguments) {
  core::FlagTable table;
  declare_division_flags(table);
  InputOptions options;
  read_division_flags(core::parse_flags(table, arguments), options);
  return options;
}

TEST(DivisionFlags, AreOneDivision) {
  EXPECT_FALSE(read_division({}).division.has_value());
  EXPECT_EQ(read_division({"--validation_split=0.25"}).division, (data::Division{.validation = 0.25}));
  EXPECT_EQ(read_division({"--folds=3", "--fold=2"}).division, (data::Division{.folds = 3, .fold = 2}));
}

TEST(DivisionFlags, ThatContradictEachOtherAreRefused) {
  const auto message = [](const Arguments& arguments) { return core::message_of([&] { read_division(arguments); }); };
  EXPECT_EQ(message({"--validation_split=0.3", "--folds=3"}),
            "--validation_split and --folds divide the images in two ways; leave one of them out");
  EXPECT_EQ(message({"--folds=3"}), "--folds does not say which part is for validation; add --fold, from 0 on");
  EXPECT_EQ(message({"--fold=1"}), "--fold without --folds; add --folds, or leave it out");
  for (const Arguments& divided : {Arguments{"--validation_split=0.3"}, Arguments{"--folds=3", "--fold=1"}}) {
    Arguments arguments = divided;
    arguments.emplace_back("--nosplit_class_folders");
    EXPECT_EQ(message(arguments),
              "--nosplit_class_folders divides nothing, which --validation_split and --folds ask for; leave one of "
              "them out");
  }
  EXPECT_EQ(message({"--folds=3", "--fold=3"}),
            "number of the fold is out of range: --folds and --fold: expected 0 to 2, got 3");
  EXPECT_EQ(message({"--on_unlabelled_file=skip"}), "--on_unlabelled_file without a table of labels; add --labels_csv");
}

InputOptions read_input(const Arguments& arguments) {
  return read_input_options(core::parse_flags(tf_cnn_flags(), arguments));
}

TEST(InputFlags, WithoutUseAreRefused) {
  const auto message = [](const Arguments& arguments) { return core::message_of([&] { read_input(arguments); }); };
  EXPECT_EQ(message({"--record_cache_mib=4"}),
            "--record_cache_mib without a cache of records; add --datasets_use_caching, or leave it out");
  EXPECT_EQ(message({"--mixup_prob=0.5"}),
            "--mixup_prob has nothing to choose; add --mixup_alpha or --cutmix_alpha, or leave it out");
  for (const std::string alone : {"--mixup_alpha=0.2", "--cutmix_alpha=0.2"}) {
    EXPECT_EQ(message({alone, "--mixup_switch_prob=0.5"}),
              "--mixup_switch_prob has nothing to choose; add --mixup_alpha and --cutmix_alpha, or leave it out");
    EXPECT_EQ(message({alone, "--mixup_prob=0.5"}), "no error");
  }
}

TEST(InputFlags, OfTheSourceReachTheirOptions) {
  const InputOptions options =
      read_input({"--data_dir=d", "--data_index_dir=i", "--data_name=coco", "--on_unknown_class=skip",
                  "--labels_csv=l.csv", "--on_unlabelled_file=skip", "--folds=7", "--fold=3", "--tf_random_seed=77",
                  "--cutout=5", "--on_bad_sample=substitute", "--bad_sample_budget=0.25"});
  EXPECT_EQ(options.data_dir, "d");
  EXPECT_EQ(options.data_index_dir, "i");
  EXPECT_EQ(options.data_name, "coco");
  EXPECT_EQ(options.on_unknown_class, data::OnUnknownClass::kSkip);
  EXPECT_EQ(options.labels_csv, "l.csv");
  EXPECT_EQ(options.on_unlabelled_file, data::OnUnlabelledFile::kSkip);
  ASSERT_TRUE(options.division.has_value());
  EXPECT_EQ(options.division->folds, 7);
  EXPECT_EQ(options.division->fold, 3);
  EXPECT_EQ(options.seed, 77U);
  EXPECT_EQ(options.images.cutout, 5) << "images have their flags";
  EXPECT_EQ(options.bad_samples.policy, data::OnBadSample::kSubstitute);
  EXPECT_EQ(options.bad_samples.budget, 0.25);
  EXPECT_TRUE(options.split_class_folders);
  EXPECT_FALSE(read_input({"--nosplit_class_folders"}).split_class_folders);
  EXPECT_EQ(core::message_of([] { read_input({"--on_unlabelled_file=skip"}); }),
            "--on_unlabelled_file without a table of labels; add --labels_csv");
}

TEST(InputFlags, OfThePipelineReachTheirOptions) {
  const InputOptions options = read_input(
      {"--datasets_num_private_threads=3", "--datasets_use_caching", "--record_cache_mib=5",
       "--datasets_repeat_cached_sample", "--shuffle_buffer=11", "--decoded_cache_mib=7", "--decoded_cache_dir=c",
       "--dali_mode=GPU", "--balanced_sampling", "--mixup_alpha=0.5", "--cutmix_alpha=2", "--mixup_prob=0.75",
       "--mixup_switch_prob=0.125", "--repeated_augmentation=3", "--progressive_sizes=0:128,20:192"});
  EXPECT_EQ(options.threads, 3);
  EXPECT_TRUE(options.cache_records);
  EXPECT_EQ(options.record_cache_bytes, 5 * 1024 * 1024);
  EXPECT_TRUE(options.repeat_cached_sample);
  EXPECT_EQ(options.shuffle_buffer, 11);
  EXPECT_EQ(options.decoded_cache_bytes, 7 * 1024 * 1024);
  EXPECT_EQ(options.decoded_cache_dir, "c");
  EXPECT_TRUE(options.decode_on_gpu);
  EXPECT_TRUE(options.balanced_sampling);
  EXPECT_EQ(options.mix.mixup_alpha, 0.5);
  EXPECT_EQ(options.mix.cutmix_alpha, 2);
  EXPECT_EQ(options.mix.probability, 0.75);
  EXPECT_EQ(options.mix.cutmix_probability, 0.125);
  EXPECT_EQ(options.repeated_augmentation, 3);
  ASSERT_EQ(options.epoch_sizes.size(), 2U);
  EXPECT_EQ(options.epoch_sizes[1].from_epoch, 20);
  EXPECT_EQ(read_input({"--nodatasets_use_prefetch", "--datasets_prefetch_buffer_size=3"}).batches_ahead, 0);
}

TEST(InputFlags, ThatAreNotGivenLeaveTheOptionsAsTheyAre) {
  const InputOptions options = read_input({});
  EXPECT_EQ(options.data_dir + options.data_index_dir + options.data_name + options.labels_csv, "");
  EXPECT_EQ(options.on_unknown_class, data::OnUnknownClass::kFail);
  EXPECT_EQ(options.on_unlabelled_file, data::OnUnlabelledFile::kFail);
  EXPECT_EQ(options.division, std::nullopt);
  EXPECT_EQ(options.seed, 1234U);
  EXPECT_EQ(options.bad_samples.policy, data::OnBadSample::kFail);
  EXPECT_EQ(options.threads, std::nullopt);
  EXPECT_EQ(options.batches_ahead, 1);
  EXPECT_EQ(options.shuffle_buffer, 10'000);
  EXPECT_EQ(options.record_cache_bytes, std::nullopt);
  EXPECT_EQ(options.decoded_cache_bytes, 0);
  EXPECT_EQ(options.decoded_cache_dir, "");
  EXPECT_FALSE(options.cache_records || options.repeat_cached_sample || options.decode_on_gpu);
  EXPECT_FALSE(options.balanced_sampling || options.mix.enabled());
  EXPECT_EQ(options.mix.probability, 1);
  EXPECT_EQ(options.mix.cutmix_probability, 0.5);
  EXPECT_EQ(options.repeated_augmentation, 1);
  EXPECT_TRUE(options.epoch_sizes.empty());
  EXPECT_FALSE(read_input({"--dali_mode=CPU"}).decode_on_gpu);
}

TEST(InputFlags, AreWithinTheirBounds) {
  struct Bounds {
    const char* flag;
    std::optional<double> least, most;
  };
  for (const Bounds& expected : {Bounds{"bad_sample_budget", 0, 1e15},
                                 {"record_cache_mib", 1, 1'073'741'824},
                                 {"decoded_cache_mib", 0, 1'073'741'824},
                                 {"shuffle_buffer", 0, {}},
                                 {"mixup_alpha", 0, {}},
                                 {"cutmix_alpha", 0, {}},
                                 {"mixup_prob", 0, 1},
                                 {"mixup_switch_prob", 0, 1},
                                 {"repeated_augmentation", 1, 1024},
                                 {"validation_split", 0, 1},
                                 {"folds", 2, 1'000'000},
                                 {"fold", 0, 999'999}}) {
    const core::FlagSpec* const flag = tf_cnn_flags().find(expected.flag);
    ASSERT_NE(flag, nullptr) << expected.flag;
    EXPECT_EQ(flag->lower_bound, expected.least) << expected.flag;
    EXPECT_EQ(flag->upper_bound, expected.most) << expected.flag;
  }
  const core::FlagSpec& part = *tf_cnn_flags().find("validation_split");
  EXPECT_TRUE(part.above_lower);
  EXPECT_TRUE(part.below_upper);
}

TEST(InputFlags, TheLargerBufferOfBatchesCounts) {
  EXPECT_EQ(
      read_input({"--datasets_prefetch_buffer_size=3", "--multi_device_iterator_max_buffer_size=5"}).batches_ahead, 5);
  EXPECT_EQ(
      read_input({"--datasets_prefetch_buffer_size=7", "--multi_device_iterator_max_buffer_size=5"}).batches_ahead, 7);
}

TEST(DeviceFlags, AListOfGpusIsShownWhole) {
  const core::FlagValues values = core::parse_flags(tf_cnn_flags(), {"--gpu_indices=1,-2"});
  EXPECT_EQ(core::message_of([&] { static_cast<void>(read_device_options(values)); }),
            "--gpu_indices is no list of GPUs: expected numbers from 0, comma separated, got 1,-2");
}

std::string problem_of_rate(const Arguments& arguments) {
  return core::problem_of([&] { check_schedule_flags(core::parse_flags(tf_cnn_flags(), arguments)); });
}

TEST(LearningRateFlags, OfANamedScheduleSayWhichItIs) {
  for (const auto& [flag, schedule] : {std::pair{"--restart_period_factor=2", "cosine_restarts"},
                                       {"--polynomial_power=2", "polynomial"},
                                       {"--polynomial_cycle", "polynomial"},
                                       {"--num_learning_rate_cooldown_epochs=1", "cosine"},
                                       {"--one_cycle_rise=0.4", "one_cycle"},
                                       {"--one_cycle_shape=linear", "one_cycle"},
                                       {"--one_cycle_start_divisor=5", "one_cycle"},
                                       {"--one_cycle_end_divisor=5", "one_cycle"},
                                       {"--one_cycle_three_phases", "one_cycle"},
                                       {"--one_cycle_momentum=.8,.9", "one_cycle"}}) {
    const std::string name = std::string(flag).substr(0, std::string(flag).find('='));
    EXPECT_EQ(problem_of_rate({"--init_learning_rate=1", flag}), name + " is of --learning_rate_schedule=" + schedule);
  }
}

TEST(LearningRateFlags, AConstantRateTakesNoneOfTheSchedules) {
  for (const std::string flag : {"--num_epochs_per_decay=2", "--learning_rate_decay_factor=0.5",
                                 "--minimum_learning_rate=0.1", "--restart_period_factor=2", "--polynomial_power=2",
                                 "--polynomial_cycle", "--num_learning_rate_cooldown_epochs=1", "--one_cycle_rise=0.4",
                                 "--one_cycle_shape=linear", "--one_cycle_start_divisor=5", "--one_cycle_end_divisor=5",
                                 "--one_cycle_three_phases", "--one_cycle_momentum=.8,.9"}) {
    EXPECT_EQ(problem_of_rate({"--init_learning_rate=1", "--learning_rate_schedule=constant", flag}),
              "--learning_rate_schedule=constant cannot be used with " + flag.substr(0, flag.find('=')));
  }
  EXPECT_EQ(problem_of_rate({"--init_learning_rate=1", "--learning_rate_schedule=constant"}), "");
}

TEST(LearningRateFlags, ADecayNeedsItsPeriodAndItsFactor) {
  for (const std::string schedule : {"staircase", "exponential"}) {
    const Arguments named{"--init_learning_rate=1", "--learning_rate_schedule=" + schedule};
    const auto with = [&](const Arguments& more) {
      Arguments all = named;
      all.insert(all.end(), more.begin(), more.end());
      return problem_of_rate(all);
    };
    const std::string requires_flag = "--learning_rate_schedule=" + schedule + " requires --";
    EXPECT_EQ(with({"--learning_rate_decay_factor=0.5"}), requires_flag + "num_epochs_per_decay");
    EXPECT_EQ(with({"--num_epochs_per_decay=2"}), requires_flag + "learning_rate_decay_factor");
    EXPECT_EQ(with({"--num_epochs_per_decay=2", "--learning_rate_decay_factor=0.5", "--minimum_learning_rate=0.1"}),
              "");
  }
}

TEST(LearningRateFlags, APiecewiseRateTakesNoOther) {
  const std::string piecewise = "--piecewise_learning_rate_schedule=1;2;.1";
  EXPECT_EQ(problem_of_rate({piecewise}), "");
  for (const std::string flag : {"--init_learning_rate=1", "--learning_rate_decay_factor=0.5",
                                 "--minimum_learning_rate=0.1", "--num_epochs_per_decay=2"}) {
    EXPECT_EQ(problem_of_rate({piecewise, flag}),
              "No other learning rate-related flags can be specified if --piecewise_learning_rate_schedule is "
              "specified")
        << flag;
  }
}

TEST(LearningRateFlags, RatesOfWholeEpochsHaveLengthsOfWholeEpochs) {
  const Arguments by_epoch{"--init_learning_rate=1", "--learning_rate_updates=epoch"};
  const auto with = [&](const Arguments& more) {
    Arguments all = by_epoch;
    all.insert(all.end(), more.begin(), more.end());
    return problem_of_rate(all);
  };
  const std::string whole = "--learning_rate_updates=epoch requires whole epochs, and --";
  EXPECT_EQ(with({"--num_learning_rate_warmup_epochs=2.5"}), whole + "num_learning_rate_warmup_epochs is 2.5");
  EXPECT_EQ(with({"--learning_rate_schedule=cosine", "--num_learning_rate_cooldown_epochs=0.5"}),
            whole + "num_learning_rate_cooldown_epochs is 0.5");
  EXPECT_EQ(
      with({"--learning_rate_schedule=staircase", "--learning_rate_decay_factor=0.5", "--num_epochs_per_decay=1.5"}),
      whole + "num_epochs_per_decay is 1.5");
  EXPECT_EQ(with({"--learning_rate_schedule=cosine", "--num_learning_rate_warmup_epochs=2",
                  "--num_learning_rate_cooldown_epochs=1"}),
            "");
  EXPECT_EQ(with({"--learning_rate_schedule=one_cycle"}),
            "--learning_rate_schedule=one_cycle cannot be used with --learning_rate_updates=epoch: a cycle counts in "
            "steps");
  EXPECT_EQ(problem_of_rate({"--learning_rate_updates=epoch"}),
            "--learning_rate_updates=epoch requires --init_learning_rate or --piecewise_learning_rate_schedule: a "
            "model's own rate changes by steps");
}

TEST(LearningRateFlags, SayWhatTheyRequire) {
  const std::string warmup = " requires --num_learning_rate_warmup_epochs",
                    rate = " requires --init_learning_rate or --piecewise_learning_rate_schedule";
  for (const std::string flag : {"--learning_rate_warmup=multiply", "--warmup_learning_rate=0.1"}) {
    const std::string name = flag.substr(0, flag.find('='));
    EXPECT_EQ(problem_of_rate({"--init_learning_rate=1", flag}), name + warmup);
    EXPECT_EQ(problem_of_rate({"--num_learning_rate_warmup_epochs=1", flag}), name + rate);
    EXPECT_EQ(problem_of_rate({"--init_learning_rate=1", "--num_learning_rate_warmup_epochs=1", flag}), "");
  }
  EXPECT_EQ(problem_of_rate({"--learning_rate_scaling=linear"}),
            "--learning_rate_scaling" + rate + ": a model's own rate is scaled where it is for a batch");
  EXPECT_EQ(problem_of_rate({"--init_learning_rate=1", "--learning_rate_base_batch_size=77"}),
            "--learning_rate_base_batch_size requires --learning_rate_scaling");
  const auto named = [](const std::string& schedule, const Arguments& more) {
    Arguments all{"--init_learning_rate=1", "--learning_rate_schedule=" + schedule};
    all.insert(all.end(), more.begin(), more.end());
    return problem_of_rate(all);
  };
  EXPECT_EQ(named("one_cycle", {"--num_learning_rate_warmup_epochs=1"}),
            "--learning_rate_schedule=one_cycle cannot be used with --num_learning_rate_warmup_epochs: a cycle begins "
            "with one (--one_cycle_rise)");
  EXPECT_EQ(named("one_cycle", {"--one_cycle_momentum=.8"}),
            "--one_cycle_momentum needs two numbers, the least and the most, not 1");
  EXPECT_EQ(named("one_cycle", {"--one_cycle_momentum=.8,.9"}), "");
  EXPECT_EQ(named("polynomial", {"--polynomial_cycle"}),
            "--polynomial_cycle requires --num_epochs_per_decay: the length of a cycle");
  EXPECT_EQ(named("polynomial", {"--num_learning_rate_cooldown_epochs=1", "--num_epochs_per_decay=2"}),
            "--num_learning_rate_cooldown_epochs cannot be used with --num_epochs_per_decay: the decay ends with it");
  EXPECT_EQ(named("cosine_restarts", {}), "--learning_rate_schedule=cosine_restarts requires --num_epochs_per_decay");
}

}  // namespace
}  // namespace trainyard::frontends::flag_errors_test
