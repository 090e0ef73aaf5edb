#include "trainyard/parallel/process_group/shared_outcome.h"

#include <exception>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/process_group/group_message.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

// Returns what `work` threw.
std::optional<Error> error_of_work(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, std::string(error.what()));
  }
}

}  // namespace

void together(ProcessGroup& ranks, const std::string& what, const std::function<void()>& work) {
  const std::optional<Error> own = error_of_work(work);
  // Then the others cannot be asked any more.
  if (own && ranks.reported()) throw *own;
  // Success is an empty text.
  const std::vector<std::string> outcomes = ranks.gather(what, own ? encode(*own) : "");
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (!outcomes[rank].empty()) throw decode_error(outcomes[rank]).in(fmt::format("rank {}", rank));
  }
}

std::string on_first(ProcessGroup& ranks, const std::string& what, const std::function<std::string()>& work) {
  std::string result;
  std::optional<Error> error;
  if (ranks.rank() == 0) error = error_of_work([&] { result = work(); });
  // The first byte says which of the two it is.
  result = ranks.from_first(what, error ? "!" + encode(*error) : "=" + result);
  const std::string_view text(result);
  if (text.starts_with('!')) throw decode_error(text.substr(1)).in("rank 0");
  return std::string(text.substr(1));
}

void report_what_fails(ProcessGroup& ranks, const std::function<void()>& work) {
  const std::optional<Error> error = error_of_work(work);
  if (!error) return;
  if (error->code() != ErrorCode::kPeerFailed) ranks.report(*error);
  if (error->code() == ErrorCode::kPeerFailed || error->detail().where.starts_with("rank ")) throw *error;
  throw error->in(fmt::format("rank {} of {}", ranks.rank(), ranks.size()));
}

}  // namespace trainyard::parallel
