// Kernels on the host. A block runs at a time and a thread at a time, in an order that is drawn
// anew for every grid, block and pass, so that what only one order gives right shows. A thread goes
// on until it ends or waits for others, at a barrier or for a value of its warp. What would be
// undefined on a device is a KernelFault:
//   a barrier that some threads of the block, which have not ended, wait at while others do not;
//   an exchange within a warp without a lane that its mask names, or from a lane that it does not.
// The seed is drawn too, and printed with the first fault; DLAUNCH_CUDA_ON_HOST_SEED repeats one.
//
// Used by one thread. The functions in the second half are called by kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>

#include "cuda_runtime_api.h"

namespace dlaunch::cuda_on_host {

/// CUDA's dim3.
struct Dimensions {
  constexpr Dimensions(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1)  // NOLINT: as dim3
      : x(of_x), y(of_y), z(of_z) {}
  unsigned x, y, z;

  constexpr std::uint64_t count() const { return std::uint64_t{x} * y * z; }
  /// The element `number` of them, x being the fastest.
  constexpr Dimensions at(std::uint64_t number) const {
    return {static_cast<unsigned>(number % x), static_cast<unsigned>(number / x % y),
            static_cast<unsigned>(number / x / y)};
  }
};

/// A line of a kernel.
struct Place {
  const char* file = "";
  int line = 0;
};

class KernelFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Runs `kernel` for every thread. Throws KernelFault; the other threads then never end.
void run_grid(Dimensions grid, Dimensions block, const std::function<void()>& kernel);

/// Queues that. cudaErrorInvalidConfiguration for sizes that no device has.
cudaError_t launch(Dimensions grid, Dimensions block, cudaStream_t stream,
                   std::function<void()> kernel);
/// How often it has done so.
inline std::uint64_t launches = 0;

/// Where the thread that runs is.
struct Position {
  Dimensions grid, block, block_index, thread_index;
};
inline Position current;

/// Returns when all threads of the block that have not ended wait here.
void wait_for_block(Place where);
/// The `word` of the lane whose number differs in the bits of `distance`; when all lanes of the
/// mask are here.
std::uint64_t exchange_in_warp(unsigned mask, std::uint64_t word, int distance, Place where);

}  // namespace dlaunch::cuda_on_host
