// Block: the threads of one block as fibers. A thread that ends without having waited leaves its
// fiber to the next one, so kernels without barriers are plain loops.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "tests/cuda_on_host/fiber.h"
#include "tests/cuda_on_host/grid.h"
#include "tests/cuda_on_host/order.h"

namespace dlaunch::cuda_on_host {

/// For one block after another. Used by one thread.
class Block {
 public:
  explicit Block(std::minstd_rand& random) : random_(random) {}

  /// Runs `kernel` for all threads of a block of that size; where they are is in `current`. Throws
  /// KernelFault.
  void run(Dimensions size, const std::function<void()>& kernel);
  /// Whether threads of the last one have waited for each other, and so could share memory.
  bool has_met() const { return has_met_; }

  // By the thread that runs:
  void wait(Place where);
  std::uint64_t exchange(unsigned mask, std::uint64_t word, int distance, Place where);

 private:
  enum class State { kReady, kAtBarrier, kAtExchange, kEnded };
  struct Thread {
    State state = State::kReady;
    Fiber* fiber = nullptr;
    Place where;  // it waits
    unsigned mask = 0;
    int distance = 0;
    std::uint64_t word = 0;
  };

  void start_threads();
  void run_ready_threads();
  void become(std::uint64_t number);
  void pause(State state, Place where);
  void let_go_on();
  void pass_barrier();
  bool exchange_in_warps();
  void exchange_in(std::size_t first_lane, std::size_t lane);
  [[noreturn]] void fail(std::size_t number, const char* what, std::size_t other);

  std::minstd_rand& random_;
  Dimensions size_;
  const std::function<void()>* kernel_ = nullptr;
  std::vector<Thread> threads_;
  Order order_{0, random_};
  std::size_t started_ = 0;
  std::size_t ended_ = 0;
  std::size_t running_ = 0;
  bool has_met_ = false;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

}  // namespace dlaunch::cuda_on_host
