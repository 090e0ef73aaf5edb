#include "trainyard/frontends/paddle/flags.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/lower_case.h"
#include "trainyard/core/base/overloaded.h"
#include "trainyard/frontends/options/number_list.h"
#include "trainyard/optim/sparsity/prune.h"

namespace trainyard::frontends::program {
namespace {

using Json = nlohmann::ordered_json;
using A = Arguments;
using Text = std::string;
// An option that is "True" or "False" behind a blank or an equals sign.
struct YesOrNo {
  bool A::*member;
};
using Member = std::variant<bool A::*, YesOrNo, int64_t A::*, double A::*, Text A::*, std::optional<Text> A::*,
                            std::vector<int64_t> A::*, std::vector<double> A::*, std::vector<Text> A::*, RunScope A::*>;

struct Option {
  const char* name;
  Member member;
  std::string help;
  std::vector<Text> choices{};
};
struct Group {
  const char* name;
  std::vector<Option> options;
};

constexpr const char* kAsAmp = "what --amp does here in any case";

const std::vector<Group>& groups() {
  static const std::vector<Group> all{
      {"Global",
       {{"output_dir", &A::output_dir, "where checkpoints go: <output_dir>/<model_arch_name>/<epoch>/<model_prefix>"},
        {"run_scope", &A::run_scope, "what runs"},
        {"epochs", &A::epochs, "epochs of the training"},
        {"save_interval", &A::save_interval, "epochs from one checkpoint to the next; the last epoch is saved, too"},
        {"eval_interval", &A::eval_interval, "epochs from one evaluation to the next"},
        {"print_interval", &A::print_interval, "steps from one line to the next"},
        {"report_file", &A::report_file, "the same lines as JSON objects; empty: none"},
        {"data_layout", &A::data_layout, "of the feed `data`; the computation has its own", {"NCHW", "NHWC"}},
        {"benchmark", &A::benchmark, "time steps; with --run_scope=train_only or eval_only"},
        {"benchmark_steps", &A::benchmark_steps, "steps that are timed"},
        {"benchmark_warmup_steps", &A::benchmark_warmup_steps, "steps before these"},
        {"model_prefix", &A::model_prefix, "the name of a model in its folder"},
        {"from_pretrained_params", &A::from_pretrained_params,
         "a folder with <model_prefix>.safetensors, or with a checkpoint in <model_prefix>/, whose weights a training "
         "starts from"},
        {"from_checkpoint", &A::from_checkpoint,
         "a folder with <model_prefix>/, or with <epoch>/<model_prefix>/, to go on from or to evaluate"},
        {"last_epoch_of_checkpoint", &A::last_epoch_of_checkpoint,
         "the epoch that the checkpoint has done: None (the epochs begin anew), auto (of the folder with the largest "
         "one), or a number"},
        {"show_config", YesOrNo{&A::show_config}, "print all options at the start"},
        {"enable_cpu_affinity", YesOrNo{&A::enable_cpu_affinity},
         "with several NUMA nodes: each place's threads stay on one"},
        {"places", &A::places,
         "devices, each with batches of its own: cpu:0,cpu:1 or gpu:0,gpu:1; unset: the first GPU, or the CPU"}}},
      {"Dataset",
       {{"image_root", &A::image_root,
         "a folder with train/ and val/, each with a folder for each class; empty: synthetic images"},
        {"image_shape", &A::image_shape, "channels (3, or 4 with one of zeros), height and width"},
        {"batch_size", &A::batch_size, "images of one place"},
        {"dali_random_seed", &A::dali_random_seed, "of order, crops and parameters"},
        {"dali_num_threads", &A::dali_num_threads, "threads that make batches"},
        {"dali_output_fp16", &A::dali_output_fp16, "images as 16-bit floats"}}},
      {"Data Augmentation",
       {{"crop_size", &A::crop_size, "pixels of a side of the images"},
        {"rand_crop_scale", &A::rand_crop_scale, "least and largest part of an image that is cut out"},
        {"rand_crop_ratio", &A::rand_crop_ratio, "least and largest width / height"},
        {"normalize_scale", &A::normalize_scale, "of pixels, before mean and deviation"},
        {"normalize_mean", &A::normalize_mean, "by channel"},
        {"normalize_std", &A::normalize_std, "by channel"},
        {"resize_short", &A::resize_short, "pixels of the shorter side, before an evaluation's crop"}}},
      {"Model",
       {{"model_arch_name", &A::model_arch_name, "ResNet50, or any of `trainyard models`"},
        {"num_of_class", &A::num_of_class, "outputs of the model"},
        {"bn_weight_decay", &A::bn_weight_decay, "weight decay of batch norms, too"}}},
      {"Training",
       {{"label_smoothing", &A::label_smoothing, "share of the target that all classes get equally"},
        {"optimizer", &A::optimizer, "v = m v + g + weight_decay w; w -= lr v", {"Momentum"}},
        {"momentum", &A::momentum, "m"},
        {"weight_decay", &A::weight_decay, "2^-15 by default"},
        {"lr_scheduler", &A::lr_scheduler, "warm-up, then a cosine to 0", {"Cosine"}},
        {"lr", &A::lr, "the rate of one place, behind the warm-up"},
        {"warmup_epochs", &A::warmup_epochs, "epochs in which the rate rises"},
        {"warmup_start_lr", &A::warmup_start_lr, "where it begins"}}},
      {"Advanced Training",
       {{"amp", &A::amp, "16-bit floats: float16 on GPUs, bfloat16 on processors that have it"},
        {"scale_loss", &A::scale_loss, "the loss scale of --amp, at first"},
        {"use_dynamic_loss_scaling", &A::use_dynamic_loss_scaling,
         "the scale moves: times 2 after 1,000 good steps in a row, times 0.8 after 2 bad ones"},
        {"use_pure_fp16", &A::use_pure_fp16, kAsAmp},
        {"fuse_resunit", &A::fuse_resunit, kAsAmp},
        {"asp", &A::asp, "with --prune_model: 2:4 sparse training"},
        {"prune_model", &A::prune_model, "with --asp: prune what the training starts from"},
        {"mask_algo", &A::mask_algo, "of --prune_model", optim::mask_algorithm_names()}}}};
  return all;
}

// Calls `visit` with each option and its group.
template <typename Visit>
void for_each_option(const Visit& visit) {
  for (const Group& group : groups()) {
    for (const Option& option : group.options) visit(option, group.name);
  }
}

constexpr RunScope kScopes[] = {RunScope::kTrainEval, RunScope::kTrainOnly, RunScope::kEvalOnly};

bool read_yes_or_no(const core::FlagValues& values, const char* flag) {
  const Text text = core::lower_case(values.text(flag));
  for (const char* yes : {"yes", "true", "t", "y", "1"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"no", "false", "f", "n", "0"}) {
    if (text == no) return false;
  }
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = fmt::format("--{} is neither yes nor no", flag),
                                                        .expected = "one of yes, true, t, y, 1, no, false, f, n, 0",
                                                        .actual = values.text(flag)});
}

}  // namespace

