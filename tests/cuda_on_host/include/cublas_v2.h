// In place of cuBLAS's header: the one product that nn/cuda/matmul.cc asks for, by Eigen
// (tests/cuda_on_host/cublas.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"

// NOLINTBEGIN(readability-identifier-naming): the names are cuBLAS's

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };

using cublasHandle_t = struct cublasContext*;

const char* cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t bytes);

/// C [m, n] = alpha op(A) op(B) + beta C, column by column, `ldx` elements from one to the next.
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                               cublasOperation_t transpose_b, std::int64_t m, std::int64_t n,
                               std::int64_t k, const void* alpha, const void* a,
                               cudaDataType_t type_a, std::int64_t lda, const void* b,
                               cudaDataType_t type_b, std::int64_t ldb, const void* beta, void* c,
                               cudaDataType_t type_c, std::int64_t ldc,
                               cublasComputeType_t compute_type, cublasGemmAlgo_t algorithm);

// NOLINTEND(readability-identifier-naming)
