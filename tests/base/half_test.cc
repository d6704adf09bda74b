#include "runtime/base/half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

// The value of a 16-bit float with the given numbers of exponent and mantissa bits, from the
// definition in IEEE 754.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1.0 + fraction, exponent - bias);
}

// `value` rounded to nearest, ties to even, to a float of that format, in double precision: exact,
// because a multiple of the format's spacing is.
double rounded(double value, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (value == 0 || std::isinf(value)) return value;
  const int exponent = std::max(std::ilogb(value), 1 - bias);
  const double spacing = std::ldexp(1.0, exponent - mantissa_bits);
  const double nearest = std::nearbyint(value / spacing) * spacing;
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, -mantissa_bits), bias);
  if (std::abs(nearest) > largest) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return nearest;
}

template <typename Half>
struct Format;
template <>
struct Format<Float16> {
  static constexpr int kExponent = 5;
  static constexpr int kMantissa = 10;
};
template <>
struct Format<BFloat16> {
  static constexpr int kExponent = 8;
  static constexpr int kMantissa = 7;
};

template <typename Half>
class HalfTest : public ::testing::Test {
 protected:
  static double value(std::uint16_t bits) {
    return value_of(bits, Format<Half>::kExponent, Format<Half>::kMantissa);
  }
  static Half half_of(std::uint16_t bits) {
    Half half;
    half.bits = bits;
    return half;
  }
  static void expect_rounded(float input) {
    const double expected = rounded(input, Format<Half>::kExponent, Format<Half>::kMantissa);
    const double actual = value(Half(input).bits);
    ASSERT_EQ(actual, expected) << "of " << input;
    ASSERT_EQ(std::signbit(actual), std::signbit(input)) << "of " << input;
  }
};
using Halves = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(HalfTest, Halves);

TYPED_TEST(HalfTest, ConvertsEveryValueToFloatExactlyAndBack) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto half = this->half_of(static_cast<std::uint16_t>(bits));
    const double expected = this->value(half.bits);
    const auto converted = static_cast<float>(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(converted)) << "bits " << bits;
      ASSERT_TRUE(std::isnan(this->value(TypeParam(converted).bits))) << "bits " << bits;
    } else {
      ASSERT_EQ(static_cast<double>(converted), expected) << "bits " << bits;
      ASSERT_EQ(TypeParam(converted), half) << "bits " << bits;
    }
  }
}

TYPED_TEST(HalfTest, RoundsToNearestEvenAtAndAroundEveryMidpoint) {
  for (unsigned bits = 0; bits + 1 < 0x8000; ++bits) {
    const double low = this->value(static_cast<std::uint16_t>(bits));
    const double high = this->value(static_cast<std::uint16_t>(bits + 1));
    if (!std::isfinite(high)) break;
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    for (const float input : {middle, std::nextafter(middle, 0.0F),
                              std::nextafter(middle, std::numeric_limits<float>::infinity())}) {
      this->expect_rounded(input);
      this->expect_rounded(-input);
    }
  }
}

TYPED_TEST(HalfTest, RoundsRandomFloatsOfAllMagnitudes) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 200'000; ++i) {
    const auto input = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isnan(input)) this->expect_rounded(input);
  }
}

TYPED_TEST(HalfTest, OverflowsToInfinityOnlyBeyondTheLastMidpoint) {
  using F = Format<TypeParam>;
  const int bias = (1 << (F::kExponent - 1)) - 1;
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, -F::kMantissa), bias);
  const double midpoint = largest + std::ldexp(1.0, bias - F::kMantissa - 1);
  const auto edge = static_cast<float>(midpoint);
  EXPECT_EQ(this->value(TypeParam(std::nextafter(edge, 0.0F)).bits), largest);
  EXPECT_TRUE(std::isinf(this->value(TypeParam(edge).bits))) << "a tie goes to even: infinity";
  EXPECT_TRUE(std::isinf(this->value(TypeParam(std::numeric_limits<float>::infinity()).bits)));
}

}  // namespace
}  // namespace dlaunch
