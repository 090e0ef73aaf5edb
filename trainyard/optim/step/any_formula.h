// A variant of all formulas. DeviceKernels compile one kernel for each of them.
#pragma once

#include <cstddef>
#include <type_traits>
#include <variant>

#include "trainyard/optim/formulas/formula_list.h"

namespace trainyard::optim {

namespace any_formula_internal {

// The first type only makes the list's commas come out even.
template <typename None, typename... Formulas>
struct OneOf {
  using Type = std::variant<Formulas...>;
};
#define TRAINYARD_NEXT(Formula) , Formula
using Listed = OneOf<void TRAINYARD_FORMULAS(TRAINYARD_NEXT)>;
#undef TRAINYARD_NEXT

}  // namespace any_formula_internal

using AnyFormula = any_formula_internal::Listed::Type;

inline size_t slots_of(const AnyFormula& formula) {
  return std::visit([](const auto& known) { return std::remove_cvref_t<decltype(known)>::kSlots; }, formula);
}
inline bool counts_updates(const AnyFormula& formula) {
  return std::visit([](const auto& known) { return kCountsUpdates<std::remove_cvref_t<decltype(known)>>; }, formula);
}

inline bool scaled_by_norms(const AnyFormula& formula) {
  return std::visit([](const auto& known) { return kScaledByNorms<std::remove_cvref_t<decltype(known)>>; }, formula);
}

}  // namespace trainyard::optim
