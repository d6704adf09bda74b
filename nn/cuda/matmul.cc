#include "nn/cuda/matmul.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "nn/core/widened.h"
#include "nn/cuda/check.h"
#include "nn/cuda/kernels.h"

namespace dlaunch::nn::cuda {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what cuBLAS asks for on Hopper

cudaDataType_t matrix_type(DType dtype) {
  if (dtype == DType::kF16) return CUDA_R_16F;
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// Of `count` matrices of so many elements, one behind the other, in bytes, as far as kernels care.
std::uint32_t alignment_of(ConstArrayRef first, std::int64_t count, std::int64_t elements) {
  constexpr std::uintptr_t kMost = 256;
  auto bits = reinterpret_cast<std::uintptr_t>(first.data);
  if (count > 1) bits |= static_cast<std::uintptr_t>(elements) * size_of(first.dtype);
  return static_cast<std::uint32_t>(std::min(bits & (~bits + 1), kMost));
}

template <typename Value>
void set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute,
         Value value) {
  check(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value), "matmul");
}

/// Column by column, dense, one behind the other.
cublasLtMatrixLayoutOpaque_t layout_of(DType dtype, std::int64_t count, std::int64_t rows,
                                       std::int64_t columns) {
  cublasLtMatrixLayoutOpaque_t layout{};
  check(cublasLtMatrixLayoutInit(&layout, matrix_type(dtype), static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(columns), rows),
        "matmul");
  if (count > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, rows * columns);
  }
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

/// C for cuBLASLt, which wants one that it does not read, too.
ConstArrayRef addend_of(const MatmulArguments& arg) {
  return arg.beta == 0 ? arg.d : arg.c;
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
  return fmt::format(
      "matmul of {} [{}, {}]{} x [{}, {}]{}, {} to {}, aligned to {}, {}, {} and {} bytes", count,
      m, k, transpose_a ? " (transposed)" : "", k, n, transpose_b ? " (transposed)" : "",
      to_string(operands), to_string(result), alignment_a, alignment_b, alignment_c, alignment_d);
}

/// None if cuBLASLt has no kernel for it in 16 bits.
//
// Its matrices lie column by column: what is D row by row is the transpose of D there, and
// D^T = op(B)^T op(A)^T, in which the matrices lie as they are. So its first operand is B.
std::optional<Matmul::Plan> Matmul::choose(const Kind& kind) const {
  Plan plan{.operation = {},
            .a = kind.transpose_a ? layout_of(kind.operands, kind.count, kind.m, kind.k)
                                  : layout_of(kind.operands, kind.count, kind.k, kind.m),
            .b = kind.transpose_b ? layout_of(kind.operands, kind.count, kind.k, kind.n)
                                  : layout_of(kind.operands, kind.count, kind.n, kind.k),
            .d = layout_of(kind.result, kind.count, kind.n, kind.m),
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
  // A product that is cut along k is added up in float, not in the type of D, and in an order.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kind.alignment_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kind.alignment_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kind.alignment_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kind.alignment_d);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &plan.operation, &plan.b, &plan.a, &plan.d, &plan.d, &preference, 1, &found, &count);
  if (kind.operands != DType::kF32 &&
      (status == CUBLAS_STATUS_NOT_SUPPORTED ||
       (status == CUBLAS_STATUS_SUCCESS && (count == 0 || found.state != CUBLAS_STATUS_SUCCESS))))
    return {};
  check(status, kind.describe().c_str());
  check(count > 0 ? found.state : CUBLAS_STATUS_NOT_SUPPORTED, kind.describe().c_str());
  plan.algorithm = found.algo;
  return plan;
}

Matmul::Kind Matmul::kind_of(const MatmulArguments& arg) {
  const auto alignment = [&](ConstArrayRef first, std::int64_t elements) {
    return alignment_of(first, arg.count, elements);
  };
  return {.transpose_a = arg.transpose_a,
          .transpose_b = arg.transpose_b,
          .count = arg.count,
          .m = arg.m,
          .n = arg.n,
          .k = arg.k,
          .operands = arg.a.dtype,
          .result = arg.d.dtype,
          .alignment_a = alignment(arg.a, arg.m * arg.k),
          .alignment_b = alignment(arg.b, arg.k * arg.n),
          .alignment_c = alignment(addend_of(arg), arg.m * arg.n),
          .alignment_d = alignment(arg.d, arg.m * arg.n)};
}

void Matmul::run(const MatmulArguments& arg) {
  const std::int64_t results = arg.count * arg.m * arg.n;
  if (results == 0) return;
  if (arg.k == 0 && arg.beta == 0)
    return check(
        cudaMemsetAsync(arg.d.data, 0, static_cast<std::size_t>(results) * size_of(arg.d.dtype),
                        device_.stream()),
        "cudaMemsetAsync");
  if (arg.k == 0) return scale(device_, results, arg.beta, nullptr, arg.c, arg.d);
  const Kind kind = kind_of(arg);
  auto plan = plans_.find(kind);
  if (plan == plans_.end()) plan = plans_.emplace(kind, choose(kind)).first;
  if (!plan->second)
    return matmul_widened(device_.memory(), Conversion{device_}, arg,
                          [this](const MatmulArguments& widened) { run(widened); });
  auto& [operation, a, b, d, algorithm] = *plan->second;
  const cublasStatus_t status =
      cublasLtMatmul(handle_, &operation, &arg.alpha, arg.b.data, &b, arg.a.data, &a, &arg.beta,
                     addend_of(arg).data, &d, arg.d.data, &d, &algorithm, workspace_.get(),
                     kWorkspace, device_.stream());
  if (status != CUBLAS_STATUS_SUCCESS) check(status, kind.describe().c_str());
}

}  // namespace dlaunch::nn::cuda
