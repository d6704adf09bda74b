#include "tests/cuda_on_host/grid.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/cuda_on_host/block.h"
#include "tests/cuda_on_host/order.h"
#include "tests/cuda_on_host/shared_memory.h"

namespace dlaunch::cuda_on_host {
namespace {

unsigned draw_seed() {
  const char* wanted = std::getenv("DLAUNCH_CUDA_ON_HOST_SEED");  // NOLINT(concurrency-mt-unsafe)
  return wanted == nullptr ? std::random_device{}()
                           : static_cast<unsigned>(std::strtoul(wanted, nullptr, 10));
}

// The one device.
struct Multiprocessor {
  unsigned seed = draw_seed();
  std::minstd_rand random{seed};
  SharedMemory shared;
  bool shared_is_used = true;
  Block block{random};
};

Multiprocessor& multiprocessor() {
  static Multiprocessor the_one;
  return the_one;
}

}  // namespace

void run_grid(Dimensions grid, Dimensions block, const std::function<void()>& kernel) {
  Multiprocessor& on = multiprocessor();
  current = {.grid = grid, .block = block};
  const std::uint64_t blocks = grid.count();
  Order order(blocks, on.random);
  try {
    for (std::uint64_t i = 0; i < blocks; ++i) {
      if (on.shared_is_used) on.shared.make_uninitialised();
      current.block_index = grid.at(order.next());
      on.block.run(block, kernel);
      on.shared_is_used = on.block.has_met();
    }
  } catch (const KernelFault& fault) {
    on.shared_is_used = true;
    throw KernelFault(std::string(fault.what()) + " (seed " + std::to_string(on.seed) + ")");
  }
}

void wait_for_block(Place where) {
  multiprocessor().block.wait(where);
}

std::uint64_t exchange_in_warp(unsigned mask, std::uint64_t word, int distance, Place where) {
  return multiprocessor().block.exchange(mask, word, distance, where);
}

}  // namespace dlaunch::cuda_on_host