void declare_flags(core::FlagTable& table) {
  table.take_dashes();
  const Arguments d;
  for_each_option([&](const Option& option, const char* group) {
    const auto list = [&](const auto& numbers) -> core::FlagSpec& {
      return table.list(option.name, fmt::format("{}; unset: {}", option.help, fmt::join(numbers, ",")));
    };
    core::FlagSpec& spec =
        std::visit(core::Overloaded{
                       [&](bool A::*m) -> core::FlagSpec& { return table.boolean(option.name, d.*m, option.help); },
                       [&](YesOrNo yes) -> core::FlagSpec& {
                         return table.text(option.name, d.*yes.member ? "True" : "False", option.help);
                       },
                       [&](int64_t A::*m) -> core::FlagSpec& { return table.integer(option.name, d.*m, option.help); },
                       [&](double A::*m) -> core::FlagSpec& { return table.real(option.name, d.*m, option.help); },
                       [&](Text A::*m) -> core::FlagSpec& {
                         if (option.choices.empty()) return table.text(option.name, d.*m, option.help);
                         return table.choice(option.name, d.*m, option.choices, option.help);
                       },
                       [&](std::optional<Text> A::*) -> core::FlagSpec& {
                         return table.text(option.name, std::nullopt, option.help);
                       },
                       [&](std::vector<Text> A::*) -> core::FlagSpec& { return table.list(option.name, option.help); },
                       [&](RunScope A::*m) -> core::FlagSpec& {
                         std::vector<Text> names;
                         for (const RunScope scope : kScopes) names.emplace_back(to_string(scope));
                         return table.choice(option.name, to_string(d.*m), names, option.help);
                       },
                       [&](auto A::*m) -> core::FlagSpec& { return list(d.*m); }},
                   option.member);
    spec.group(group);
  });
}

Arguments read_arguments(const core::FlagValues& values) {
  Arguments args;
  for_each_option([&](const Option& option, const char*) {
    const char* const name = option.name;
    if (values.given(name)) args.given.emplace_back(name);
    std::visit(core::Overloaded{[&](bool A::*m) { args.*m = values.boolean(name); },
                                [&](YesOrNo yes) { args.*yes.member = read_yes_or_no(values, name); },
                                [&](int64_t A::*m) { args.*m = values.integer(name); },
                                [&](double A::*m) { args.*m = values.real(name); },
                                [&](Text A::*m) { args.*m = values.text(name); },
                                [&](std::optional<Text> A::*m) {  // "None" is the example's own default
                                  const Text text = values.text(name);
                                  if (!text.empty() && text != "None") args.*m = text;
                                },
                                [&](std::vector<Text> A::*m) { args.*m = values.list(name); },
                                [&](RunScope A::*m) {
                                  for (const RunScope scope : kScopes) {
                                    if (values.text(name) == to_string(scope)) args.*m = scope;
                                  }
                                },
                                [&](std::vector<int64_t> A::*m) {
                                  if (values.given(name))
                                    args.*m = read_numbers<int64_t>(values, name, core::FlagKind::kInteger, "integers");
                                },
                                [&](std::vector<double> A::*m) {
                                  if (values.given(name))
                                    args.*m = read_numbers<double>(values, name, core::FlagKind::kReal, "floats");
                                }},
               option.member);
  });
  return args;
}

std::vector<std::pair<std::string, std::string>> options_as_json(const Arguments& args) {
  Json all = Json::object();
  for_each_option([&](const Option& option, const char*) {
    all[option.name] =
        std::visit(core::Overloaded{[&](YesOrNo yes) { return Json(args.*yes.member); },
                                    [&](std::optional<Text> A::*m) { return args.*m ? Json(*(args.*m)) : Json(); },
                                    [&](RunScope A::*m) { return Json(to_string(args.*m)); },
                                    [&](auto A::*m) { return Json(args.*m); }},
                   option.member);
  });
  // As the example changes it.
  all["lr"] = args.lr * static_cast<double>(std::max<int64_t>(1, args.trainers()));
  all["image_channel"] = args.image_shape.at(0);
  all["start_epoch"] = args.start_epoch;
  std::vector<std::pair<std::string, std::string>> options;
  for (const auto& [name, value] : all.items()) {
    options.emplace_back(name, value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return options;
}

}  // namespace trainyard::frontends::program
