// What a rank finds on its machine, and what a training run needs of it at least.
#pragma once

#include <cstddef>
#include <string>

#include "nn/core/flat_parameters.h"
#include "nn/core/module.h"
#include "nn/data/sampler.h"
#include "runtime/base/dtype.h"
#include "runtime/base/job_environment.h"

namespace dlaunch {

struct Machine {
  int ranks = 1;           // of this job
  int local_rank = 0;      // of this process, among them
  int cores = 1;           // that they share
  int threads = 1;         // of each of them
  std::size_t memory = 0;  // bytes that are free or can be freed; 0: unknown
};

/// Of the machine that this process runs on. Threads are as OpenMP has them, which OMP_NUM_THREADS
/// says; without it not more than have a core's time each.
Machine read_machine(const JobEnvironment& job);

/// Loops of this thread are shared by as many of OpenMP's as that says.
void use_threads(const Machine& machine);

/// "4 ranks of 2 threads share 2 cores: ..."; empty if there are enough.
std::string warn_of_threads(const Machine& machine);

/// "14 of 16 cores are idle with 2 ranks x 1 thread: ..."; empty unless every rank could have three
/// times its threads: of two, the second may be no more than the other half of a core.
std::string remark_on_idle_cores(const Machine& machine);

/// What a rank keeps in memory at the same time, in bytes; what else it needs is left out, so that
/// a run that needs more than there is cannot succeed. Not in whole numbers, which could overflow.
struct MemoryNeed {
  double parameters = 0;   // with gradients
  double activations = 0;  // that backward needs at once, with their gradients
  double batches = 0;      // made in advance

  double total() const { return parameters + activations + batches; }
};

/// Of micro-batches of `images`, of which `prefetch` are made in advance.
MemoryNeed least_memory(const nn::Module& network, const nn::Shape& image, DType compute_type,
                        std::size_t images, std::size_t prefetch);

/// Bytes that an image takes at least when it is evaluated, without a gradient: the input and the
/// output of a layer.
double least_evaluation_memory(const nn::Module& network, const nn::Shape& image,
                               DType compute_type);

/// Throws ConfigError, with the numbers, if the ranks of the machine need more than it has.
void refuse_unless_it_fits(const std::string& key, const MemoryNeed& need, std::size_t images,
                           const Machine& machine);

/// What a rank needs for validations, in bytes.
struct ValidationNeed {
  std::size_t share = 0;      // test images that it keeps
  double share_bytes = 0;     // for them
  std::size_t together = 0;   // images that are validated at a time
  double together_bytes = 0;  // for them
};

/// The same for validations.
void refuse_unless_validation_fits(const ValidationNeed& need, const Machine& machine);

}  // namespace dlaunch
