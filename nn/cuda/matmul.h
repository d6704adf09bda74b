// Matrix products through cuBLASLt, in f32 (or TF32 where that is asked for), bf16 or f16.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "nn/core/backend.h"
#include "nn/cuda/device.h"

namespace dlaunch::nn::cuda {

/// Used by the device's thread. The device must outlive it.
class Matmul {
 public:
  /// Throws Error.
  Matmul(Device& device, bool tf32);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  /// Queues it, by the kernel that cuBLASLt's heuristics name first, which is chosen once for each
  /// kind of product; if it has none in 16 bits in f32, on converted copies. Throws Error.
  void run(const MatmulArguments& arguments);

 private:
  /// What the choice of a kernel depends on.
  struct Kind {
    bool transpose_a, transpose_b;
    std::int64_t count, m, n, k;
    DType operands, result;
    std::uint32_t alignment_a, alignment_b, alignment_c, alignment_d;  // bytes
    auto key() const {
      return std::tie(transpose_a, transpose_b, count, m, n, k, operands, result, alignment_a,
                      alignment_b, alignment_c, alignment_d);
    }
    friend bool operator<(const Kind& a, const Kind& b) { return a.key() < b.key(); }
    std::string describe() const;
  };
  struct Plan {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, d;  // C lies as D does
    cublasLtMatmulAlgo_t algorithm;
  };

  static Kind kind_of(const MatmulArguments& arguments);
  std::optional<Plan> choose(const Kind& kind) const;

  Device& device_;
  const bool tf32_;
  // Given once, so that the same products give the same bits.
  const ScratchMemory workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Kind, std::optional<Plan>> plans_;
};

}  // namespace dlaunch::nn::cuda
