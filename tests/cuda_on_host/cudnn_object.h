// What stands behind a descriptor of cuDNN's graph interface in its stand-in: an object of some
// type with attributes, which are checked one by one (name, type, number, whether what they refer
// to is finalised) when they are set, and together when the object is finalised.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::cuda_on_host {

/// What a function of cuDNN's returns instead of success.
class Refusal : public std::runtime_error {
 public:
  Refusal(cudnnStatus_t status, const std::string& why)
      : std::runtime_error(why), status_(status) {}
  cudnnStatus_t status() const { return status_; }

 private:
  cudnnStatus_t status_;
};

/// Throws Refusal.
inline void require(bool holds, const std::string& why,
                    cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM) {
  if (!holds) throw Refusal(status, why);
}

struct HostEngine;

class CudnnObject {
 public:
  explicit CudnnObject(cudnnBackendDescriptorType_t type) : type_(type) {}
  /// Made by cuDNN, which finalises it: an engine, alone or configured for an operation graph.
  CudnnObject(cudnnBackendDescriptorType_t type, const HostEngine& engine,
              std::shared_ptr<const CudnnObject> graph)
      : engine(&engine), graph(std::move(graph)), type_(type), finalised_(true) {}

  cudnnBackendDescriptorType_t type() const { return type_; }
  bool finalised() const { return finalised_; }

  /// Throws Refusal.
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* elements);
  /// Throws Refusal unless all attributes are there.
  void require_all() const;
  void finalise() { finalised_ = true; }

  /// Of one that has all.
  template <typename T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const std::vector<std::byte>& bytes = values_.at(name);
    std::vector<T> elements(bytes.size() / sizeof(T));
    std::memcpy(elements.data(), bytes.data(), bytes.size());
    return elements;
  }
  template <typename T>
  T one(cudnnBackendAttributeName_t name) const {
    return all<T>(name).at(0);
  }
  const std::shared_ptr<const CudnnObject>& object(cudnnBackendAttributeName_t name) const {
    return objects_.at(name);
  }

  const HostEngine* engine = nullptr;
  std::shared_ptr<const CudnnObject> graph;

 private:
  cudnnBackendDescriptorType_t type_;
  bool finalised_ = false;
  std::map<cudnnBackendAttributeName_t, std::vector<std::byte>> values_;
  std::map<cudnnBackendAttributeName_t, std::shared_ptr<const CudnnObject>> objects_;
};

/// What a cudnnBackendDescriptor_t points to.
struct CudnnReference {
  std::shared_ptr<CudnnObject> object;
};

}  // namespace dlaunch::cuda_on_host
