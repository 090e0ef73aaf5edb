#include "trainyard/train/evaluation/evaluator.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/evaluation/image_views.h"
#include "trainyard/train/step/graph_inputs.h"
#include "trainyard/train/step/replica_threads.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

// Adds the samples to their classes and returns how many were right.
int64_t count_classes(const at::Tensor& hits, const at::Tensor& labels, int64_t outputs,
                      std::vector<ClassCount>& classes) {
  classes.resize(static_cast<size_t>(outputs));
  const bool* const hit = hits.const_data_ptr<bool>();
  const int64_t* const label = labels.const_data_ptr<int64_t>();
  int64_t right = 0;
  for (int64_t i = 0; i < labels.size(0); ++i) {
    ClassCount& count = classes[static_cast<size_t>(label[i])];
    ++count.total;
    count.right += hit[i] ? 1 : 0;
    right += hit[i] ? 1 : 0;
  }
  return right;
}

// Returns whether each label is an output. Those of a loss of one's own may be numbers of something else: of persons,
// whose images are to come close to each other.
bool are_classes(const at::Tensor& labels, int64_t outputs) {
  return labels.ge(0).logical_and(labels.lt(outputs)).all().item<bool>();
}

bool counts_classes(const EvaluatorOptions& options, const at::Tensor& output, const at::Tensor& labels) {
  if (options.accuracies) return *options.accuracies;
  if (!options.loss) return true;
  const bool fits = output.dim() == 2 && labels.dim() == 1 && labels.scalar_type() == at::kLong;
  // An accelerator ends with a label that a loss of classes does not expect, so there they are refused, as in training.
  return fits && (!output.is_cpu() || are_classes(labels, output.size(1)));
}

}  // namespace

namespace {

// The mean over the classes that have samples; nothing where none has.
std::optional<double> mean_class_accuracy(const std::vector<ClassCount>& classes) {
  double sum = 0;
  int64_t counted = 0;
  for (const ClassCount& count : classes) {
    if (count.total == 0) continue;
    sum += static_cast<double>(count.right) / static_cast<double>(count.total);
    ++counted;
  }
  if (counted == 0) return std::nullopt;
  return sum / static_cast<double>(counted);
}

}  // namespace

std::optional<double> value_of(const Evaluation& evaluation, std::string_view name) {
  if (evaluation.has_loss && name == "loss") return evaluation.loss;
  if (evaluation.has_accuracies) {
    if (name == "top_1_accuracy") return evaluation.top_1;
    if (name == "top_5_accuracy") return evaluation.top_5;
    if (name == "mean_class_accuracy") return mean_class_accuracy(evaluation.classes);
  }
  for (const auto& [own_name, value] : evaluation.more) {
    if (own_name == name) return value;
  }
  return std::nullopt;
}

std::vector<std::string> names_of_values(const Evaluation& evaluation) {
  std::vector<std::string> names;
  if (evaluation.has_loss) names.emplace_back("loss");
  if (evaluation.has_accuracies) {
    names.insert(names.end(), {"top_1_accuracy", "top_5_accuracy", "mean_class_accuracy"});
  }
  for (const auto& [name, value] : evaluation.more) names.push_back(name);
  return names;
}

Evaluator::~Evaluator() = default;
Evaluator::Evaluator(Evaluator&&) noexcept = default;
Evaluator& Evaluator::operator=(Evaluator&&) noexcept = default;

Evaluator::Evaluator(EvaluatorOptions options, nn::ParameterSet& parameters)
    : options_(std::move(options)), device_(at::kCPU) {
  if (!parameters.allocated()) {
    throw Error(ErrorCode::kInvalidArgument, "an evaluation needs a parameter set that is allocated");
  }
  device_ = parameters.values().device();
  const size_t replicas = std::max<size_t>(1, options_.replicas.size());
  if (replicas > 1 && !device_.is_cpu()) {
    throw Error(ErrorCode::kUnsupported,
                {.problem = "an evaluation on an accelerator has one replica", .actual = std::to_string(replicas)});
  }
  for (size_t r = 0; r < replicas; ++r) {
    executors_.push_back(nn::make_executor(options_.devices.executor, nn::main_output_graph(options_.graph),
                                           {.device = device_,
                                            .dtype = options_.devices.dtype,
                                            .mode = nn::Mode::kInference,
                                            .frozen = options_.quantization != nullptr,
                                            .kernels = options_.devices.kernels,
                                            .replica = static_cast<int>(r),
                                            .name_prefix = options_.name_prefix,
                                            .parameters = &parameters,
                                            .quantization = options_.quantization}));
  }
  input_names_ = input_names(executors_.front()->graph());
  if (options_.views != TestTimeAugmentation::kNone &&
      (input_names_.size() != 1 || executors_.front()->graph().input_shape().size() != 3)) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "test-time augmentation needs a model whose only input are images",
                 .expected = "one input [C, H, W]",
                 .actual = fmt::format("{} inputs, the first [{}]", input_names_.size(),
                                       fmt::join(executors_.front()->graph().input_shape(), ", "))});
  }
  if (!options_.replicas.empty()) {
    threads_ = std::make_unique<ReplicaThreads>(options_.replicas, [](const Error&) {});  // none waits for another
  }
}

