// The arithmetic of PowerSGD: products of a large matrix M with a few vectors. M is row-major
// [rows, columns]; P holds `rank` vectors of `rows` elements, Q as many of `columns`, each vector
// contiguous. On the calling thread, vectorised for the CPU that runs it. Pure functions.
#pragma once

#include <cstddef>

namespace dlaunch::low_rank {

struct Extent {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t rank = 0;
};

/// P = M Q
void multiply(const Extent& extent, const float* m, const float* q, float* p);
/// Q = M^T P
void multiply_transposed(const Extent& extent, const float* m, const float* p, float* q);
/// M = P Q^T
void expand(const Extent& extent, const float* p, const float* q, float* m);
/// error = factor (M - P Q^T)
void residual(const Extent& extent, const float* m, const float* p, const float* q, float factor,
              float* error);
/// y += factor x
void add(std::size_t count, float factor, const float* x, float* y);
/// Makes the vectors of P orthonormal, one after the other (modified Gram-Schmidt). One that
/// depends on those before it becomes zero.
void orthonormalise(std::size_t rows, std::size_t rank, float* p);

}  // namespace dlaunch::low_rank
