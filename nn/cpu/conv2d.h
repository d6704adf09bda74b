// Convolutions through oneDNN, in f32 or, with activations in bf16, in bf16 with f32 accumulation;
// on CPUs that do not multiply in bf16 in f32, on converted copies.
//
// Images stay in plain NHWC, in which oneDNN's direct kernels are as fast as in its blocked layouts
// on AVX-512, and which it asks for itself with AMX; weights are reordered into whatever layout
// oneDNN asks for, once per change of the weights. Primitives are made once per geometry and kept.
//
// On request 3x3 convolutions of stride 1 go by Winograd's algorithm (Lavin & Gray 2015), for less
// time and with a larger error: in f32 as oneDNN's F(4x4, 3x3), although images are reordered for
// it; in bf16 as nn/cpu/winograd.h.
#pragma once

#include <cstddef>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "nn/core/backend.h"
#include "nn/core/caching_allocator.h"
#include "nn/cpu/winograd.h"

namespace dlaunch::nn::cpu {

enum class ConvolutionAlgorithm { kDirect, kWinograd };

/// Used by one thread at a time. The allocator provides scratchpads and the memory of reordered
/// weights, and must outlive both this object and the tensors that keep such weights.
class Convolutions {
 public:
  Convolutions(CachingAllocator& allocator, ConvolutionAlgorithm algorithm);
  ~Convolutions();

  void forward(const Conv2dGeometry& geometry, ConstArrayRef x, const WeightsRef& weights,
               const float* bias_or_null, ArrayRef y);
  void backward_data(const Conv2dGeometry& geometry, ConstArrayRef dy, const WeightsRef& weights,
                     ArrayRef dx);
  void backward_weights(const Conv2dGeometry& geometry, ConstArrayRef x, ConstArrayRef dy,
                        float* dw, float* db_or_null);

 private:
  struct Plan;
  struct Packed;
  class Staged;
  struct Key {
    Conv2dGeometry geometry;
    DType dtype;  // of activations
    bool bias;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };

  Plan& plan(const Conv2dGeometry& geometry, DType dtype, bool bias);
  template <typename Function>
  void guarded(const char* pass, const Conv2dGeometry& geometry, const Function& function);
  template <typename Pack>
  dnnl::memory packed_weights(const WeightsRef& weights, Packed& packed,
                              const dnnl::memory::desc& layout, const Pack& pack);
  dnnl::memory reordered_weights(const WeightsRef& weights, Packed& packed,
                                 const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted);
  const BFloat16* winograd_filters(const Conv2dGeometry& geometry, const WeightsRef& weights);
  void add_bias_gradient(const Conv2dGeometry& geometry, ConstArrayRef dy, float* db);
  OneDnnContext context() { return {engine_, stream_, allocator_}; }
  dnnl::memory memory(const dnnl::memory::desc& layout, const void* data) const;

  CachingAllocator& allocator_;
  ConvolutionAlgorithm algorithm_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans_;
};

}  // namespace dlaunch::nn::cpu
