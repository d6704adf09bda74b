// The reduction kernels against plain arithmetic in double or in 64-bit integers.
#include "runtime/collective/reduction.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/precision.h"

namespace dlaunch {
namespace {

constexpr ReduceOp kElementwise[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin,
                                     ReduceOp::kMax};

using testing::to_double;
using testing::unit_roundoff;

double expected(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMin:
      return std::fmin(a, b);
    case ReduceOp::kMax:
      return std::fmax(a, b);
    case ReduceOp::kBand:
      return static_cast<double>(static_cast<int>(a) & static_cast<int>(b));
    case ReduceOp::kBor:
      return static_cast<double>(static_cast<int>(a) | static_cast<int>(b));
    case ReduceOp::kBxor:
      return static_cast<double>(static_cast<int>(a) ^ static_cast<int>(b));
  }
  return 0;
}

TEST(Reduction, CombinesEveryTypeElementByElement) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> small(0, 11);  // 11 * 11 and 11 + 11 fit every type exactly
  std::uniform_real_distribution<double> real(-2, 2);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : reductions_of(dtype)) {
      for (const std::size_t count : {0U, 1U, 3U, 67U}) {
        visit_dtype(dtype, [&]<typename T>() {
          std::vector<T> left(count);
          std::vector<T> right(count);
          for (std::size_t i = 0; i < count; ++i) {
            const bool floating = is_floating(dtype);
            left[i] = static_cast<T>(static_cast<float>(floating ? real(random) : small(random)));
            right[i] = static_cast<T>(static_cast<float>(floating ? real(random) : small(random)));
          }
          std::vector<T> result = left;
          accumulate(op, dtype, result.data(), right.data(), count);
          for (std::size_t i = 0; i < count; ++i) {
            const double want = expected(op, to_double(left[i]), to_double(right[i]));
            EXPECT_NEAR(to_double(result[i]), want, std::abs(want) * unit_roundoff<T>() + 1e-7)
                << to_string(dtype) << " " << to_string(op);
          }
        });
      }
    }
  }
}

TEST(Reduction, SumsAndProductsOfIntegersWrapAround) {
  std::int32_t i32 = std::numeric_limits<std::int32_t>::max();
  const std::int32_t one32 = 1;
  accumulate(ReduceOp::kSum, DType::kI32, &i32, &one32, 1);
  EXPECT_EQ(i32, std::numeric_limits<std::int32_t>::min());

  std::int64_t i64 = std::numeric_limits<std::int64_t>::min();
  const std::int64_t minus = -1;
  accumulate(ReduceOp::kProd, DType::kI64, &i64, &minus, 1);
  EXPECT_EQ(i64, std::numeric_limits<std::int64_t>::min());

  std::uint8_t u8 = 200;
  const std::uint8_t hundred = 100;
  accumulate(ReduceOp::kSum, DType::kU8, &u8, &hundred, 1);
  EXPECT_EQ(u8, 44);

  std::int8_t i8 = 100;
  accumulate(ReduceOp::kSum, DType::kI8, &i8, &hundred, 1);
  EXPECT_EQ(i8, -56);

  std::uint32_t u32 = 1U << 31;
  const std::uint32_t two = 2;
  accumulate(ReduceOp::kProd, DType::kU32, &u32, &two, 1);
  EXPECT_EQ(u32, 0U);
}

// Though they are negative as numbers with a sign.
TEST(Reduction, LargeUnsignedNumbersAreLarge) {
  const std::uint64_t large = 3ULL << 62;
  const std::uint64_t small = 1ULL << 62;
  const void* const operands[] = {&large, &small};
  std::uint64_t result = 0;
  reduce_operands(ReduceOp::kMax, DType::kU64, &result, operands, 1);
  EXPECT_EQ(result, large);
  reduce_operands(ReduceOp::kMin, DType::kU64, &result, operands, 1);
  EXPECT_EQ(result, small);
  const void* const alone[] = {&large};
  reduce_operands(ReduceOp::kAvg, DType::kU64, &result, alone, 1, 3);
  EXPECT_EQ(result, small);

  const std::uint32_t shorter[] = {3U << 30, 2U << 30};
  const void* const both[] = {&shorter[0], &shorter[1]};
  std::uint32_t average = 0;
  reduce_operands(ReduceOp::kAvg, DType::kU32, &average, both, 1, 2);  // the sum has 33 bits
  EXPECT_EQ(average, 5U << 29);
}

TEST(Reduction, MinimumAndMaximumHandOnNanFromEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (const AccumulatorSide side : {AccumulatorSide::kLeft, AccumulatorSide::kRight}) {
      std::vector<float> left{nan, 1, nan};
      const std::vector<float> right{1, nan, nan};
      accumulate(op, DType::kF32, left.data(), right.data(), 3, side);
      for (const float value : left) EXPECT_TRUE(std::isnan(value));
    }
  }
}

