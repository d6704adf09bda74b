#include "runtime/base/dtype.h"

#include <cstddef>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

TEST(DType, HasTheSizeAndTheCppTypeItsNameSays) {
  std::set<std::string_view> names;
  for (const DType dtype : kAllDTypes) {
    const std::string_view name = to_string(dtype);
    EXPECT_TRUE(names.insert(name).second) << name;
    visit_dtype(dtype, [&]<typename T>() {
      EXPECT_EQ(dtype_of<T>, dtype) << name;
      EXPECT_EQ(sizeof(T), size_of(dtype)) << name;
    });
    const std::size_t bits = std::stoul(std::string(name.substr(name.find_first_of("0123456789"))));
    EXPECT_EQ(size_of(dtype), bits / 8) << name;
    EXPECT_EQ(is_floating(dtype), name.find('f') != std::string_view::npos) << name;
    if (is_floating(dtype)) continue;
    visit_dtype(dtype, [&]<typename T>() {
      EXPECT_EQ(std::is_signed_v<T>, name.starts_with('i')) << name;
    });
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"f16", "bf16", "f32", "f64", "i8", "i32", "i64",
                                               "u8", "u32", "u64"}));
}

TEST(DType, KeepsItsNumbersOnTheWire) {
  EXPECT_EQ(static_cast<int>(DType::kF16), 0);
  EXPECT_EQ(static_cast<int>(DType::kBF16), 1);
  EXPECT_EQ(static_cast<int>(DType::kF32), 2);
  EXPECT_EQ(static_cast<int>(DType::kF64), 3);
  EXPECT_EQ(static_cast<int>(DType::kI32), 4);
  EXPECT_EQ(static_cast<int>(DType::kI64), 5);
  EXPECT_EQ(static_cast<int>(DType::kU8), 6);
  EXPECT_EQ(static_cast<int>(DType::kI8), 7);
  EXPECT_EQ(static_cast<int>(DType::kU32), 8);
  EXPECT_EQ(static_cast<int>(DType::kU64), 9);
  for (std::size_t i = 0; i < std::size(kAllDTypes); ++i)
    EXPECT_EQ(static_cast<std::size_t>(kAllDTypes[i]), i);
}

TEST(DType, ThereAreSizesAmong) {
  static_assert(dtype_of<std::size_t> == DType::kU64);
  static_assert(dtype_of<unsigned long> == DType::kU64);
  static_assert(dtype_of<unsigned long long> == DType::kU64);
  static_assert(dtype_of<long> == DType::kI64);
  static_assert(dtype_of<long long> == DType::kI64);
}

TEST(DType, OfAForeignByteHasNoSize) {
  EXPECT_EQ(size_of(static_cast<DType>(200)), 0U);
  EXPECT_EQ(to_string(static_cast<DType>(200)), "?");
}

}  // namespace
}  // namespace dlaunch
