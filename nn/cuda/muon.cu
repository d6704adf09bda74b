// Muon beside its matrix products: three launches for all matrices. Chunks of their elements are
// summed one by one, and all blocks that want a sum add up those of the chunks.
#include <cmath>

#include "nn/core/optimizer_formulas.h"
#include "nn/cuda/array_lists.cuh"
#include "nn/cuda/block_sums.cuh"
#include "nn/cuda/kernels.h"

namespace dlaunch::nn::cuda {
namespace {

constexpr int kWidth = kPackBytes / static_cast<int>(sizeof(float));

// The squares of a chunk, or of a matrix.
enum Squares : int { kOfDirection, kOfParameters, kSquares };

template <int kSize>
__device__ double sum_of_squares(const float (&values)[kSize]) {
  double sum = 0;
#pragma unroll
  for (int k = 0; k < kSize; ++k) sum += static_cast<double>(values[k]) * values[k];
  return sum;
}

// Also writes the squares of each chunk to `sums`, [blocks][kSquares].
__global__ void move_velocities(const __grid_constant__ ArrayList<MuonMatrix> list,
                                const float* skip_or_null, bool nesterov, double* sums) {
  if (is_set(skip_or_null)) return;
  const Chunk chunk = chunk_of(list);
  const MuonMatrix& matrix = list.items[chunk.item];
  const SgdFactors f = *matrix.factors;
  double squares[kSquares] = {};
  const auto move = [&]<int kSize>(std::int64_t i) {
    float g[kSize];
    float v[kSize];
    load_pack(matrix.gradients + i, g);
    load_pack(matrix.velocities + i, v);
    float p[kSize] = {};
    if (matrix.norm_factor != nullptr) load_pack(matrix.parameters + i, p);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      v[k] = sgd_velocity(f, g[k], v[k]);
      g[k] = muon_direction(f, nesterov, g[k], v[k]);
    }
    store_pack(matrix.velocities + i, v);
    squares[kOfDirection] += sum_of_squares(g);
    squares[kOfParameters] += sum_of_squares(p);
  };
  for_packs<kWidth>(chunk, aligned(matrix.gradients, matrix.velocities, matrix.parameters), move);
  sum_over_block(squares);
  if (threadIdx.x > 0) return;
  for (int k = 0; k < kSquares; ++k) sums[blockIdx.x * kSquares + k] = squares[k];
}

template <typename T>
__global__ void make_directions(const __grid_constant__ ArrayList<MuonMatrix> list,
                                const float* skip_or_null, bool nesterov, const double* sums) {
  if (is_set(skip_or_null)) return;
  const Chunk chunk = chunk_of(list);
  const MuonMatrix& matrix = list.items[chunk.item];
  const SgdFactors f = *matrix.factors;
  double squares[kSquares] = {};
  for (unsigned block = chunk.first + threadIdx.x; block < chunk.last; block += kThreads)
    for (int k = 0; k < kSquares; ++k) squares[k] += sums[block * kSquares + k];
  sum_over_block(squares);
  const float factor = factor_to_norm(1, sqrt(squares[kOfDirection]), kMuonEps);
  T* const x = static_cast<T*>(matrix.x.data);
  const auto make = [&]<int kSize>(std::int64_t i) {
    float g[kSize];
    float v[kSize];
    load_pack(matrix.gradients + i, g);
    load_pack(matrix.velocities + i, v);
#pragma unroll
    for (int k = 0; k < kSize; ++k) v[k] = factor * muon_direction(f, nesterov, g[k], v[k]);
    store_pack(x + i, v);
  };
  for_packs<kWidth>(chunk, aligned(matrix.gradients, matrix.velocities, x), make);
  if (matrix.norm_factor != nullptr && blockIdx.x == chunk.first && threadIdx.x == 0)
    *matrix.norm_factor =
        factor_to_norm(sqrt(static_cast<double>(matrix.rows)), sqrt(squares[kOfParameters]), 0);
}

template <typename T>
__global__ void take_steps(const __grid_constant__ ArrayList<MuonMatrix> list,
                           const float* skip_or_null) {
  if (is_set(skip_or_null)) return;
  const Chunk chunk = chunk_of(list);
  const MuonMatrix& matrix = list.items[chunk.item];
  const SgdFactors f = *matrix.factors;
  const float norm_factor = matrix.norm_factor == nullptr ? 1.0F : *matrix.norm_factor;
  const T* const x = static_cast<const T*>(matrix.x.data);
  const auto take = [&]<int kSize>(std::int64_t i) {
    float step[kSize];
    float p[kSize];
    load_pack(x + i, step);
    load_pack(matrix.parameters + i, p);
#pragma unroll
    for (int k = 0; k < kSize; ++k) p[k] = sgd_plain(f, step[k], norm_factor * p[k]);
    store_pack(matrix.parameters + i, p);
  };
  for_packs<kWidth>(chunk, aligned(matrix.parameters, x), take);
}

}  // namespace

void muon_directions(Device& device, std::span<const MuonMatrix> matrices,
                     const float* skip_or_null, bool nesterov) {
  for_lists(matrices, [&](const ArrayList<MuonMatrix>& list, unsigned blocks) {
    const ScratchMemory scratch(device.memory(), std::size_t{blocks} * kSquares * sizeof(double));
    auto* const sums = static_cast<double*>(scratch.get());
    launch(device, "muon velocities", move_velocities, blocks, kThreads, list, skip_or_null,
           nesterov, sums);
    visit_activation(list.items[0].x.dtype, [&]<typename T>() {
      launch(device, "muon directions", make_directions<T>, blocks, kThreads, list, skip_or_null,
             nesterov, sums);
    });
  });
}

void muon_step(Device& device, std::span<const MuonMatrix> matrices, const float* skip_or_null) {
  for_lists(matrices, [&](const ArrayList<MuonMatrix>& list, unsigned blocks) {
    visit_activation(list.items[0].x.dtype, [&]<typename T>() {
      launch(device, "muon step", take_steps<T>, blocks, kThreads, list, skip_or_null);
    });
  });
}

}  // namespace dlaunch::nn::cuda