// Of every operand of a loop that takes several at once, in every type, in the body of the loop and
// in its tail; and of no other element.
TEST(Reduction, NanOfAnyOperandIsHandedOn) {
  constexpr std::size_t kCount = 1'031;
  const auto check = [&]<typename T>(ReduceOp op, std::size_t number, std::size_t owner) {
    std::vector<std::vector<T>> inputs(number, std::vector<T>(kCount, static_cast<T>(1.5F)));
    for (const std::size_t place : {std::size_t{0}, kCount / 2, kCount - 1})
      inputs[owner][place] = static_cast<T>(std::nanf(""));
    std::vector<const void*> operands;
    for (const std::vector<T>& input : inputs) operands.push_back(input.data());
    std::vector<T> result(kCount);
    reduce_operands(op, dtype_of<T>, result.data(), operands, kCount, static_cast<int>(number));
    for (std::size_t i = 0; i < kCount; ++i) {
      const bool want = i == 0 || i == kCount / 2 || i == kCount - 1;
      ASSERT_EQ(std::isnan(to_double(result[i])), want)
          << to_string(op) << " " << to_string(dtype_of<T>) << " of " << number << ", operand "
          << owner << ", element " << i;
    }
  };
  for (const ReduceOp op : reductions_of(DType::kF32)) {
    for (const std::size_t number : {1U, 2U, 3U, 4U, 5U, 9U}) {
      for (std::size_t owner = 0; owner < number; ++owner) {
        check.operator()<Float16>(op, number, owner);
        check.operator()<BFloat16>(op, number, owner);
        check.operator()<float>(op, number, owner);
        check.operator()<double>(op, number, owner);
      }
    }
  }
}

TEST(Reduction, PartnersThatSwapSidesGetTheSameBits) {
  const std::vector<float> a{0.0F, -0.0F, 3};
  const std::vector<float> b{-0.0F, 0.0F, 4};
  for (const ReduceOp op : kElementwise) {
    std::vector<float> first = a;   // holds a, which comes first
    std::vector<float> second = b;  // holds b, receives a
    accumulate(op, DType::kF32, first.data(), b.data(), 3, AccumulatorSide::kLeft);
    accumulate(op, DType::kF32, second.data(), a.data(), 3, AccumulatorSide::kRight);
    EXPECT_EQ(std::memcmp(first.data(), second.data(), 3 * sizeof(float)), 0) << to_string(op);
  }
}

TEST(Reduction, DividesIntegersTowardZeroAndRoundsFloats) {
  std::vector<std::int64_t> integers{7, -7, 0, 9};
  divide(DType::kI64, integers.data(), integers.size(), 3);
  EXPECT_EQ(integers, (std::vector<std::int64_t>{2, -2, 0, 3}));
  std::vector<float> floats{1, -2};
  divide(DType::kF32, floats.data(), floats.size(), 3);
  EXPECT_EQ(floats, (std::vector<float>{1.0F / 3, -2.0F / 3}));
}

TEST(Reduction, WidensAndNarrowsIntegersWithoutLoss) {
  const std::vector<std::int32_t> values{std::numeric_limits<std::int32_t>::min(), -1, 0,
                                         std::numeric_limits<std::int32_t>::max()};
  std::vector<std::int64_t> wide(4);
  std::vector<std::int32_t> back(4);
  widen(DType::kI32, values.data(), wide.data(), 4);
  narrow(DType::kI32, wide.data(), back.data(), 4);
  EXPECT_EQ(back, values);
  const std::vector<std::uint8_t> bytes{0, 255};
  std::vector<std::uint8_t> bytes_back(2);
  widen(DType::kU8, bytes.data(), wide.data(), 2);
  EXPECT_EQ(wide[1], 255);
  narrow(DType::kU8, wide.data(), bytes_back.data(), 2);
  EXPECT_EQ(bytes_back, bytes);
}

// As the types themselves convert, which half_test compares with arithmetic.
template <typename T>
void expect_same_half(T found, T wanted, float of) {
  if (std::isnan(to_double(wanted))) {
    ASSERT_TRUE(std::isnan(to_double(found))) << std::bit_cast<std::uint32_t>(of);
  } else {
    ASSERT_EQ(found.bits, wanted.bits) << std::bit_cast<std::uint32_t>(of);
  }
}

TEST(Reduction, WidensEveryHalf) {
  const auto check = []<typename T>() {
    std::vector<T> halves(std::size_t{1} << 16);
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<std::uint16_t>(i);
    std::vector<float> wide(halves.size());
    widen(dtype_of<T>, halves.data(), wide.data(), halves.size());
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const auto wanted = static_cast<float>(halves[i]);
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(wanted)) << i;
      }
    }
  };
  check.operator()<Float16>();
  check.operator()<BFloat16>();
}

TEST(Reduction, NarrowsWhatIsNoNumberToWhatIsNoneAndRoundsTheRest) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  // Of the first ones all that says that they are NaN is in bits that a half does not have.
  std::vector<std::uint32_t> words{0x7f800001U, 0xff800001U, 0x7f801fffU, 0x7fffffffU, 0x7f800000U,
                                   0xff800000U, 0x477fefffU, 0x477ff000U, 0x477ff001U, 0xc77ff000U,
                                   0x7f7f7fffU, 0x7f7f8000U, 0x00000000U, 0x80000000U, 0x33000000U};
  for (int i = 0; i < 20'000; ++i) words.push_back(static_cast<std::uint32_t>(random()));
  const auto check = [&]<typename T>() {
    std::vector<float> wide(words.size());
    std::memcpy(wide.data(), words.data(), words.size() * sizeof(float));
    std::vector<T> halves(words.size());
    narrow(dtype_of<T>, wide.data(), halves.data(), halves.size());
    for (std::size_t i = 0; i < halves.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_same_half(halves[i], T(wide[i]), wide[i]));
    }
  };
  check.operator()<Float16>();
  check.operator()<BFloat16>();
}

}  // namespace
}  // namespace dlaunch
