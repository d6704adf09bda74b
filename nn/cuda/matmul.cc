#include "nn/cuda/matmul.h"

#include "nn/cuda/check.h"
#include "nn/cuda/kernels.h"

namespace dlaunch::nn::cuda {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what cuBLAS asks for on Hopper

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::kF16) return CUDA_R_16F;
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}

}  // namespace

Matmul::Matmul(Device& device, bool tf32)
    : device_(device), compute_type_(tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F) {
  workspace_.emplace(device.memory(), kWorkspace);
  check(cublasCreate(&handle_), "cublasCreate");
  try {
    prepare();
  } catch (...) {
    ignore(cublasDestroy(handle_));
    throw;
  }
}

Matmul::~Matmul() {
  ignore(cublasDestroy(handle_));
}

void Matmul::prepare() {
  check(cublasSetStream(handle_, device_.stream()), "cublasSetStream");  // before the workspace
  check(cublasSetWorkspace(handle_, workspace_->get(), kWorkspace), "cublasSetWorkspace");
  // A product that is cut along k is added up in float, not in the type of C. Whether TF32 is used
  // each call says.
  check(cublasSetMathMode(handle_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
        "cublasSetMathMode");
}

// cuBLAS thinks in columns: what is C row by row is the transpose of C column by column, and
// C^T = op(B)^T op(A)^T, in which the matrices lie as they are.
void Matmul::run(const MatmulArguments& arg) {
  if (arg.m == 0 || arg.n == 0) return;
  if (arg.k == 0) {
    const auto bytes = static_cast<std::size_t>(arg.m * arg.n) * size_of(arg.c.dtype);
    if (!arg.accumulate)
      check(cudaMemsetAsync(arg.c.data, 0, bytes, device_.stream()), "cudaMemsetAsync");
    return;
  }
  const float one = 1;
  const float beta = arg.accumulate ? 1 : 0;
  check(cublasGemmEx_64(
            handle_, arg.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
            arg.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, arg.n, arg.m, arg.k, &one, arg.b.data,
            type_of(arg.b.dtype), arg.transpose_b ? arg.k : arg.n, arg.a.data, type_of(arg.a.dtype),
            arg.transpose_a ? arg.m : arg.k, &beta, arg.c.data, type_of(arg.c.dtype), arg.n,
            arg.a.dtype == DType::kF32 ? compute_type_ : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "matmul");
}

}  // namespace dlaunch::nn::cuda
