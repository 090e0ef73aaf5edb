#include "trainyard/parallel/process_group/start_agreement.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/sockets/frame.h"

namespace trainyard::parallel {
namespace {

std::string text_of_facts(const std::vector<StartFact>& facts) {
  core::BodyWriter body;
  body.number(std::ssize(facts));
  for (const StartFact& fact : facts) body.text(fact.item).text(fact.value);
  return body.take();
}

std::vector<StartFact> facts_of_text(const std::string& text) {
  core::BodyReader body(text);
  std::vector<StartFact> facts;
  for (int64_t left = body.number(); left > 0; --left) {
    std::string item = body.text();
    facts.push_back({std::move(item), body.text()});
  }
  body.end();
  return facts;
}

// An item of two ranks, and what it is on each.
struct Difference {
  std::string item, first, other;
};

std::vector<Difference> differences_of(const std::vector<StartFact>& first, const std::vector<StartFact>& other) {
  constexpr const char* kNothing = "nothing of that name";
  std::map<std::string, std::string> left;
  for (const StartFact& fact : other) left[fact.item] = fact.value;
  std::vector<Difference> all;
  for (const StartFact& fact : first) {
    const auto found = left.find(fact.item);
    if (found == left.end()) {
      all.push_back({fact.item, fact.value, kNothing});
      continue;
    }
    if (found->second != fact.value) all.push_back({fact.item, fact.value, found->second});
    left.erase(found);
  }
  for (const StartFact& fact : other) {
    if (left.contains(fact.item)) all.push_back({fact.item, kNothing, fact.value});
  }
  if (all.empty()) all.push_back({"the order of what ranks begin with", first.front().item, other.front().item});
  return all;
}

}  // namespace

void require_same_facts(ProcessGroup& ranks, const std::vector<StartFact>& facts) {
  const std::string own = text_of_facts(facts);
  const std::vector<std::string> sums =
      ranks.gather("what ranks begin with", fmt::format("{:016x}", core::stable_hash(own)));
  const auto other = std::find_if(sums.begin(), sums.end(), [&](const std::string& sum) { return sum != sums[0]; });
  if (other == sums.end()) return;
  // The texts of these two alone: those of many ranks are more than a message may hold.
  const auto differs = static_cast<size_t>(other - sums.begin());
  const bool is_compared = ranks.rank() == 0 || static_cast<size_t>(ranks.rank()) == differs;
  const std::vector<std::string> texts = ranks.gather("what ranks begin with differently", is_compared ? own : "");
  const std::vector<Difference> all = differences_of(facts_of_text(texts[0]), facts_of_text(texts[differs]));
  const std::string more = all.size() == 1 ? "" : fmt::format(" and {} more", all.size() - 1);
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("ranks begin differently: {}{}", all.front().item, more),
                     .where = fmt::format("rank {}", differs),
                     .expected = all.front().first + " as on rank 0",
                     .actual = all.front().other,
                     .remedy = "start all ranks with the same program, flags and data"});
}

}  // namespace trainyard::parallel
