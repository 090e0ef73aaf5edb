// A function of a variant's alternatives, out of one for each: std::visit(Overloaded{[](int) {...}, ...}, variant).
#pragma once

namespace trainyard::core {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace trainyard::core