std::vector<core::ThreadOptions> replica_thread_options(int replicas, int intra_op_threads,
                                                        const std::vector<core::ThreadPlacement>& placement) {
  if (replicas <= 1) return {};
  const int all = intra_op_threads > 0 ? intra_op_threads : core::available_cores();
  std::vector<core::ThreadOptions> threads(static_cast<size_t>(replicas));
  for (size_t r = 0; r < threads.size(); ++r) {
    threads[r].name = fmt::format("replica {}", r);
    threads[r].intra_op_threads = std::max(1, all / replicas);
    if (!placement.empty()) threads[r].placement = placement[r % placement.size()];
  }
  return threads;
}

at::Tensor Evaluator::output_of(nn::Executor& executor, const data::Batch& batch) {
  core::NamedTensors inputs = inference_inputs(batch.tensors, input_names_);
  if (options_.views == TestTimeAugmentation::kNone) return executor.run(inputs, {}).begin()->tensor;
  const nn::Shape& shape = executor.graph().input_shape();
  const at::Tensor images = inputs.begin()->tensor;
  ViewAverage average(options_.views);
  for (int i = 0; i < view_count(options_.views); ++i) {
    inputs.set(input_names_.front(), view_of(images, {shape[1], shape[2]}, options_.views, i));
    average.add(executor.run(inputs, {}).begin()->tensor);
  }
  return average.result();
}

std::vector<at::Tensor> Evaluator::outputs_of(const std::vector<data::Batch>& batches, size_t first) {
  std::vector<at::Tensor> outputs(std::min(executors_.size(), batches.size() - first));
  const auto forward = [&](size_t replica) {
    const at::NoGradGuard without_gradients;  // a matter of the thread
    const data::Batch& batch = batches[first + replica];
    if (batch.samples() == 0) return;
    outputs[replica] = output_of(*executors_[replica], batch);
  };
  if (threads_ == nullptr) {
    forward(0);
    return outputs;
  }
  threads_->run([&](int replica) {
    if (static_cast<size_t>(replica) < outputs.size()) forward(static_cast<size_t>(replica));
  });
  return outputs;
}

int64_t Evaluator::for_each_output(data::BatchSource& source, int64_t batches, bool may_be_empty,
                                   const UseOutput& use) {
  const at::NoGradGuard without_gradients;
  int64_t samples = 0, done = 0;
  for (; batches == 0 || done < batches; ++done) {
    if (options_.stops && options_.stops()) throw Error(ErrorCode::kCancelled, "an evaluation was stopped");
    const std::vector<data::Batch> next = source.next();
    if (next.empty()) break;
    for (size_t first = 0; first < next.size(); first += executors_.size()) {
      const std::vector<at::Tensor> outputs = outputs_of(next, first);
      for (size_t i = 0; i < outputs.size(); ++i) {
        const data::Batch& batch = next[first + i];
        if (batch.samples() == 0) continue;
        use(batch, outputs[i]);
        samples += batch.samples();
      }
    }
  }
  if (done < batches || (samples == 0 && !may_be_empty)) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the input of an evaluation ended early",
                 .expected = batches == 0 ? "at least one sample" : fmt::format("{} batches", batches),
                 .actual = fmt::format("{} batches with {} samples", done, samples),
                 .remedy = "evaluate fewer batches, or let the input repeat"});
  }
  return samples;
}

void Evaluator::measure(data::BatchSource& source, std::span<const std::shared_ptr<Metric>> metrics, int64_t batches,
                        core::Communicator* ranks) {
  for (const auto& metric : metrics) metric->begin();
  for_each_output(source, batches, ranks != nullptr, [&](const data::Batch& batch, const at::Tensor& output) {
    const MetricBatch seen{.outputs = {{executors_.front()->graph().outputs.front().name, output}},
                           .labels = batch.labels().to(output.device())};
    for (const auto& metric : metrics) metric->update(seen);
  });
  if (ranks == nullptr) return;
  for (const auto& metric : metrics) metric->reduce(*ranks, device_);
}

