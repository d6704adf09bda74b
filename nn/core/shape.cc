#include "nn/core/shape.h"

#include <algorithm>

#include "nn/core/error.h"

namespace dlaunch::nn {

namespace {

// So that no type's bytes overflow.
constexpr std::int64_t kMostElements = std::int64_t{1} << 59;

void require_possible(const Shape& shape) {
  std::int64_t most = kMostElements;  // that the other dimensions may have
  for (int i = 0; i < shape.rank(); ++i) most /= std::max<std::int64_t>(shape[i], 1);
  if (most == 0) throw Error("shape " + shape.to_string() + " has too many elements");
}

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  if (dims.size() > kMaxRank) throw Error("a shape has at most 4 dimensions");
  std::size_t i = 0;
  for (const std::int64_t extent : dims) dims_[i++] = extent;
  for (const std::int64_t extent : dims) {
    if (extent < 0) throw Error("shape " + to_string() + " has a negative extent");
  }
  require_possible(*this);
}

std::int64_t Shape::size() const {
  std::int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= dims_[static_cast<std::size_t>(i)];
  return product;
}

int Shape::position(int i) const {
  const int from_start = i < 0 ? i + rank_ : i;
  if (from_start < 0 || from_start >= rank_) {
    throw Error("shape " + to_string() + " has no dimension " + std::to_string(i));
  }
  return from_start;
}

std::int64_t Shape::operator[](int i) const {
  return dims_[static_cast<std::size_t>(position(i))];
}

Shape Shape::with(int i, std::int64_t extent) const {
  if (extent < 0) throw Error("an extent of " + std::to_string(extent) + " is negative");
  Shape changed = *this;
  changed.dims_[static_cast<std::size_t>(position(i))] = extent;
  require_possible(changed);
  return changed;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims_[static_cast<std::size_t>(i)]);
  }
  return text + "]";
}

}  // namespace dlaunch::nn
