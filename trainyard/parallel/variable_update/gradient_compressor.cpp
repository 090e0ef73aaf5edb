#include "trainyard/parallel/variable_update/gradient_compressor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/optim/step/finite.h"
#include "trainyard/parallel/variable_update/power_sgd.h"
#include "trainyard/parallel/variable_update/top_k_gradients.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr std::array kMethodNames{"none", "powersgd", "topk"};
constexpr const char* kMethod = "method";
constexpr const char* kSteps = "steps";
constexpr const char* kRanks = "ranks";
constexpr const char* kErrorScale = "error_scale";

std::string error_name(int rank, const std::string& parameter) {
  return fmt::format("error/{}/{}", rank, parameter);
}

int64_t width_of(const nn::ParameterSet& set) {
  return static_cast<int64_t>(c10::elementSize(set.dtype()));
}

}  // namespace

std::string_view compression_method_name(CompressionMethod method) {
  return kMethodNames.at(static_cast<size_t>(method));
}

CompressionMethod compression_method(std::string_view name) {
  const auto* const found = std::find(kMethodNames.begin(), kMethodNames.end(), name);
  if (found != kMethodNames.end()) return static_cast<CompressionMethod>(found - kMethodNames.begin());
  throw Error(ErrorCode::kNotFound, {.problem = "no such compression of gradients",
                                     .expected = "none, powersgd or topk",
                                     .actual = std::string(name)});
}

void GradientCompression::validate() const {
  const auto require = [](bool good, std::string_view what, const std::string& expected, const std::string& actual) {
    if (good) return;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("{} cannot be used", what), .expected = expected, .actual = actual});
  };
  require(matrix_approximation_rank >= 1 && matrix_approximation_rank <= kMostRank, "the rank of compressed gradients",
          fmt::format("from 1 to {}", kMostRank), std::to_string(matrix_approximation_rank));
  require(min_compression_rate >= 1, "the least compression of a gradient", "at least 1",
          fmt::format("{}", min_compression_rate));
  require(start_iter >= 0, "the first step whose gradients are compressed", "at least 0", std::to_string(start_iter));
  require(top_k_share > 0 && top_k_share <= 1, "the share of a gradient's elements that are exchanged",
          "above 0, at most 1", fmt::format("{}", top_k_share));
}

GradientCompressor::GradientCompressor(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op,
                                       const GradientCompression& options, std::vector<CompressedGradient> compressed)
    : set_(set), communicator_(communicator), op_(op), options_(options), compressed_(std::move(compressed)) {
  if (!set.gradients().is_cpu()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "gradients are compressed on the CPU only",
                                          .actual = set.gradients().device().str(),
                                          .remedy = "leave the compression out, or train on the CPU"});
  }
  std::vector<bool> is_compressed(set.size());
  int64_t errors = 0, plain = 0;
  for (const CompressedGradient& gradient : compressed_) {
    is_compressed[static_cast<size_t>(gradient.id.index)] = true;
    errors += gradient.count();
  }
  for (const nn::Segment& segment : set.segments()) {
    if (is_compressed[static_cast<size_t>(segment.id.index)]) continue;
    plain_ids_.push_back(segment.id);
    plain += segment.count;
  }
  error_ = at::zeros({errors}, set.dtype());
  plain_ = at::empty({plain}, set.dtype());
}

void GradientCompressor::reduce() {
  const bool compresses = steps_ >= options_.start_iter;
  bool finite = false;
  if (compresses) {
    finite = exchange(scale_ / error_scale_);
  } else {
    communicator_.all_reduce(set_.gradients(), op_);
    finite = optim::all_finite(set_.gradients());
  }
  const GradientBytes step = bytes_of_step();
  bytes_.exchanged += compresses ? step.exchanged : step.uncompressed;
  bytes_.uncompressed += step.uncompressed;
  if (finite) {
    ++steps_;
    if (compresses) error_scale_ = scale_;
  } else if (compresses) {
    mark_not_finite();
  }
}

void GradientCompressor::mark_not_finite() {
  for (const nn::Segment& segment : set_.segments()) {
    set_.gradient(segment.id).fill_(std::numeric_limits<double>::quiet_NaN());
  }
}

GradientBytes GradientCompressor::bytes_of_step() const {
  const int64_t width = width_of(set_);
  return {.exchanged = plain_.numel() * width + compressed_bytes(),
          .uncompressed = (plain_.numel() + error_.numel()) * width};
}

int64_t GradientCompressor::memory_bytes() const {
  return static_cast<int64_t>(error_.nbytes() + plain_.nbytes()) + own_memory_bytes();
}

std::unique_ptr<core::PendingCollective> GradientCompressor::start_plain() {
  if (plain_.numel() == 0) return nullptr;
  int64_t begin = 0;
  for (const nn::ParameterId id : plain_ids_) {
    const int64_t count = set_.segment(id).count;
    plain_.narrow(0, begin, count).copy_(set_.gradient(id).view({-1}));
    begin += count;
  }
  return communicator_.start_all_reduce(plain_, op_);
}

bool GradientCompressor::plain_is_finite() const {
  return plain_.numel() == 0 || optim::all_finite(plain_);
}