void add_samples(const Evaluation& part, Evaluation& all) {
  if (part.samples == 0) return;
  all.has_accuracies = part.has_accuracies && (all.samples == 0 || all.has_accuracies);
  all.has_loss = part.has_loss && (all.samples == 0 || all.has_loss);
  all.samples += part.samples;
  all.not_finite += part.not_finite;
  all.loss_sum += part.loss_sum;
  all.right_1 += part.right_1;
  all.right_5 += part.right_5;
  all.classes.resize(std::max(all.classes.size(), part.classes.size()));
  for (size_t i = 0; i < part.classes.size(); ++i) {
    all.classes[i].right += part.classes[i].right;
    all.classes[i].total += part.classes[i].total;
  }
  const auto samples = static_cast<double>(all.samples);
  all.loss = all.loss_sum / samples;
  all.top_1 = static_cast<double>(all.right_1) / samples;
  all.top_5 = static_cast<double>(all.right_5) / samples;
}

Evaluation Evaluator::run(data::BatchSource& source, int64_t batches, bool may_be_empty) {
  const auto begin = std::chrono::steady_clock::now();
  const double waited_before = source.waited_seconds();
  Evaluation counted{.has_accuracies = options_.labels, .has_loss = options_.labels};
  const auto compare = [&](const data::Batch& batch, const at::Tensor& output, int64_t count) {
    // One batch without them, and there are none of the set.
    const bool accuracies = counted.has_accuracies && counts_classes(options_, output, batch.labels());
    counted.has_accuracies = accuracies;
    if (accuracies && !output.is_cpu()) nn::check_labels(batch.labels(), output.size(1));
    const at::Tensor labels = batch.labels().to(output.device());
    const at::Tensor loss = options_.loss ? options_.loss(output, labels) : nn::softmax_cross_entropy(output, labels);
    counted.loss_sum += loss.item<double>() * static_cast<double>(count);
    if (accuracies) {
      const at::Tensor hits = nn::top_k_hits(output, labels, 1).cpu();
      counted.right_1 += count_classes(hits, batch.labels().contiguous(), output.size(1), counted.classes);
      counted.right_5 += nn::top_k_correct(output, labels, 5).item<int64_t>();
    }
  };
  const auto count_batch = [&](const data::Batch& batch, const at::Tensor& output) {
    const int64_t count = batch.samples();
    if (options_.labels) compare(batch, output, count);
    if (options_.on_output) options_.on_output(batch, output);
    counted.not_finite += count - output.isfinite().reshape({count, -1}).all(1).sum().item<int64_t>();
  };
  counted.samples = for_each_output(source, batches, may_be_empty, count_batch);
  if (!counted.has_accuracies) {  // what the batches before the one without them had
    counted.right_1 = counted.right_5 = 0;
    counted.classes.clear();
  }
  Evaluation result;
  add_samples(counted, result);
  result.seconds = core::seconds_since(begin);
  result.input_seconds = source.waited_seconds() - waited_before;
  return result;
}

BestBy best_by(BestMetric metric) {
  return metric == BestMetric::kLoss ? BestBy{"loss", true} : BestBy{"top_1_accuracy", false};
}

bool lowest_is_best(const BestBy& by) {
  if (by.lowest) return *by.lowest;
  const auto has_word = [&](std::string_view word) {
    const auto is_letter = [&](size_t at) {
      return at < by.name.size() && std::isalnum(static_cast<unsigned char>(by.name[at])) != 0;
    };
    for (size_t at = by.name.find(word); at != std::string::npos; at = by.name.find(word, at + 1)) {
      if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
    }
    return false;
  };
  constexpr std::array kLower{"loss", "error"};
  constexpr std::array kHigher{"accuracy", "precision", "recall", "f1", "auc"};
  const bool lower = std::any_of(kLower.begin(), kLower.end(), has_word);
  const bool higher = std::any_of(kHigher.begin(), kHigher.end(), has_word);
  if (lower != higher) return lower;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("nothing says whether high or low values of '{}' are good", by.name),
                     .where = "BestBy::lowest",
                     .expected = "true or false",
                     .actual = "unset",
                     .remedy = "set it with the name"});
}

double value_to_compare(const Evaluation& evaluation, const BestBy& by) {
  if (const std::optional<double> value = value_of(evaluation, by.name)) return *value;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("an evaluation has no {} to keep the best checkpoint by", by.name),
                     .expected = fmt::format("one of {}", fmt::join(names_of_values(evaluation), ", ")),
                     .remedy = "keep the best by one of these"});
}

}  // namespace trainyard::train
