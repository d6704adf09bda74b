#include "nn/cuda/cudnn_descriptor.h"

#include "nn/cuda/check.h"

namespace dlaunch::nn::cuda {

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check(cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) ignore(cudnnBackendDestroyDescriptor(descriptor_));
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  set_elements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
}

void CudnnDescriptor::finalize() {
  check(cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize");
}

std::int64_t CudnnDescriptor::number(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  get_elements(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

// cuDNN fills descriptors that are there already.
CudnnDescriptor CudnnDescriptor::descriptor(cudnnBackendAttributeName_t name,
                                            cudnnBackendDescriptorType_t type) const {
  CudnnDescriptor filled(type);
  get_elements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &filled.descriptor_);
  return filled;
}

// It may fill fewer than it has announced; the others cannot be read.
std::vector<CudnnDescriptor> CudnnDescriptor::descriptors(cudnnBackendAttributeName_t name,
                                                          cudnnBackendDescriptorType_t type,
                                                          std::int64_t most) const {
  most = std::min(most, get_elements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr));
  std::vector<CudnnDescriptor> all;
  std::vector<cudnnBackendDescriptor_t> places;
  for (std::int64_t i = 0; i < most; ++i) places.push_back(all.emplace_back(type).descriptor_);
  if (all.empty()) return all;
  const std::int64_t filled =
      get_elements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, places.data());
  all.erase(all.begin() + std::min(filled, most), all.end());
  return all;
}

void CudnnDescriptor::set_elements(cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, std::int64_t count,
                                   const void* elements) {
  check(cudnnBackendSetAttribute(descriptor_, name, type, count, elements),
        "cudnnBackendSetAttribute");
}

/// Returns how many there are; of descriptors, with a place for some, how many were filled.
std::int64_t CudnnDescriptor::get_elements(cudnnBackendAttributeName_t name,
                                           cudnnBackendAttributeType_t type, std::int64_t most,
                                           void* elements) const {
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(descriptor_, name, type, most, &count, elements),
        "cudnnBackendGetAttribute");
  return count;
}

}  // namespace dlaunch::nn::cuda
