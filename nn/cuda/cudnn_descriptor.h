// CudnnDescriptor: the owner of a descriptor of cuDNN's graph interface.
//
// All that this interface knows is described by such objects: they are created, given attributes by
// untyped calls (name, type, number, address), and finalised, from when on they can be read, and
// used as attributes of others, which keep what they need of them. Here the type of an attribute
// follows from its C++ type. Everything throws CudnnError.
#pragma once

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace dlaunch::nn::cuda {

/// What cuDNN calls the type of an attribute.
template <typename T>
struct AttributeType;
template <cudnnBackendAttributeType_t kType>
using AttributeTypeIs = std::integral_constant<cudnnBackendAttributeType_t, kType>;
template <>
struct AttributeType<std::int64_t> : AttributeTypeIs<CUDNN_TYPE_INT64> {};
template <>
struct AttributeType<float> : AttributeTypeIs<CUDNN_TYPE_FLOAT> {};
template <>
struct AttributeType<void*> : AttributeTypeIs<CUDNN_TYPE_VOID_PTR> {};
template <>
struct AttributeType<cudnnHandle_t> : AttributeTypeIs<CUDNN_TYPE_HANDLE> {};
template <>
struct AttributeType<cudnnDataType_t> : AttributeTypeIs<CUDNN_TYPE_DATA_TYPE> {};
template <>
struct AttributeType<cudnnConvolutionMode_t> : AttributeTypeIs<CUDNN_TYPE_CONVOLUTION_MODE> {};
template <>
struct AttributeType<cudnnBackendHeurMode_t> : AttributeTypeIs<CUDNN_TYPE_HEUR_MODE> {};
template <>
struct AttributeType<cudnnBackendNumericalNote_t> : AttributeTypeIs<CUDNN_TYPE_NUMERICAL_NOTE> {};
template <>
struct AttributeType<cudnnBackendBehaviorNote_t> : AttributeTypeIs<CUDNN_TYPE_BEHAVIOR_NOTE> {};

class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  template <typename T>
  void set(cudnnBackendAttributeName_t name, const T& value) {
    set_elements(name, AttributeType<T>::value, 1, &value);
  }
  template <typename T, std::size_t kCount>
  void set(cudnnBackendAttributeName_t name, const std::array<T, kCount>& values) {
    set_elements(name, AttributeType<T>::value, kCount, values.data());
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void finalize();

  /// All of them, but at most `most`.
  template <typename T>
  std::vector<T> values(cudnnBackendAttributeName_t name, std::int64_t most) const {
    std::vector<T> all(static_cast<std::size_t>(most));
    const std::int64_t count = get_elements(name, AttributeType<T>::value, most, all.data());
    all.resize(static_cast<std::size_t>(std::min(count, most)));  // the count of what there is
    return all;
  }
  std::int64_t number(cudnnBackendAttributeName_t name) const;
  CudnnDescriptor descriptor(cudnnBackendAttributeName_t name,
                             cudnnBackendDescriptorType_t type) const;
  /// The first ones, at most `most`.
  std::vector<CudnnDescriptor> descriptors(cudnnBackendAttributeName_t name,
                                           cudnnBackendDescriptorType_t type,
                                           std::int64_t most) const;

 private:
  void set_elements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    std::int64_t count, const void* elements);
  std::int64_t get_elements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::int64_t most, void* elements) const;

  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace dlaunch::nn::cuda
