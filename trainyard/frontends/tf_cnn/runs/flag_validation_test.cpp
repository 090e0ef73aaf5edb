#include "trainyard/frontends/tf_cnn/flag_validation.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/core/threads/thread_limit.h"
#include "trainyard/frontends/options/flag_ranges.h"
#include "trainyard/frontends/tf_cnn/flags.h"

namespace trainyard::frontends::flag_validation_test {
namespace {

// Command lines are written as they would be typed: flags with blanks between them.
core::FlagValues parse(const std::string& line) {
  std::vector<std::string> arguments;
  std::istringstream words(line);
  for (std::string word; words >> word;) arguments.push_back(word);
  return core::parse_flags(tf_cnn_flags(), arguments);
}

std::string problem_of(const std::string& line) {
  return core::problem_of([&] { validate_flags(parse(line)); });
}

struct Row {
  const char *item, *refused, *problem, *accepted;  // `accepted`: the nearest command line that passes
};

void PrintTo(const Row& row, std::ostream* out) {  // NOLINT(readability-identifier-naming): GoogleTest looks for it
  *out << row.item << ": " << row.refused;
}

class FlagValidation : public ::testing::TestWithParam<Row> {};

TEST_P(FlagValidation, RefusesWithUpstreamsTextAndAcceptsTheNeighbour) {
  EXPECT_EQ(problem_of(GetParam().refused), GetParam().problem);
  EXPECT_EQ(problem_of(GetParam().accepted), "") << GetParam().accepted;
}

constexpr const char* kDecay =
    "If one of num_epochs_per_decay or learning_rate_decay_factor is set, both must be setand learning_rate must be "
    "set";
constexpr const char* kMinimum =
    "minimum_learning_rate requires learning_rate,num_epochs_per_decay, and learning_rate_decay_factor to be set";
constexpr const char* kOnePrefix = "At most one flag with --eval_during_training_* prefix must be specified.";
constexpr const char* kOnePair = "At most one of --num_batches and --num_epochs may be specified.";
constexpr const char* kTrt =
    "--trt_mode should not be specified if one of --forward_only and --freeze_when_forward_only is set to False";
constexpr const char* kPiecewise =
    "No other learning rate-related flags can be specified if --piecewise_learning_rate_schedule is specified";

// Items of section 4 of the specification.
INSTANTIATE_TEST_SUITE_P(
    Section4, FlagValidation,
    ::testing::Values(
        Row{"4", "--forward_only --eval --train_dir=x", "Only one of forward_only and eval parameters is true",
            "--eval --train_dir=x"},
        Row{"6", "--num_epochs_per_decay=1", kDecay,
            "--num_epochs_per_decay=1 --learning_rate_decay_factor=.5 --init_learning_rate=1"},
        Row{"6", "--learning_rate_decay_factor=.5 --init_learning_rate=1", kDecay,
            "--learning_rate_decay_factor=.5 --init_learning_rate=1 --num_epochs_per_decay=2"},
        Row{"6", "--learning_rate_decay_factor=.5 --num_epochs_per_decay=2", kDecay,
            "--learning_rate_decay_factor=0 --num_epochs_per_decay=0"},
        Row{"7", "--minimum_learning_rate=.1", kMinimum,
            "--minimum_learning_rate=.1 --init_learning_rate=1 --num_epochs_per_decay=1 "
            "--learning_rate_decay_factor=.5"},
        Row{"7", "--minimum_learning_rate=.1 --init_learning_rate=1", kMinimum,
            "--minimum_learning_rate=0 --init_learning_rate=1"},
        Row{"8", "--use_fp16 --fp16_vars --variable_update=replicated --all_reduce_spec=nccl",
            "fp16 variables are not supported with NCCL",
            "--use_fp16 --fp16_vars --variable_update=replicated --all_reduce_spec=pscpu"},
        Row{"8", "--use_fp16 --fp16_vars --variable_update=distributed_replicated --all_reduce_spec=nccl/xring",
            "fp16 variables are not supported with NCCL",
            "--use_fp16 --fp16_vars --variable_update=independent --all_reduce_spec=nccl/xring"},
        Row{"9", "--use_fp16 --fp16_vars --gradient_repacking=2",
            "--fp16_vars cannot be used with --gradient_repacking", "--fp16_vars --gradient_repacking=2"},
        Row{"10", "--variable_update=horovod --num_gpus=2", "Horovod benchmarks require num_gpus=1 on each worker",
            "--variable_update=horovod --num_gpus=1"},
        Row{"11", "--variable_update=horovod --job_name=worker", "job_name should not be specified for Horovod.",
            "--variable_update=parameter_server --job_name=worker"},
        Row{"12", "--use_fp16 --fp16_enable_auto_loss_scale --all_reduce_spec=nccl",
            "Automatic loss scaling is not supported with NCCL.",
            "--use_fp16 --fp16_enable_auto_loss_scale --all_reduce_spec=xring"},
        Row{"12", "--use_fp16 --fp16_enable_auto_loss_scale --variable_update=horovod",
            "Automatic loss scaling is not supported with variable_update=horovod.",
            "--use_fp16 --fp16_enable_auto_loss_scale --variable_update=independent"},
        Row{"12", "--use_fp16 --fp16_enable_auto_loss_scale --staged_vars",
            "Automatic loss scaling is not supported withstaged_vars.", "--fp16_enable_auto_loss_scale --staged_vars"},
        Row{"13", "--debugger=gdb", "--debugger must be \"cli\" or in the form host:port", "--debugger=host:1"},
        Row{"13", "--debugger=", "--debugger must be \"cli\" or in the form host:port", "--debugger=cli"},
        Row{"14", "--hierarchical_copy", "--hierarchical_copy requires --num_gpus to be greater than 1",
            "--hierarchical_copy --num_gpus=2"},
        Row{"15", "--save_model_secs=1 --save_model_steps=1",
            "At most one of --save_model_secs and --save_model_steps can be specified",
            "--save_model_secs=0 --save_model_steps=1"},
        Row{"16", "--eval_during_training_every_n_steps=1 --eval_during_training_every_n_epochs=1", kOnePrefix,
            "--eval_during_training_every_n_steps=1 --eval_during_training_every_n_epochs=0"},
        Row{"16", "--eval_during_training_at_specified_steps=1 --eval_during_training_at_specified_epochs=1",
            kOnePrefix, "--eval_during_training_at_specified_epochs=1"},
        Row{"17", "--eval --eval_during_training_every_n_steps=1 --train_dir=x",
            "At most one of --eval and --eval_during_training_* must be specified",
            "--eval_during_training_every_n_steps=1 --train_dir=x"},
        Row{"17", "--forward_only --eval_during_training_at_specified_steps=1",
            "At most one of --forward_only and --eval_during_training_* must be specified", "--forward_only"},
        Row{"17", "--job_name=worker --eval_during_training_every_n_epochs=1",
            "--eval_during_training_* is not yet supported in distributed mode.", "--job_name=worker"},
        Row{"17", "--staged_vars --eval_during_training_every_n_epochs=1",
            "--eval_during_training_* is not currently compatible with --staged_vars", "--staged_vars"},
        Row{"18", "--stop_at_top_1_accuracy=.5",
            "--stop_at_top_1_accuracy is only supported with --eval_during_training_*",
            "--stop_at_top_1_accuracy=.5 --eval_during_training_every_n_steps=5"},
        Row{"19", "--collect_eval_results_async",
            "--collect_eval_results_async only works with ssd300 model currently.",
            "--collect_eval_results_async --model=ssd300"},
        Row{"20", "--forward_only --freeze_when_forward_only --train_dir=x",
            "In forward_only mode, when --freeze_when_forward_only is True, --train_dir should not be specified",
            "--forward_only --train_dir=x"},
        Row{"20", "--forward_only --freeze_when_forward_only --data_dir=imagenet --nodatasets_use_prefetch",
            "In forward_only mode, when --freeze_when_forward_only is True and --data_dir is set, "
            "--datasets_use_prefetch should be set to True",
            "--forward_only --freeze_when_forward_only --data_dir=imagenet"},
        Row{"20", "--forward_only --freeze_when_forward_only --job_name=worker",
            "In forward_only mode, when --freeze_when_forward_only is True, --job_name should not be specified and "
            "distributed running is not supported",
            "--forward_only --job_name=worker"},
        Row{"21", "--trt_mode=FP16", kTrt, "--trt_mode=FP16 --forward_only --freeze_when_forward_only"},
        Row{"21", "--trt_mode=FP16 --forward_only", kTrt, "--forward_only"},
        Row{"22", "--variable_update=distributed_all_reduce --job_name=worker --all_reduce_spec=psgpu",
            "When variable_update==distributed_all_reduce controller_host must also be specified.",
            "--variable_update=distributed_all_reduce --job_name=worker --all_reduce_spec=psgpu --controller_host=a:1"},
        Row{"23", "--job_name=worker --worker_hosts=a:1,b:1 --all_reduce_spec=nccl",
            "--all_reduce_spec=nccl is invalid in a multi-worker job",
            "--job_name=worker --worker_hosts=a:1 --all_reduce_spec=nccl"},
        Row{"24", "--num_batches=1 --num_epochs=1", kOnePair, "--num_batches=0 --num_epochs=1"},
        Row{"24", "--num_eval_batches=1 --num_eval_epochs=1", kOnePair, "--num_batches=1 --num_eval_epochs=1"},
        Row{"25", "--eval_during_training_at_specified_steps=1,2.5",
            "Param eval_during_training_at_specified_steps value of ['1', '2.5'] cannot be converted to a list of "
            "integers.",
            "--eval_during_training_at_specified_steps=1,2"},
        Row{"25", "--eval_during_training_at_specified_epochs=1,x",
            "Param eval_during_training_at_specified_epochs value of ['1', 'x'] cannot be converted to a list of "
            "floats.",
            "--eval_during_training_at_specified_epochs=1,2.5"},
        Row{"26", "--staged_vars --variable_update=replicated",
            "staged_vars for now is only supported with variable_update=parameter_server", "--staged_vars"},
        Row{"27", "--variable_update=replicated --job_name=worker",
            "Invalid variable_update in distributed mode: replicated", "--variable_update=replicated"},
        Row{"27", "--variable_update=independent --job_name=worker",
            "Invalid variable_update in distributed mode: independent", "--variable_update=independent"},
        Row{"27", "--variable_update=distributed_replicated",
            "Invalid variable_update in local mode: distributed_replicated",
            "--variable_update=distributed_replicated --job_name=worker"},
        Row{"28", "--eval", "Trained model directory not specified", "--eval --train_dir=x"},
        Row{"31", "--piecewise_learning_rate_schedule=1 --init_learning_rate=0", kPiecewise,
            "--piecewise_learning_rate_schedule=1 --num_learning_rate_warmup_epochs=1"},
        Row{"31", "--piecewise_learning_rate_schedule=1;2",
            "--piecewise_learning_rate_schedule must have an odd number of components",
            "--piecewise_learning_rate_schedule=1;2;.1"},
        Row{"31", "--piecewise_learning_rate_schedule=x;2;.1", "Invalid learning rate: x",
            "--piecewise_learning_rate_schedule=1e-1;2;.1"},
        Row{"31", "--piecewise_learning_rate_schedule=1;2.5;.1", "Invalid epoch: 2.5",
            "--piecewise_learning_rate_schedule=1;2;.1;3;.01"},
        Row{"33", "--gpu_thread_mode=mine", "Invalid gpu_thread_mode: mine", "--gpu_thread_mode=GPU_Shared"},
        Row{"33", "--gpu_thread_mode=global --per_gpu_thread_count=2",
            "Invalid per_gpu_thread_count with gpu_thread_mode=global: 2",
            "--gpu_thread_mode=gpu_shared --per_gpu_thread_count=2"},
        Row{"34", "--data_name=mnist", "Unknown dataset. Must be one of cifar10, coco, imagenet, librispeech, shapes",
            "--data_name=shapes"},
        Row{"35", "--variable_update=replicated --all_reduce_spec=pscpu:2k",
            "all_reduce_spec not well formed: pscpu:2k", "--variable_update=replicated --all_reduce_spec=pscpu"},
        Row{"35", "--variable_update=replicated --all_reduce_spec=pscpu:2k:xring",
            "replicated mode does not support hybrid all-reduce strategies",
            "--variable_update=distributed_all_reduce --all_reduce_spec=pscpu:2k:xring"},
        Row{"35", "--variable_update=distributed_all_reduce",
            "distributed_all_reduce requires a non-empty all_reduce_spec",
            "--variable_update=distributed_all_reduce --all_reduce_spec=xring"},
        Row{"35", "--variable_update=collective_all_reduce --all_reduce_spec=",
            "collective_all_reduce requires a non-empty all_reduce_spec: ",
            "--variable_update=collective_all_reduce --all_reduce_spec=collective#2"},
        Row{"35", "--variable_update=collective_all_reduce --all_reduce_spec=xring",
            "collective_all_reduce requires one single-range all_reduce_spec xring",
            "--variable_update=collective_all_reduce --all_reduce_spec=collective"},
        Row{"35", "--variable_update=collective_all_reduce --all_reduce_spec=collective:2k:collective",
            "collective_all_reduce requires one single-range all_reduce_spec collective:2k:collective",
            "--variable_update=replicated --all_reduce_spec=collective"},
        Row{"38", "--ml_perf_compliance_logging",
            "--ml_perf_compliance_logging is only compatible when --model is one of the following: resnet50_v1.5, "
            "ssd300",
            "--ml_perf_compliance_logging --model=resnet50_v1.5"}));

// Combinations that upstream asserts (section 0), and ours.
INSTANTIATE_TEST_SUITE_P(
    BeyondSection4, FlagValidation,
    ::testing::Values(
        Row{"only ssd300 has one", "--backbone_model_path=x",
            "trivial does not have backbone model. --backbone_model_path is for ssd300",
            "--backbone_model_path=x --model=ssd300"},
        Row{"ours", "--backbone_model_path=x --model=ssd300 --weights=y",
            "Only one of --backbone_model_path and --weights can be what a training begins with",
            "--model=ssd300 --weights=y"},
        Row{"ours", "--backbone_model_path=x --model=ssd300 --forward_only",
            "--backbone_model_path is for trainings: eval and forward_only take whole models",
            "--model=ssd300 --forward_only"},
        Row{"5 is not kept", "--num_gpus=0", "--num_gpus must be at least 1, not 0", "--device=cpu --data_format=NCHW"},
        Row{"37 is not kept", "--display_every=0", "--display_every must be at least 1, not 0",
            "--distortions --distort_color_in_yiq"},
        Row{"assert", "--variable_update=distributed_replicated --job_name=worker --nocross_replica_sync",
            "variable_update=distributed_replicated requires --cross_replica_sync",
            "--job_name=worker --nocross_replica_sync"},
        Row{"assert", "--variable_update=distributed_all_reduce --all_reduce_spec=xring --eval --train_dir=x",
            "--eval is not supported with variable_update=distributed_all_reduce",
            "--variable_update=collective_all_reduce --all_reduce_spec=collective --eval --train_dir=x"},
        Row{"assert", "--variable_update=distributed_all_reduce --all_reduce_spec=xring --forward_only",
            "--forward_only is not supported with variable_update=distributed_all_reduce",
            "--variable_update=distributed_all_reduce --all_reduce_spec=xring"},
        Row{"ours", "--num_batches=-1", "--num_batches must not be negative, as -1 is", "--num_batches=0"},
        Row{"ours", "--num_epochs=-.5", "--num_epochs must not be negative, as -0.5 is", "--num_epochs=0.5"},
        Row{"ours", "--learning_rate_schedule=cosine", "--learning_rate_schedule=cosine requires --init_learning_rate",
            "--learning_rate_schedule=cosine --init_learning_rate=.4 --num_learning_rate_warmup_epochs=1"},
        Row{"ours", "--learning_rate_schedule=constant --piecewise_learning_rate_schedule=1",
            "--learning_rate_schedule=constant requires --init_learning_rate",
            "--learning_rate_schedule=constant --init_learning_rate=1"},
        Row{"ours",
            "--learning_rate_schedule=cosine --init_learning_rate=1 --num_epochs_per_decay=1 "
            "--learning_rate_decay_factor=.5",
            "--learning_rate_schedule=cosine cannot be used with --num_epochs_per_decay",
            "--learning_rate_schedule=auto --init_learning_rate=1 --num_epochs_per_decay=1 "
            "--learning_rate_decay_factor=.5"},
        Row{"ours", "--plot_schedule=x.svg --eval --train_dir=x",
            "--plot_schedule is for trainings: eval and forward_only have no learning rate", "--plot_schedule=x.svg"},
        Row{"ours", "--describe_input --eval --train_dir=x",
            "--describe_input is for trainings: it shows the input of their evaluations, too", "--describe_input"},
        Row{"ours", "--learning_rate_schedule=piecewise",
            "--learning_rate_schedule=piecewise requires --piecewise_learning_rate_schedule",
            "--learning_rate_schedule=piecewise --piecewise_learning_rate_schedule=1;3;.1"}));

TEST(FlagValidationOrder, TheFirstConditionInUpstreamsOrderIsReported) {
  // Items 6, 15, 21, 4, 24, 28: each added in front of the ones before.
  std::string line = "--eval";
  EXPECT_EQ(problem_of(line), "Trained model directory not specified");
  line += " --num_batches=1 --num_epochs=1";
  EXPECT_EQ(problem_of(line), kOnePair);
  line += " --forward_only";
  EXPECT_EQ(problem_of(line), "Only one of forward_only and eval parameters is true");
  line += " --trt_mode=INT8";
  EXPECT_EQ(problem_of(line), kTrt);
  line += " --save_model_secs=1 --save_model_steps=1";
  EXPECT_EQ(problem_of(line), "At most one of --save_model_secs and --save_model_steps can be specified");
  line += " --minimum_learning_rate=1";
  EXPECT_EQ(problem_of(line), kMinimum);
  line += " --num_epochs_per_decay=1";
  EXPECT_EQ(problem_of(line), kDecay);
  line += " --data_name=mnist";
  EXPECT_EQ(problem_of(line), "Unknown dataset. Must be one of cifar10, coco, imagenet, librispeech, shapes");
}

TEST(FlagValidationOrder, DefaultsPass) {
  EXPECT_EQ(problem_of(""), "");
}

// Returns what the ranges alone say of a command line.
std::string range_problem(const std::string& line) {
  return core::problem_of([&] { check_flag_ranges(parse(line)); });
}

std::string below(const std::string& flag, auto least, auto value) {
  return least == 0 ? fmt::format("--{} must not be negative, as {} is", flag, value)
                    : fmt::format("--{} must be at least {}, not {}", flag, least, value);
}

TEST(FlagRanges, IntegersEndWhereTheirMeaningEnds) {
  struct Range {
    const char* flag;
    int64_t least, most;
  };
  const int64_t threads = core::most_threads(), replicas = std::max(64, core::available_cores());
  const std::vector<Range> ranges = {
      {"num_gpus", 1, replicas},
      {"num_intra_threads", 0, threads},
      {"datasets_num_private_threads", 1, threads},
      {"batch_size", 0, 1048576},
      {"eval_batch_size", 0, 1048576},
      {"num_batches", 0, 9007199254740992},
      {"num_eval_batches", 0, 9007199254740992},
      {"num_warmup_batches", 0, 9007199254740992},
      {"batch_group_size", 1, 1024},
      {"autotune_threshold", 0, 999999},
      {"eval_interval_secs", 0, 1000000000},
      {"eval_during_training_every_n_steps", 1, 9007199254740992},
      {"display_every", 1, 9007199254740992},
      {"save_model_secs", 0, 1000000000},
      {"save_model_steps", 0, 9007199254740992},
      {"max_ckpts_to_keep", 0, 2147483647},
      {"save_summaries_steps", 0, 9007199254740992},
      {"summary_verbosity", 0, 2147483647},
      {"datasets_prefetch_buffer_size", 1, 1024},
      {"multi_device_iterator_max_buffer_size", 1, 1024},
      {"datasets_parallel_interleave_cycle_length", -1, 2147483647},
      {"datasets_parallel_interleave_prefetch", -1, 2147483647},
      {"num_inter_threads", 0, 2147483647},
      {"kmp_blocktime", 0, 2147483647},
      {"kmp_settings", 0, 1},
      {"per_gpu_thread_count", 0, 1024},
      {"fp16_inc_loss_scale_every_n", 1, 9007199254740992},
      {"loss_scale_lower_after", 1, 9007199254740992},
      {"loss_scale_most_skips", 0, 9007199254740992},
      {"learning_rate_base_batch_size", 1, 9007199254740992},
      {"allreduce_merge_scope", 1, 2147483647},
      {"gpu_kt_max_interval", 0, 2147483647},
      {"gpu_kt_max_bytes", 0, 9007199254740992},
      {"gpu_kt_max_pending", 0, 2147483647},
  };
  for (const auto& [flag, least, most] : ranges) {
    EXPECT_EQ(range_problem(fmt::format("--{}={}", flag, least)), "");
    EXPECT_EQ(range_problem(fmt::format("--{}={}", flag, most)), "");
    const std::string problem = range_problem(fmt::format("--{}={}", flag, least - 1));
    const std::string own = fmt::format("Param {} value of {} is lower", flag, least - 1);  // of the declaration
    EXPECT_TRUE(problem == below(flag, least, least - 1) || problem.starts_with(own)) << problem;
    EXPECT_EQ(range_problem(fmt::format("--{}={}", flag, most + 1)),
              fmt::format("--{} must be at most {}, not {}", flag, most, most + 1));
  }
}

TEST(FlagRanges, RealNumbersEndWhereTheirMeaningEnds) {
  constexpr double kNone = 0;  // has no upper end
  struct Range {
    const char* flag;
    double least, most;
  };
  const std::vector<Range> ranges = {
      {"num_epochs", 0, 1e9},
      {"num_eval_epochs", 0, 1e9},
      {"stop_at_top_1_accuracy", 0, 1},
      {"eval_during_training_every_n_epochs", 0, 1e9},
      {"num_epochs_per_decay", 0, 1e9},
      {"num_learning_rate_warmup_epochs", 0, 1e9},
      {"init_learning_rate", 0, kNone},
      {"learning_rate_decay_factor", 0, kNone},
      {"minimum_learning_rate", 0, kNone},
      {"resnet_base_lr", 0, kNone},
      {"warmup_learning_rate", 0, kNone},
      {"restart_period_factor", 1, kNone},
      {"polynomial_power", 0, kNone},
      {"one_cycle_rise", 0, 1},
      {"one_cycle_start_divisor", 0, kNone},
      {"one_cycle_end_divisor", 0, kNone},
      {"layer_decay", 0, 1},
      {"sam_rho", 0, kNone},
      {"weight_decay", 0, kNone},
      {"gradient_clip", 0, kNone},
      {"clip_norm", 0, kNone},
      {"clip_global_norm", 0, kNone},
      {"adaptive_clip", 0, kNone},
      {"momentum_dampening", 0, 1},
      {"rmsprop_decay", 0, 1},
      {"rmsprop_momentum", 0, 1},
      {"rmsprop_epsilon", 0, kNone},
      {"adam_beta1", 0, 1},
      {"adam_beta2", 0, 1},
      {"adam_epsilon", 0, kNone},
      {"lars_trust_coefficient", 0, kNone},
      {"muon_momentum", 0, 1},
      {"lion_beta1", 0, 1},
      {"lion_beta2", 0, 1},
  };
  for (const auto& [flag, least, most] : ranges) {
    EXPECT_EQ(range_problem(fmt::format("--{}={}", flag, least + 0.5)), "");
    EXPECT_EQ(range_problem(fmt::format("--{}={}", flag, least - 0.5)), below(flag, least, least - 0.5));
    const double beyond = most == kNone ? 1e30 : 2 * most;
    EXPECT_EQ(range_problem(fmt::format("--{}={}", flag, beyond)),
              most == kNone ? "" : fmt::format("--{} must be at most {}, not {}", flag, most, beyond));
  }
  for (const char* flag : {"layer_decay", "gradient_clip", "clip_norm", "clip_global_norm", "adaptive_clip",
                           "rmsprop_epsilon", "adam_epsilon", "lars_trust_coefficient", "one_cycle_rise",
                           "one_cycle_start_divisor", "one_cycle_end_divisor"}) {
    EXPECT_EQ(range_problem(fmt::format("--{}=0", flag)), fmt::format("--{} must be above 0, not 0", flag));
  }
  for (const char* flag : {"adam_beta1", "adam_beta2", "one_cycle_rise"}) {
    EXPECT_EQ(range_problem(fmt::format("--{}=1", flag)), fmt::format("--{} must be below 1, not 1", flag));
  }
}

// Flags of tf_cnn_benchmarks that the chosen optimizer, sgd here, does not read.
TEST(FlagValidationOfOptimizers, NumbersThatTheyDoNotReadAreRefusedOnTheCommandLine) {
  const auto problem = [](const char* flag, const char* value, const char* optimizer, core::FlagSource source,
                          Dialect dialect = Dialect::kTrainyard) {
    core::FlagValues values(tf_cnn_flags(dialect));
    values.set("optimizer", optimizer, core::FlagSource::kCommandLine);
    values.set(flag, value, source);
    return core::problem_of([&] { validate_flags(values, dialect); });
  };
  constexpr auto kLine = core::FlagSource::kCommandLine;
  for (const char* flag : {"momentum", "rmsprop_decay", "rmsprop_momentum", "adam_beta1", "adam_beta2"}) {
    const std::string refused = problem(flag, "0.9", "sgd", kLine);
    EXPECT_TRUE(refused.starts_with(fmt::format("--{} is for --optimizer=", flag))) << refused;
    EXPECT_TRUE(refused.ends_with(", not for sgd")) << refused;
    EXPECT_EQ(problem(flag, "0.9", "sgd", kLine, Dialect::kTfCnnBenchmarks), "");
    EXPECT_EQ(problem(flag, "0.5", "sgd", core::FlagSource::kFile), "");
  }
  EXPECT_EQ(problem("momentum", "0.9", "tf_momentum", kLine), "");
  EXPECT_EQ(problem("momentum", "0.9", "muon_sgd", kLine), "");
  EXPECT_EQ(problem("rmsprop_epsilon", "0.9", "torch_rmsprop", kLine), "");
  EXPECT_EQ(problem("adam_epsilon", "1e-7", "lamb", kLine), "");
}

std::string problem_in(Dialect dialect, const std::vector<std::string>& flags) {
  return core::problem_of([&] { validate_flags(core::parse_flags(tf_cnn_flags(dialect), flags), dialect); });
}

TEST(FlagValidationOfOurDialect, NamesTheFlagsOfTheEvaluation) {
  EXPECT_EQ(problem_in(Dialect::kTrainyard, {"--num_eval_batches=1", "--num_eval_epochs=1"}),
            "At most one of --num_eval_batches and --num_eval_epochs may be specified.");
  EXPECT_EQ(problem_in(Dialect::kTrainyard, {"--num_batches=1", "--num_epochs=1"}), kOnePair);
}

// bfloat16 is what they travel in.
TEST(FlagValidationOfOurDialect, CompactGradientsNeedSixteenBits) {
  EXPECT_EQ(problem_in(Dialect::kTrainyard, {"--compact_gradient_transfer"}),
            "--compact_gradient_transfer is of --use_bf16: pass both, or neither");
  EXPECT_EQ(problem_in(Dialect::kTfCnnBenchmarks, {"--compact_gradient_transfer"}), "");
  EXPECT_EQ(problem_in(Dialect::kTrainyard, {"--compact_gradient_transfer", "--use_bf16"}), "");
  EXPECT_EQ(problem_in(Dialect::kTrainyard, {"--nocompact_gradient_transfer"}), "");
  EXPECT_EQ(problem_in(Dialect::kTrainyard, {}), "");
}

TEST(FlagRanges, AreAPartOfTheValidation) {
  EXPECT_EQ(problem_of("--batch_size=4611686018427387904"),
            "--batch_size must be at most 1048576, not 4611686018427387904");
  EXPECT_EQ(problem_of("--num_epochs_per_decay=1e300 --learning_rate_decay_factor=.5 --init_learning_rate=1"),
            "--num_epochs_per_decay must be at most 1000000000, not 1e+300");
  for (const char* line : {"--batch_size=1048576", "--max_ckpts_to_keep=0", "--autotune_threshold=0", "--num_gpus=64",
                           "--num_intra_threads=256", "--eval_interval_secs=0"}) {
    EXPECT_EQ(problem_of(line), "") << line;
  }
}

}  // namespace
}  // namespace trainyard::frontends::flag_validation_test
