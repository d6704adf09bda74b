// The CUDA backend: cuDNN for convolutions, cuBLAS for matrix products, own kernels for the rest.
// In a build without CUDA the functions are there and say so.
//
// Everything runs on one stream of its own, which does not wait for the default stream; kernels,
// copies and the reuse of freed memory keep its order. Copies from the host return when the source
// may be overwritten, copies to the host when the values are there; nothing else stops the host,
// except kernels whose result is a host value. What is recorded (Backend::record) is a CUDA graph.
// A failure that only the device can see (a label out of range, a batch of a single row) is thrown
// as Error by the next call that waits for the device.
//
// Used by one thread, the one that made it; allocate() and deallocate() by any.
#pragma once

#include <memory>
#include <string>

#include "nn/core/backend.h"
#include "runtime/base/logging.h"

struct CUstream_st;  // cudaStream_t points to one

namespace dlaunch::nn {

struct CudaOptions {
  int device = 0;  // among the visible ones
  /// Products of f32 in TF32, with 10 bits of mantissa: faster, less exact.
  bool tf32 = false;
  /// Convolutions: the fastest of a few of cuDNN's engines is measured for each geometry when it is
  /// first used, instead of taking the one that cuDNN expects to be it. Engines differ in how they
  /// round, so another process may compute other bits.
  bool autotune = false;
  /// There will be convolutions: cuDNN is begun and asked for an engine at once, in a thread, since
  /// its first answer takes a quarter of a second, for which it loads libraries and fills tables.
  bool ask_early = false;
  /// Told at level debug what is chosen for each geometry, and when cuDNN has begun; null: silence.
  Logger logger = nullptr;
};

class CudaBackend : public Backend {
 public:
  /// The stream that everything runs on, for work that has to keep its order.
  virtual CUstream_st* stream() const = 0;
  virtual int device() const = 0;
};

/// Why there can be no CUDA backend here, in one line: the build, the driver, no visible device;
/// empty if there can be one.
std::string why_no_cuda();
/// Whether this build has the CUDA backend.
bool built_with_cuda();
/// Visible devices; 0 if why_no_cuda() says why.
int cuda_devices();

/// Throws Error, with why_no_cuda() or what the device said.
std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& options = {});

}  // namespace dlaunch::nn
