#include "trainyard/train/evaluation/evaluation_sum.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/frame.h"

namespace trainyard::train {
namespace {

// What a rank has found, without what follows from it.
std::string text_of_part(const Evaluation& part, bool stopped) {
  core::BodyWriter body;
  for (const int64_t count : {int64_t{stopped}, part.samples, part.not_finite, int64_t{part.has_accuracies},
                              int64_t{part.has_loss}, part.right_1, part.right_5}) {
    body.number(count);
  }
  body.real(part.loss_sum).real(part.seconds).real(part.input_seconds).number(std::ssize(part.classes));
  for (const ClassCount& count : part.classes) body.number(count.right).number(count.total);
  return body.take();
}

Evaluation part_of_text(std::string_view text, bool& stopped) {
  core::BodyReader body(text);
  Evaluation part;
  if (body.number() != 0) stopped = true;  // read also where another rank has stopped before
  part.samples = body.number();
  part.not_finite = body.number();
  part.has_accuracies = body.number() != 0;
  part.has_loss = body.number() != 0;
  part.right_1 = body.number();
  part.right_5 = body.number();
  part.loss_sum = body.real();
  part.seconds = body.real();
  part.input_seconds = body.real();
  part.classes.resize(static_cast<size_t>(body.number()));
  for (ClassCount& count : part.classes) {
    count.right = body.number();
    count.total = body.number();
  }
  return part;
}

}  // namespace

Evaluation sum_over_ranks(parallel::ProcessGroup& ranks, const Evaluation& own, bool stopped) {
  Evaluation all{.shows_top_5 = own.shows_top_5};
  bool any_stopped = false;
  for (const std::string& text : ranks.gather("the counts of an evaluation", text_of_part(own, stopped))) {
    const Evaluation part = part_of_text(text, any_stopped);
    add_samples(part, all);
    all.seconds = std::max(all.seconds, part.seconds);
    all.input_seconds = std::max(all.input_seconds, part.input_seconds);
  }
  if (any_stopped) throw core::Error(core::ErrorCode::kCancelled, "an evaluation was stopped");
  return all;
}

}  // namespace trainyard::train
