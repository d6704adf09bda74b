// Convolutions through oneDNN. Images stay in plain NHWC, in which oneDNN's fp32 kernels are as
// fast as in its blocked layouts on AVX-512; weights are reordered into whatever layout oneDNN asks
// for, once per change of the weights. Primitives are made once per geometry and kept.
#pragma once

#include <cstddef>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "nn/core/backend.h"
#include "nn/cpu/caching_allocator.h"

namespace dlaunch::nn::cpu {

/// Used by one thread at a time. The allocator provides scratchpads and the memory of reordered
/// weights, and must outlive both this object and the tensors that keep such weights.
class Convolutions {
 public:
  explicit Convolutions(CachingAllocator& allocator);
  ~Convolutions();

  void forward(const Conv2dGeometry& geometry, const float* x, const WeightsRef& weights,
               const float* bias_or_null, float* y);
  void backward_data(const Conv2dGeometry& geometry, const float* dy, const WeightsRef& weights,
                     float* dx);
  void backward_weights(const Conv2dGeometry& geometry, const float* x, const float* dy, float* dw,
                        float* db_or_null);

 private:
  struct Plan;
  struct Packed;
  struct Key {
    Conv2dGeometry geometry;
    bool bias;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };

  Plan& plan(const Conv2dGeometry& geometry, bool bias);
  template <typename Function>
  void guarded(const char* pass, const Conv2dGeometry& geometry, const Function& function);
  float* packed_weights(const WeightsRef& weights, Packed& packed, const dnnl::memory::desc& plain,
                        const dnnl::memory::desc& wanted);
  dnnl::memory memory(const dnnl::memory::desc& layout, const float* data) const;

  CachingAllocator& allocator_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans_;
};

}  // namespace dlaunch::nn::cpu