void GradientCompressor::take_plain() {
  int64_t begin = 0;
  for (const nn::ParameterId id : plain_ids_) {
    const int64_t count = set_.segment(id).count;
    set_.gradient(id).view({-1}).copy_(plain_.narrow(0, begin, count));
    begin += count;
  }
}

void GradientCompressor::save(core::StateWriter& writer) const {
  writer.text(kMethod, compression_method_name(options_.method));
  writer.integer(kSteps, steps_);
  writer.integer(kRanks, communicator_.size());
  writer.real(kErrorScale, error_scale_);
  save_own(writer);
}

void GradientCompressor::save_error(core::StateWriter& writer, int rank, const at::Tensor& error) const {
  for (const CompressedGradient& gradient : compressed_) {
    const nn::ParameterSpec& spec = set_.segment(gradient.id).spec;
    writer.tensor(error_name(rank, spec.name),
                  error.narrow(0, gradient.error_offset, gradient.count()).view(spec.shape));
  }
}

void GradientCompressor::load(const core::StateReader& reader) {
  error_.zero_();
  error_scale_ = 1;
  steps_ = 0;
  const bool reports = communicator_.rank() == 0;
  if (!reader.has(kMethod)) {
    if (reports)
      core::log::warning(
          "the checkpoint has no state of compressed gradients: their compression starts from the beginning");
    load_own(reader);
    return;
  }
  steps_ = reader.integer(kSteps);
  error_scale_ = reader.real(kErrorScale);
  if (steps_ < 0 || !std::isfinite(error_scale_) || !(error_scale_ > 0)) {
    throw Error(ErrorCode::kCorruptData, {.problem = "the state of compressed gradients is not usable",
                                          .where = kErrorScale,
                                          .expected = "steps of at least 0, a scale above 0",
                                          .actual = fmt::format("{} and {}", steps_, error_scale_)});
  }
  const std::string method = reader.text(kMethod);
  const bool own = load_own(reader);
  if (reports && (method != compression_method_name(options_.method) || !own)) {
    core::log::warning(
        "the checkpoint's gradients were compressed otherwise (by {}): what that keeps starts from the beginning",
        method);
  }
  load_errors(reader);
}

void GradientCompressor::load_errors(const core::StateReader& reader) {
  const auto saved = static_cast<int>(reader.integer(kRanks));
  const int ranks = communicator_.size();
  const bool reports = communicator_.rank() == 0;
  bool complete = true;
  if (saved == ranks) {
    complete = add_saved_error(reader, communicator_.rank(), 1);
  } else {
    // What a step applies of them is their mean, or their sum.
    const double share = 1.0 / (op_ == core::ReduceOp::kSum ? ranks : saved);
    for (int rank = 0; rank < saved && complete; ++rank) complete = add_saved_error(reader, rank, share);
    if (reports && complete && error_.numel() > 0) {
      core::log::warning("the checkpoint's error memories of {} ranks are shared out over {}", saved, ranks);
    }
  }
  if (complete) return;
  error_.zero_();
  if (reports) {
    core::log::warning("the checkpoint has no error memories of these gradients' compression: they begin with zeros");
  }
}

bool GradientCompressor::add_saved_error(const core::StateReader& reader, int rank, double factor) {
  for (const CompressedGradient& gradient : compressed_) {
    const nn::ParameterSpec& spec = set_.segment(gradient.id).spec;
    const std::string name = error_name(rank, spec.name);
    if (!reader.has(name)) return false;
    const at::Tensor value = reader.tensor(name);
    if (value.sizes() != at::IntArrayRef(spec.shape)) {
      throw Error(ErrorCode::kCorruptData, {.problem = "an error memory has another shape than its parameter",
                                            .where = name,
                                            .expected = fmt::format("{} elements", gradient.count()),
                                            .actual = fmt::format("{}", value.numel())});
    }
    error_.narrow(0, gradient.error_offset, gradient.count()).add_(value.view({-1}).to(error_.scalar_type()), factor);
  }
  return true;
}

std::unique_ptr<GradientCompressor> make_gradient_compressor(const nn::ParameterSet& set,
                                                             core::Communicator& communicator, core::ReduceOp op,
                                                             const GradientCompression& options) {
  options.validate();
  if (options.method == CompressionMethod::kPowerSgd) {
    return std::make_unique<PowerSgd>(set, communicator, op, options);
  }
  return std::make_unique<TopKGradients>(set, communicator, op, options);
}

std::string compression_text(const GradientCompression& options, const GradientBytes& bytes) {
  const std::string method = options.method == CompressionMethod::kPowerSgd
                                 ? fmt::format("powersgd of rank {}", options.matrix_approximation_rank)
                                 : fmt::format("the largest {:g} % of each gradient", 100 * options.top_k_share);
  const auto exchanged = static_cast<double>(bytes.exchanged), uncompressed = static_cast<double>(bytes.uncompressed);
  return fmt::format("{}, {:.3f} MB instead of {:.3f} MB a step: {:.1f} times less", method, exchanged / 1e6,
                     uncompressed / 1e6, exchanged > 0 ? uncompressed / exchanged : 1.0);
}

}  // namespace trainyard::parallel
