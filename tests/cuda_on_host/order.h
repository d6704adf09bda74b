// A random order of the numbers from 0 to count - 1, cheap to draw: steps of a size that has no
// divisor in common with the count.
#pragma once

#include <cstdint>
#include <numeric>
#include <random>

namespace dlaunch::cuda_on_host {

class Order {
 public:
  Order(std::uint64_t count, std::minstd_rand& random) : count_(count) {
    if (count < 2) return;
    next_ = random() % count;
    do {
      step_ = 1 + random() % (count - 1);
    } while (std::gcd(step_, count) != 1);
  }

  std::uint64_t next() {
    const std::uint64_t number = next_;
    next_ += step_;
    if (next_ >= count_) next_ -= count_;
    return number;
  }

 private:
  std::uint64_t count_;
  std::uint64_t next_ = 0;
  std::uint64_t step_ = 0;
};

}  // namespace dlaunch::cuda_on_host
