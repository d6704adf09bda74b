#include "nn/core/random.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "nn/core/error.h"

namespace dlaunch::nn {
namespace {

constexpr float kUnit = 0x1p-24F;  // a uniform number is one of 2^24 equally spaced ones

}  // namespace

std::uint32_t Generator::operator()() {
  const std::uint64_t index = state_.position / 4;
  if (index != block_index_) {
    block_ = philox_block(state_.seed, state_.stream, index);
    block_index_ = index;
  }
  return block_[state_.position++ % 4];
}

RandomState Generator::reserve(std::uint64_t words) {
  RandomState start = state_;
  start.position = (start.position + 3) / 4 * 4;
  state_.position = start.position + words;
  return start;
}

float Generator::uniform(float low, float high) {
  const float unit = static_cast<float>((*this)() >> 8) * kUnit;
  const float value = low + (high - low) * unit;
  return value < high ? value : std::nextafter(high, low);  // rounding may reach `high`
}

std::uint32_t Generator::below(std::uint32_t bound) {
  if (bound == 0) throw Error("random numbers below 0 were asked for");
  return random_below(bound, *this);
}

float Generator::normal(float mean, float deviation) {
  const float radius_unit = static_cast<float>(((*this)() >> 8) + 1) * kUnit;  // in (0, 1]
  const float angle_unit = static_cast<float>((*this)() >> 8) * kUnit;
  const float radius = std::sqrt(-2.0F * std::log(radius_unit));
  return mean + deviation * radius * std::cos(2.0F * std::numbers::pi_v<float> * angle_unit);
}

void Generator::fill_uniform(std::span<float> values, float low, float high) {
  for (float& value : values) value = uniform(low, high);
}

void Generator::fill_normal(std::span<float> values, float mean, float deviation) {
  for (float& value : values) value = normal(mean, deviation);
}

std::vector<std::uint32_t> Generator::permutation(std::size_t count) {
  if (count > std::numeric_limits<std::uint32_t>::max()) {
    throw Error("a permutation of " + std::to_string(count) + " is too long");
  }
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  for (auto left = static_cast<std::uint32_t>(count); left > 1; --left) {
    std::swap(order[left - 1], order[below(left)]);
  }
  return order;
}

}  // namespace dlaunch::nn
