// Products of wide matrices with narrow ones, and orthonormal columns, for PowerSGD. Elements are float or double. The
// columns of narrow matrices are contiguous.
//
// Each element is added up in an order that depends on the shapes alone: neither the number of threads nor the
// processor changes the bits, so that ranks which compute the same thing get the same.
#pragma once

#include <cstdint>
#include <functional>

namespace trainyard::parallel {

// Adds `error` times `factor` to the rows [begin, end) of `matrix`, [rows, columns], and writes their products with
// `right`, `rank` columns of `columns` elements, to those elements of `product`, `rank` columns of `rows` elements.
template <typename T>
void add_and_multiply(T* matrix, const T* error, T factor, int64_t rows, int64_t columns, const T* right, int64_t rank,
                      T* product, int64_t begin, int64_t end);

// Writes the products of the columns [begin, end) of `matrix` with `left`, `rank` columns of `rows` elements, to those
// elements of `product`, `rank` columns of `columns` elements.
template <typename T>
void multiply_transposed(const T* matrix, int64_t rows, int64_t columns, const T* left, int64_t rank, T* product,
                         int64_t begin, int64_t end);

// Replaces rows [begin, end) of `matrix`, M, by those of the product A of `left` and `right`, narrow matrices as above,
// and writes M - share A to `error`.
template <typename T>
void replace_by_product(T* matrix, T* error, T share, int64_t rows, int64_t columns, const T* left, const T* right,
                        int64_t rank, int64_t begin, int64_t end);

// Makes `rank` columns of `length` elements, rank <= length, orthonormal by Gram-Schmidt, in double precision, each
// projected twice. A column that the ones before it leave nothing of is drawn again by `refill`, or becomes zero when
// there is none.
template <typename T>
void orthonormalize(T* columns, int64_t length, int64_t rank,
                    const std::function<void(int64_t column, T* values)>& refill = {});

}  // namespace trainyard::parallel
