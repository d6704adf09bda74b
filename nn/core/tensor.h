// Tensor: a cheap handle to an array on a Backend. Copies of a Tensor are the same tensor; several
// tensors may be views of one storage. Everything is dense and row-major (nn/core/shape.h).
//
// The Backend must outlive its tensors. A tensor and the graph behind it are used by one thread at
// a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/core/backend.h"
#include "nn/core/error.h"
#include "nn/core/shape.h"
#include "runtime/base/dtype.h"

namespace dlaunch::nn {

class Node;  // a recorded operation, nn/core/autograd.h

class Tensor {
 public:
  Tensor() = default;  // undefined: only defined(), assignment and destruction are allowed

  static Tensor empty(Backend& backend, const Shape& shape, DType dtype = DType::kF32);
  static Tensor zeros(Backend& backend, const Shape& shape, DType dtype = DType::kF32);
  /// Copies host values; Error unless there are shape.size() of them.
  template <typename T>
  static Tensor from(Backend& backend, const Shape& shape, std::span<const T> values) {
    return from_host(backend, shape, dtype_of<T>, values.data(), values.size());
  }
  static Tensor from(Backend& backend, const Shape& shape, std::span<const float> values) {
    return from<float>(backend, shape, values);
  }
  /// A tensor in memory of somebody else's that the backend can work on; `owner`, which is not null
  /// (Error), keeps it alive.
  static Tensor over(Backend& backend, const Shape& shape, DType dtype, void* memory,
                     std::shared_ptr<void> owner);
  /// shape.size() elements of `flat`, beginning at element `offset`, sharing its memory. No
  /// history.
  static Tensor view_of(const Tensor& flat, std::int64_t offset, const Shape& shape);

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  std::int64_t size() const { return shape().size(); }
  DType dtype() const;
  Backend& backend() const;

  /// Device memory, for kernels. `T` must match dtype() (Error). data<float>() is for writing and
  /// tells everybody who derived something from the values that it is out of date; data<const
  /// float>() is for reading. So take a pointer for writing when you write, and do not keep it.
  template <typename T>
  T* data() const;
  /// The same of any type, for writing.
  void* memory() const { return raw(dtype(), true); }
  /// The same for activations, which are f32, bf16 or, where the backend computes in it, f16
  /// (Error).
  ConstArrayRef read() const;
  ArrayRef write() const;
  /// The same as a span; only where the backend's memory is host_accessible() (Error).
  template <typename T>
  std::span<T> values() const;
  /// A copy of the values, from any device; waits for it.
  template <typename T>
  std::vector<T> host_values() const;
  /// Overwrites the values, on any device; Error unless there are size() of them.
  template <typename T>
  void set_values(std::span<const T> values) const;
  /// The only element of a tensor with one f32 element, from any device.
  float item() const;

  bool requires_grad() const;
  /// Only for leaves (Error for the result of a recorded operation).
  void set_requires_grad(bool on);
  /// True unless this is the result of a recorded operation.
  bool is_leaf() const;
  /// The gradient accumulated so far; undefined until there is one.
  Tensor grad() const;
  /// Where gradients are accumulated from now on, e.g. a view into a flat buffer. Same shape and
  /// dtype (Error); undefined: none.
  void set_grad(Tensor grad);

  /// The same values without history.
  Tensor detach() const;
  /// The same values in another shape of the same size (Error), without history; nn::reshape in
  /// ops.h records.
  Tensor view(const Shape& shape) const;
  /// Makes this tensor, with all its handles, a view of `flat` from element `offset` on, and copies
  /// its values there.
  void move_into(const Tensor& flat, std::int64_t offset);

  /// Whether both are the same tensor.
  bool same_as(const Tensor& other) const { return impl_ == other.impl_; }
  /// The same for all handles of this tensor and for no other living one.
  const void* id() const { return impl_.get(); }
  /// Whether nobody but this handle can see its memory, so that it may be overwritten. Not where
  /// the memory is somebody else's (over()).
  bool sole_owner() const;
  /// For kernels that keep something derived from these values (f32 only).
  WeightsRef weights() const;

  // --- for autograd.cc ---
  const std::shared_ptr<Node>& node() const;
  void set_node(std::shared_ptr<Node> node);

 private:
  struct Storage;
  struct Impl;

  static Tensor from_host(Backend& backend, const Shape& shape, DType dtype, const void* values,
                          std::size_t count);
  void* raw(DType dtype, bool write) const;
  void require_kernels() const;
  const Impl& impl() const;

  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

/// Makes `to` hold the values of `from`: as many, of the same type, on the same backend (Error).
void copy_values(const Tensor& from, const Tensor& to);

/// The same values, activations or f32, in memory of their own; without history.
Tensor copy_of(const Tensor& from);

/// A tensor of x's shape and type for the result of an operation on it: in x's own memory if nobody
/// else can see that.
Tensor result_like(Tensor& x);

template <typename T>
T* Tensor::data() const {
  return static_cast<T*>(raw(dtype_of<std::remove_const_t<T>>, !std::is_const_v<T>));
}

template <typename T>
std::vector<T> Tensor::host_values() const {
  std::vector<T> values(static_cast<std::size_t>(size()));
  backend().copy_to_host(values.data(), data<const T>(), values.size() * sizeof(T));
  return values;
}

template <typename T>
void Tensor::set_values(std::span<const T> values) const {
  if (values.size() != static_cast<std::size_t>(size()))
    throw Error("set_values: " + std::to_string(values.size()) + " values for " +
                shape().to_string());
  backend().copy_from_host(data<T>(), values.data(), values.size_bytes());
}

template <typename T>
std::span<T> Tensor::values() const {
  if (!backend().host_accessible()) throw Error("values(): the tensor's memory is on a device");
  return {data<T>(), static_cast<std::size_t>(size())};
}

}  // namespace dlaunch::nn
