#include "nn/cuda/matmul.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "nn/core/widened.h"
#include "nn/cuda/check.h"
#include "nn/cuda/kernels.h"

namespace dlaunch::nn::cuda {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what cuBLAS asks for on Hopper

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::kF16) return CUDA_R_16F;
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// Of an address, in bytes, as far as kernels care.
std::uint32_t alignment_of(const void* data) {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return static_cast<std::uint32_t>(std::min(address & (~address + 1), kMost));
}

/// Column by column, dense.
cublasLtMatrixLayoutOpaque_t layout_of(DType dtype, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayoutOpaque_t layout{};
  check(cublasLtMatrixLayoutInit(&layout, type_of(dtype), static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(columns), rows),
        "matmul");
  return layout;
}

void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute,
         bool transpose) {
  const std::int32_t value = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value), "matmul");
}

template <typename Value>
void set(cublasLtMatmulPreferenceOpaque_t& preference,
         cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
        "matmul");
}

}  // namespace

Matmul::Matmul(Device& device, bool tf32)
    : device_(device), tf32_(tf32), workspace_(device.memory(), kWorkspace) {
  check(cublasLtCreate(&handle_), "cublasLtCreate");
}

Matmul::~Matmul() {
  ignore(cublasLtDestroy(handle_));
}

std::string Matmul::Kind::describe() const {
  return fmt::format("matmul [{}, {}]{} x [{}, {}]{}, {} to {}, aligned to {}, {} and {} bytes", m,
                     k, transpose_a ? " (transposed)" : "", k, n,
                     transpose_b ? " (transposed)" : "", to_string(operands), to_string(result),
                     alignment_a, alignment_b, alignment_c);
}

/// None if cuBLASLt has no kernel for it in 16 bits.
//
// Its matrices lie column by column: what is C row by row is the transpose of C there, and
// C^T = op(B)^T op(A)^T, in which the matrices lie as they are. So its first operand is B.
std::optional<Matmul::Plan> Matmul::choose(const Kind& kind) const {
  Plan plan{.operation = {},
            .a = kind.transpose_a ? layout_of(kind.operands, kind.m, kind.k)
                                  : layout_of(kind.operands, kind.k, kind.m),
            .b = kind.transpose_b ? layout_of(kind.operands, kind.k, kind.n)
                                  : layout_of(kind.operands, kind.n, kind.k),
            .c = layout_of(kind.result, kind.n, kind.m),
            .algorithm = {}};
  const bool tf32 = tf32_ && kind.operands == DType::kF32;
  check(cublasLtMatmulDescInit(
            &plan.operation, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "matmul");
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, kind.transpose_b);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, kind.transpose_a);

  cublasLtMatmulPreferenceOpaque_t preference{};
  check(cublasLtMatmulPreferenceInit(&preference), "matmul");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspace});
  // A product that is cut along k is added up in float, not in the type of C, and in an order.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kind.alignment_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kind.alignment_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kind.alignment_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kind.alignment_c);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &plan.operation, &plan.b, &plan.a, &plan.c, &plan.c, &preference, 1, &found, &count);
  if (kind.operands != DType::kF32 &&
      (status == CUBLAS_STATUS_NOT_SUPPORTED ||
       (status == CUBLAS_STATUS_SUCCESS && (count == 0 || found.state != CUBLAS_STATUS_SUCCESS))))
    return {};
  check(status, kind.describe().c_str());
  check(count > 0 ? found.state : CUBLAS_STATUS_NOT_SUPPORTED, kind.describe().c_str());
  plan.algorithm = found.algo;
  return plan;
}

void Matmul::run(const MatmulArguments& arg) {
  if (arg.m == 0 || arg.n == 0) return;
  if (arg.k == 0) {
    const auto bytes = static_cast<std::size_t>(arg.m * arg.n) * size_of(arg.c.dtype);
    if (!arg.accumulate)
      check(cudaMemsetAsync(arg.c.data, 0, bytes, device_.stream()), "cudaMemsetAsync");
    return;
  }
  const Kind kind{.transpose_a = arg.transpose_a,
                  .transpose_b = arg.transpose_b,
                  .m = arg.m,
                  .n = arg.n,
                  .k = arg.k,
                  .operands = arg.a.dtype,
                  .result = arg.c.dtype,
                  .alignment_a = alignment_of(arg.a.data),
                  .alignment_b = alignment_of(arg.b.data),
                  .alignment_c = alignment_of(arg.c.data)};
  auto plan = plans_.find(kind);
  if (plan == plans_.end()) plan = plans_.emplace(kind, choose(kind)).first;
  if (!plan->second)
    return matmul_widened(device_.memory(), Conversion{device_}, arg,
                          [this](const MatmulArguments& widened) { run(widened); });
  auto& [operation, a, b, c, algorithm] = *plan->second;
  const float one = 1;
  const float beta = arg.accumulate ? 1 : 0;
  const cublasStatus_t status = cublasLtMatmul(
      handle_, &operation, &one, arg.b.data, &b, arg.a.data, &a, &beta, arg.c.data, &c, arg.c.data,
      &c, &algorithm, workspace_.get(), kWorkspace, device_.stream());
  if (status != CUBLAS_STATUS_SUCCESS) check(status, kind.describe().c_str());
}

}  // namespace dlaunch::nn::cuda
