// Element types that buffers, messages and tensors can have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/half.h"

namespace dlaunch {

/// The numbers are part of the wire format: never renumber.
enum class DType : std::uint8_t {
  kF16 = 0,
  kBF16 = 1,
  kF32 = 2,
  kF64 = 3,
  kI32 = 4,
  kI64 = 5,
  kU8 = 6,
  kI8 = 7,
  kU32 = 8,
  kU64 = 9
};

/// In the order of their numbers.
inline constexpr DType kAllDTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64,
                                       DType::kI32, DType::kI64,  DType::kU8,  DType::kI8,
                                       DType::kU32, DType::kU64};

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kU8:
    case DType::kI8:
      return 1;
  }
  return 0;  // not a DType: only possible for a byte that came from outside and was not checked
}

/// "f32", "bf16", ...
constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
    case DType::kI8:
      return "i8";
    case DType::kU32:
      return "u32";
    case DType::kU64:
      return "u64";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

/// dtype_of<float> == DType::kF32; not defined for other types.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::kU32;
};
template <>
struct DTypeOf<std::uint64_t> {
  static constexpr DType value = DType::kU64;
};
template <>
struct DTypeOf<long long> {  // where std::int64_t is long
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<unsigned long long> {
  static constexpr DType value = DType::kU64;
};
template <>
struct DTypeOf<std::byte> {  // as std::as_bytes() gives them, of whatever objects
  static constexpr DType value = DType::kU8;
};
template <typename T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

/// Calls function.operator()<T>() with the C++ type of `dtype`:
///   visit_dtype(dtype, [&]<typename T>() { ... });
template <typename Function>
decltype(auto) visit_dtype(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kF16:
      return function.template operator()<Float16>();
    case DType::kBF16:
      return function.template operator()<BFloat16>();
    case DType::kF32:
      return function.template operator()<float>();
    case DType::kF64:
      return function.template operator()<double>();
    case DType::kI32:
      return function.template operator()<std::int32_t>();
    case DType::kI64:
      return function.template operator()<std::int64_t>();
    case DType::kI8:
      return function.template operator()<std::int8_t>();
    case DType::kU32:
      return function.template operator()<std::uint32_t>();
    case DType::kU64:
      return function.template operator()<std::uint64_t>();
    case DType::kU8:
      break;
  }
  return function.template operator()<std::uint8_t>();
}

}  // namespace dlaunch
