// Sums over the threads of a block.
#pragma once

#include "nn/cuda/launch.cuh"

namespace dlaunch::nn::cuda {

/// Makes of each value its sum over the block's kThreads threads, in all of them; always in the
/// same order. Once in a kernel.
template <int kSums>
__device__ inline void sum_over_block(double (&values)[kSums]) {
  __shared__ double shared[kSums][kThreads];
#pragma unroll
  for (int k = 0; k < kSums; ++k) shared[k][threadIdx.x] = values[k];
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
#pragma unroll
    for (int k = 0; k < kSums; ++k) shared[k][threadIdx.x] += shared[k][threadIdx.x + half];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSums; ++k) values[k] = shared[k][0];
}

}  // namespace dlaunch::nn::cuda
