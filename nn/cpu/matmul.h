// Matrix products through oneDNN. Primitives are made once per shape and kept.
#pragma once

#include <cstddef>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "nn/core/backend.h"
#include "nn/cpu/onednn.h"

namespace dlaunch::nn::cpu {

/// Used by one thread at a time. The allocator provides scratchpads and must outlive it.
class Products {
 public:
  explicit Products(CachingAllocator& allocator);

  /// As Backend::matmul(). Throws Error.
  void run(const MatmulArguments& arguments);

 private:
  struct Hash {
    std::size_t operator()(const ProductDescriptor& product) const;
  };

  const Prepared<dnnl::matmul>& plan(const ProductDescriptor& product);

  CachingAllocator& allocator_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<ProductDescriptor, Prepared<dnnl::matmul>, Hash> plans_;
};

}  // namespace dlaunch::nn::cpu
