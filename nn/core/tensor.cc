#include "nn/core/tensor.h"

#include <string>
#include <utility>

#include "nn/core/autograd.h"

namespace dlaunch::nn {
namespace {

std::size_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<std::size_t>(shape.size()) * size_of(dtype);
}

}  // namespace

// Memory, shared by a tensor and its views.
struct Tensor::Storage {
  Storage(Backend& owner, std::size_t size)
      : backend(owner), memory(owner.allocate(size)), bytes(size) {}
  Storage(Backend& user, void* data, std::size_t size, std::shared_ptr<void> data_owner)
      : backend(user), memory(data), bytes(size), owner(std::move(data_owner)) {}
  ~Storage() {
    if (owner == nullptr) backend.deallocate(memory, bytes);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Backend& backend;
  void* memory;
  std::size_t bytes;
  std::shared_ptr<void> owner;  // of the memory; null: the backend
  std::uint64_t version = 0;    // counts the times that somebody asked to write
};

struct Tensor::Impl {
  std::shared_ptr<Storage> storage;
  std::size_t offset = 0;  // bytes
  Shape shape;
  DType dtype = DType::kF32;
  bool requires_grad = false;
  std::shared_ptr<Node> node;
  Tensor grad;
  std::unique_ptr<DerivedData> derived;
};

Tensor Tensor::empty(Backend& backend, const Shape& shape, DType dtype) {
  auto impl = std::make_shared<Impl>();
  impl->storage = std::make_shared<Storage>(backend, bytes_of(shape, dtype));
  impl->shape = shape;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor Tensor::zeros(Backend& backend, const Shape& shape, DType dtype) {
  Tensor tensor = empty(backend, shape, dtype);
  backend.clear(tensor.impl_->storage->memory, tensor.impl_->storage->bytes);
  return tensor;
}

Tensor Tensor::from_host(Backend& backend, const Shape& shape, DType dtype, const void* values,
                         std::size_t count) {
  if (count != static_cast<std::size_t>(shape.size())) {
    throw Error("a tensor " + shape.to_string() + " is made from " + std::to_string(shape.size()) +
                " values, not " + std::to_string(count));
  }
  Tensor tensor = empty(backend, shape, dtype);
  backend.copy_from_host(tensor.impl_->storage->memory, values, bytes_of(shape, dtype));
  return tensor;
}

Tensor Tensor::over(Backend& backend, const Shape& shape, DType dtype, void* memory,
                    std::shared_ptr<void> owner) {
  if (owner == nullptr) throw Error("Tensor::over: the memory has no owner");
  auto impl = std::make_shared<Impl>();
  impl->storage =
      std::make_shared<Storage>(backend, memory, bytes_of(shape, dtype), std::move(owner));
  impl->shape = shape;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor Tensor::view_of(const Tensor& flat, std::int64_t offset, const Shape& shape) {
  const Impl& base = flat.impl();
  if (offset < 0 || offset > flat.size() || shape.size() > flat.size() - offset) {
    throw Error("view_of: " + shape.to_string() + " at element " + std::to_string(offset) +
                " does not lie within " + base.shape.to_string());
  }
  auto impl = std::make_shared<Impl>();
  impl->storage = base.storage;
  impl->offset = base.offset + static_cast<std::size_t>(offset) * size_of(base.dtype);
  impl->shape = shape;
  impl->dtype = base.dtype;
  return Tensor(std::move(impl));
}

const Tensor::Impl& Tensor::impl() const {
  if (!impl_) throw Error("a tensor that was never set is used");
  return *impl_;
}

const Shape& Tensor::shape() const {
  return impl().shape;
}
DType Tensor::dtype() const {
  return impl().dtype;
}
Backend& Tensor::backend() const {
  return impl().storage->backend;
}

void* Tensor::raw(DType dtype, bool write) const {
  const Impl& self = impl();
  if (self.dtype != dtype) {
    throw Error("a tensor of " + std::string(to_string(self.dtype)) + " is used as " +
                std::string(to_string(dtype)));
  }
  if (write) ++self.storage->version;
  if (self.storage->memory == nullptr) return nullptr;
  return static_cast<std::byte*>(self.storage->memory) + self.offset;
}

/// The one place where a backend without kernels for f16 is found out: all kernels get their
/// activations from here.
void Tensor::require_kernels() const {
  if (dtype() == DType::kF16 && !backend().computes_in(DType::kF16))
    throw Error("the backend \"" + std::string(backend().name()) +
                "\" has no kernels for f16; use bf16");
}

ConstArrayRef Tensor::read() const {
  require_kernels();
  if (dtype() == DType::kF16) return {data<const Float16>(), DType::kF16};
  if (dtype() == DType::kBF16) return {data<const BFloat16>(), DType::kBF16};
  return {data<const float>(), DType::kF32};
}

ArrayRef Tensor::write() const {
  require_kernels();
  if (dtype() == DType::kF16) return {data<Float16>(), DType::kF16};
  if (dtype() == DType::kBF16) return {data<BFloat16>(), DType::kBF16};
  return {data<float>(), DType::kF32};
}

float Tensor::item() const {
  if (size() != 1) throw Error("item(): " + shape().to_string() + " has not one element");
  float value = 0;
  backend().copy_to_host(&value, data<const float>(), sizeof value);
  return value;
}

bool Tensor::requires_grad() const {
  return impl().requires_grad;
}
bool Tensor::is_leaf() const {
  return impl().node == nullptr;
}
Tensor Tensor::grad() const {
  return impl().grad;
}
const std::shared_ptr<Node>& Tensor::node() const {
  return impl().node;
}

void Tensor::set_requires_grad(bool on) {
  if (!is_leaf()) throw Error("set_requires_grad: the tensor is the result of an operation");
  if (on && !is_floating(dtype())) {
    throw Error("set_requires_grad: " + std::string(to_string(dtype())) + " has no gradients");
  }
  impl_->requires_grad = on;
}

void Tensor::set_grad(Tensor grad) {
  if (grad.defined() && (grad.shape() != impl().shape || grad.dtype() != impl().dtype)) {
    throw Error("set_grad: a gradient " + grad.shape().to_string() + " for a tensor " +
                shape().to_string());
  }
  impl_->grad = std::move(grad);
}

void Tensor::set_node(std::shared_ptr<Node> node) {
  impl_->node = std::move(node);
  impl_->requires_grad = true;
}

Tensor Tensor::detach() const {
  return view_of(*this, 0, shape());
}

Tensor Tensor::view(const Shape& shape) const {
  if (shape.size() != size()) {
    throw Error("view: " + this->shape().to_string() + " cannot become " + shape.to_string());
  }
  return view_of(*this, 0, shape);
}

void Tensor::move_into(const Tensor& flat, std::int64_t offset) {
  if (flat.dtype() != dtype()) throw Error("move_into: the tensors have different types");
  const Tensor place = view_of(flat, offset, shape());
  copy_values(*this, place);
  impl_->storage = place.impl_->storage;
  impl_->offset = place.impl_->offset;
  impl_->derived.reset();
}

bool Tensor::sole_owner() const {
  return impl_.use_count() == 1 && impl_->storage.use_count() == 1 &&
         impl_->storage->owner == nullptr;
}

void copy_values(const Tensor& from, const Tensor& to) {
  if (from.size() != to.size() || from.dtype() != to.dtype() || &from.backend() != &to.backend())
    throw Error("copy_values: from " + from.shape().to_string() + " to " + to.shape().to_string());
  visit_dtype(from.dtype(), [&]<typename T>() {
    from.backend().copy(to.data<T>(), from.data<const T>(), bytes_of(from.shape(), from.dtype()));
  });
}

Tensor copy_of(const Tensor& from) {
  Tensor to = Tensor::empty(from.backend(), from.shape(), from.dtype());
  copy_values(from, to);
  return to;
}

Tensor result_like(Tensor& x) {
  return x.sole_owner() ? x.detach() : Tensor::empty(x.backend(), x.shape(), x.dtype());
}

WeightsRef Tensor::weights() const {
  const auto* values = data<const float>();
  return {values, impl_->storage->version, &impl_->derived};
}

}  // namespace dlaunch::nn
