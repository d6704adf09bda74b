#include "nn/cuda/matmul.h"

#include "nn/cuda/check.h"
#include "nn/cuda/kernels.h"

namespace dlaunch::nn::cuda {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what cuBLAS asks for on Hopper

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
}

// cuBLAS thinks in columns: what is C row by row is the transpose of C column by column, and
// C^T = op(B)^T op(A)^T, in which the matrices lie as they are.
void Matmul::run(const MatmulArguments& arg) {
  if (arg.m == 0 || arg.n == 0) return;
  if (arg.k == 0) {
    if (arg.beta == 0) fill(device_, arg.m * arg.n, 0.0F, arg.c);
    return;
  }
  const float one = 1;
  check(cublasGemmEx_64(handle_, arg.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                        arg.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, arg.n, arg.m, arg.k, &one,
                        arg.b, CUDA_R_32F, arg.transpose_b ? arg.k : arg.n, arg.a, CUDA_R_32F,
                        arg.transpose_a ? arg.m : arg.k, &arg.beta, arg.c, CUDA_R_32F, arg.n,
                        compute_type_, CUBLAS_GEMM_DEFAULT),
        "matmul");
}

}  // namespace dlaunch::nn::cuda
